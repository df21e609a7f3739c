"""What the agent's own tools are called, on the wire as in the log (pure)."""

from __future__ import annotations

import re

#: The MCP server that the sprite gives its agent.
TOOL_SERVER = "sprite"
#: So begin the names of its tools as the agent calls them.
OWN_TOOLS = f"mcp__{TOOL_SERVER}__"
#: The agent's only memory tool, by itself and as the agent calls it.
SEARCH_TOOL = "search_memory"
SEARCH_CALL = f"{OWN_TOOLS}{SEARCH_TOOL}"
#: The tool with which the agent looks at its canvas.
READ_CANVAS_TOOL = "read_canvas"
READ_CANVAS_CALL = f"{OWN_TOOLS}{READ_CANVAS_TOOL}"
UPDATE_CARD_CALL = f"{OWN_TOOLS}update_card"

#: What the sprite itself saw, kept in the log as calls of tools that no agent has: a look at the person's folders, and
#: what a person did there between two turns.
LOOK_CALL = f"{OWN_TOOLS}look_at_files"
DEEDS_CALL = f"{OWN_TOOLS}person_did"
NOT_THE_AGENTS = frozenset({LOOK_CALL, DEEDS_CALL})

#: What is to be done: the agent's list, what it adds to it, and what it says is done.
LIST_CALL, SCHEDULE_CALL, COMPLETE_CALL = (
    f"{OWN_TOOLS}{name}" for name in ("list_actions", "schedule", "complete_action")
)

#: What memory offers to other programs' agents.
AROUND_CALL, READ_MEMORY_CALL = (f"{OWN_TOOLS}{name}" for name in ("around", "read_memory"))
#: Of these names other servers have tools, too: ours is known by its own name, or by a plugin's.
_OFFERED = re.compile(
    r"\Amcp__(?:[\w.-]{1,100}?__(search_memory|read_memory)|[\w.-]{0,100}?(?:sprite|memory)[\w.-]{0,100}?__(around|list_actions))\Z",
    re.IGNORECASE,
)


def as_own_call(name: str) -> str | None:
    """Returns the name that a call of another program's agent to memory has as the sprite's own, or None.

    There it is called after whatever the person named the server.
    """
    found = _OFFERED.match(name) if name.startswith("mcp__") else None
    return None if found is None else f"{OWN_TOOLS}{(found[1] or found[2]).lower()}"
