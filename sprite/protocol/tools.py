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

#: What is offered to other programs' agents, who hear from it what memory or the sprite's own agent says.
AROUND_CALL, READ_MEMORY_CALL, ASK_CALL, ADD_ACTION_CALL = (
    f"{OWN_TOOLS}{name}" for name in ("around", "read_memory", "ask_sprite", "add_action")
)
#: What memory itself put into the conversation proves nothing: it would confirm itself for ever.
#: So does the canvas: what stands there may once have come from a page, and a refused change says what stands there.
#: And its own actions, read back: the words may be a page's that had the agent note them.
#: And what its own agent said to another one, which stands in a turn of its own.
ECHO_CALLS = frozenset(
    {
        *(SEARCH_CALL, AROUND_CALL, READ_MEMORY_CALL, READ_CANVAS_CALL, ASK_CALL),
        *(LIST_CALL, SCHEDULE_CALL, COMPLETE_CALL, ADD_ACTION_CALL),
    }
)
#: Of these names other servers have tools, too: ours is known by its own name, or by a plugin's.
_OFFERED = re.compile(
    r"\Amcp__(?:[\w.-]{1,100}?__(search_memory|read_memory|ask_sprite)"
    r"|[\w.-]{0,100}?(?:sprite|memory)[\w.-]{0,100}?__(around|list_actions|add_action))\Z",
    re.IGNORECASE,
)
#: A server that somebody calls as the sprite's own is another one all the same.
_OTHER_SPRITE = "mcp__other_sprite__"


def as_own_call(name: str) -> str | None:
    """Returns the name that a call of another program's agent to memory has as the sprite's own, or None.

    There it is called after whatever the person named the server.
    """
    if name in ECHO_CALLS:
        return name
    found = _OFFERED.match(name) if name.startswith("mcp__") else None
    return None if found is None else f"{OWN_TOOLS}{(found[1] or found[2]).lower()}"


def from_elsewhere(name: str) -> str:
    """Returns the name under which a tool call of another program is kept: as the sprite's own only if it is memory's.

    The sprite's own tools are trusted by their names, and some stand for what it saw itself: nobody else has them.
    """
    own = as_own_call(name)
    if own is not None:
        return own
    return name.replace(OWN_TOOLS, _OTHER_SPRITE, 1) if name.startswith(OWN_TOOLS) else name
