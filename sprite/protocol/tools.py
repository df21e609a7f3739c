"""Names of the agent's own tools, on the wire and in the log, and what a call is about (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: The MCP server that the sprite gives its agent.
TOOL_SERVER = "sprite"
#: Prefix of the names of its tools, as the agent calls them.
OWN_TOOLS = f"mcp__{TOOL_SERVER}__"
#: The agent's only memory tool: its own name, and the name in the agent's calls.
SEARCH_TOOL = "search_memory"
SEARCH_CALL = f"{OWN_TOOLS}{SEARCH_TOOL}"
#: The tool that reads the canvas.
READ_CANVAS_TOOL = "read_canvas"
READ_CANVAS_CALL = f"{OWN_TOOLS}{READ_CANVAS_TOOL}"
UPDATE_CARD_CALL = f"{OWN_TOOLS}update_card"
#: The tool that answers a typed question about untrusted content.
READ_UNTRUSTED_TOOL = "read_untrusted"
READ_UNTRUSTED_CALL = f"{OWN_TOOLS}{READ_UNTRUSTED_TOOL}"

#: Observations by the sprite itself, logged as calls of tools that no agent has: a scan of the person's folders, and
#: a person's changes there between two turns.
LOOK_CALL = f"{OWN_TOOLS}look_at_files"
DEEDS_CALL = f"{OWN_TOOLS}person_did"
NOT_THE_AGENTS = frozenset({LOOK_CALL, DEEDS_CALL})

#: Actions: list them, add one, complete one.
LIST_CALL, SCHEDULE_CALL, COMPLETE_CALL = (
    f"{OWN_TOOLS}{name}" for name in ("list_actions", "schedule", "complete_action")
)

#: Tools for other programs' agents; their answers come from memory or the sprite's own agent.
AROUND_CALL, READ_MEMORY_CALL, ASK_CALL, ADD_ACTION_CALL = (
    f"{OWN_TOOLS}{name}" for name in ("around", "read_memory", "ask_sprite", "add_action")
)
#: Text that memory put into the conversation is no evidence, because it would confirm itself for ever.
#: The same is true of the canvas: its text may come from a web page, and a refused change repeats it.
#: And of its actions, because a web page may have made the agent add them.
#: And of answers to another agent, which are already in a turn of their own agent.
ECHO_CALLS = frozenset(
    {
        *(SEARCH_CALL, AROUND_CALL, READ_MEMORY_CALL, READ_CANVAS_CALL, ASK_CALL),
        *(LIST_CALL, SCHEDULE_CALL, COMPLETE_CALL, ADD_ACTION_CALL),
    }
)
#: Other servers have tools with these names, too: ours is recognised by its server's or a plugin's name.
_OFFERED = re.compile(
    r"\Amcp__(?:[\w.-]{1,100}?__(search_memory|read_memory|ask_sprite)"
    r"|[\w.-]{0,100}?(?:sprite|memory)[\w.-]{0,100}?__(around|list_actions|add_action))\Z",
    re.IGNORECASE,
)
#: Prefix for another server that was named like the sprite's own.
_OTHER_SPRITE = "mcp__other_sprite__"


def as_own_call(name: str) -> str | None:
    """Return the sprite's own name for another program's call to the sprite's memory, or None for another call.

    In that program the tool has the server name that its user chose.
    """
    if name in ECHO_CALLS:
        return name
    found = _OFFERED.match(name) if name.startswith("mcp__") else None
    return None if found is None else f"{OWN_TOOLS}{(found[1] or found[2]).lower()}"


def from_elsewhere(name: str) -> str:
    """Return the name under which the log stores another program's tool call.

    Only calls to the sprite's memory get the names of the sprite's own tools. Those tools are trusted by name, and
    some stand for the sprite's own observations, so no other call may use their names.
    """
    own = as_own_call(name)
    if own is not None:
        return own
    return name.replace(OWN_TOOLS, _OTHER_SPRITE, 1) if name.startswith(OWN_TOOLS) else name


#: The MCP server with the tools of the person's connections. Its name is not the sprite's, whose tools are trusted.
CONNECTION_SERVER = "connections"
FIND_TOOLS, USE_TOOL = "find_tools", "use_tool"
_CONNECTED = f"mcp__{CONNECTION_SERVER}__"
FIND_TOOLS_CALL, USE_TOOL_CALL = f"{_CONNECTED}{FIND_TOOLS}", f"{_CONNECTED}{USE_TOOL}"


@dataclass(frozen=True, slots=True)
class ConnectionCall:
    """A call of a tool of a connected MCP server: the connection, the tool, and its arguments."""

    connection: str
    tool: str
    arguments: Mapping[str, Any]

    @property
    def origin(self) -> str:
        """The origin that marks the words of the call's result as untrusted."""
        return f"tool:{self.connection}"


def connection_call(name: str, given: Any) -> ConnectionCall | None:
    """Return the call of a connection's tool that an agent's call makes (directly or by `use_tool`), or None."""
    given = given if isinstance(given, Mapping) else {}
    if name == USE_TOOL_CALL:
        arguments = given.get("arguments")
        chosen = arguments if isinstance(arguments, Mapping) else {}
        return ConnectionCall(str(given.get("connection", "")), str(given.get("tool", "")), chosen)
    connection, mark, tool = name.removeprefix(_CONNECTED).partition("__")
    return ConnectionCall(connection, tool, given) if name.startswith(_CONNECTED) and mark else None


#: Name of the tool in a question about a host.
NETWORK = "network"
#: Input fields that identify a call, the most telling first.
_TELLING = "command file_path notebook_path pattern path url query title host description card_id name".split()


def telling(given: Mapping[str, Any]) -> str:
    """Return the text in a call's input that identifies it best, or "" without any text."""
    texts = (given.get(name) for name in (*_TELLING, *given))
    return next((text.strip() for text in texts if isinstance(text, str) and text.strip()), "")


def leaves_of(given: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each text or number in a call's input; dots join keys and list positions to a path."""
    if isinstance(given, Mapping | list):
        items = given.items() if isinstance(given, Mapping) else enumerate(given)
        for name, value in items:
            yield from leaves_of(value, f"{path}.{name}" if path else str(name))
    elif isinstance(given, str | int | float) and not isinstance(given, bool):
        yield path, str(given)
