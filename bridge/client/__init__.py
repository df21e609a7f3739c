"""The parts that every client of a sprite shares: terminal, editor, chat completions and MCP.

`link` connects to the bridge and resends. `turns` folds wire messages into turns with their parts. `reader` returns
what a client has not shown of a turn. `tests/vectors` has event logs and the resulting state, also for the page's fold.
"""

__all__ = ["link", "turns"]
