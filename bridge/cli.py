"""The installed command `sprite`: the commands of both programs, for an agent on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bridge.errors import BAD_USAGE, INTERRUPTED
from sprite import __version__

#: In the order of `--help`. The sprite's commands work on the local person's workspace unless `--workspace` is given.
_SPRITE = {
    "doctor": "check this machine and say what to do",
    "memory": "search, read, correct and forget",
    "actions": "to-dos: list, add, done, dismiss",
    "changes": "files that a turn changed",
    "undo": "take a turn's file changes back",
    "rules": "rules about tool calls: list, test",
    "reach": "hosts that the agent may reach: list, revoke",
    "import": "read session logs of Claude Code, or an archive",
    "export": "write everything as one archive",
    "follow": "log Claude Code's sessions as their turns end",
    "rebuild": "rebuild memory from the log",
    "mcp": "offer memory to other agents (MCP on stdio)",
}
_BRIDGE = {
    "run": "start your agent and print the address of its page",
    "chat": "talk to your agent in this terminal",
    "status": "state, version, next to-do and spend",
    "update": "install the newest version",
    "acp": "connect an editor to your agent; the editor starts this",
    "deploy": "create or update an agent now, with its steps",
    "restore": "restore a lost agent from its replica",
    "store": "replicas: list, verify, accept, delete",
    "connections": "MCP servers that your agent may use",
    "users": "people, login links and tokens",
    "audit": "audit log: what operators did",
    "notify": "notifications: the webhook's key",
}
#: Under another name here than in `python -m bridge`.
_NAMES = {"serve": "run"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = given[0] if given else "--help"
    try:
        if name in _SPRITE:
            from bridge.config import LOCAL_PERSON
            from sprite.__main__ import main as sprite_main
            from sprite.common.settings import default_data

            return sprite_main(given, workspace=default_data() / "workspaces" / LOCAL_PERSON, program="sprite")
        if name in _BRIDGE:
            from bridge.__main__ import main as bridge_main

            return bridge_main(given, program="sprite", names=_NAMES)
    except KeyboardInterrupt:
        # While modules load.
        return INTERRUPTED
    if name in {"-h", "--help"}:
        sys.stdout.write(_help())
        return 0
    if name == "--version":
        sys.stdout.write(f"sprite {__version__}\n")
        return 0
    sys.stderr.write(f"sprite: unknown command {name!r}. `sprite --help` lists the commands.\n")
    return BAD_USAGE


def _help() -> str:
    everyday = ("run", "chat", "status", *_SPRITE, "update")
    return (
        "usage: sprite COMMAND\n\nAn agent that lives on its own computer and never forgets.\n\n"
        f"everyday:\n{_lines(*everyday)}\n"
        f"editors, people and machines:\n{_lines(*[name for name in _BRIDGE if name not in everyday])}\n"
        "`sprite COMMAND --help` explains a command; `sprite run --help` lists the settings.\n"
    )


def _lines(*names: str) -> str:
    return "".join(f"  {name:<11} {(_BRIDGE | _SPRITE)[name]}\n" for name in names)
