"""`python -m bridge connections ...`: MCP servers that a person's agent may use."""

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from bridge.admin.control import ControlError
from bridge.commands.reach import add_data, add_json, ask, say, say_json
from bridge.config import LOCAL_PERSON, Settings
from bridge.connections.store import DAILY_CALLS
from bridge.providers.provider import person_name, printable
from sprite.protocol.shapes import ChangedTool, Connection

#: A server may take half a minute to start.
_SECONDS = 90.0
_FAILED = 1
_COMMANDS = {
    "add": "a server: by its URL, or by a command that starts it here in a sandbox",
    "list": "connections, their state and the tools that wait for agreement",
    "test": "reach a server again and list its tools",
    "agree": "agree to a server's changed tools, after they were shown",
    "on": "let the agent use it even where nobody is asked about text from outside",
    "off": "take that back",
    "pin": "offer tools to the agent directly; without TOOL, none",
    "remove": "delete a connection with its credentials, and end its calls",
}
_STATES = {"new": "not used since the bridge started", "login": "log in at the page, under Settings"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `connections`."""
    commands = parser.add_subparsers(required=True, metavar="|".join(_COMMANDS))
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name != "list":
            command.add_argument("name", metavar="NAME", help="the connection")
        command.add_argument("--person", type=person_name, default=LOCAL_PERSON, help="whose agent (default: local)")
        add_data(command)
        command.set_defaults(work=partial(_run, name))
        match name:
            case "add":
                _add_server(command)
            case "pin":
                command.add_argument("tools", metavar="TOOL", nargs="*")
            case "list":
                add_json(command)
            case "agree":
                command.add_argument("--yes", action="store_true", help="do not ask")


def _add_server(command: argparse.ArgumentParser) -> None:
    command.add_argument("url", metavar="URL", nargs="?", default="", help="an MCP server (Streamable HTTP)")
    command.add_argument("--command", metavar='"PROGRAM ARGS"', default="", help="starts an MCP server on this machine")
    command.add_argument("--token-stdin", action="store_true", help="read a bearer token from stdin")
    variables = "a variable of this shell that the command gets; may be given more than once"
    command.add_argument("--env", metavar="NAME", action="append", default=[], help=variables)
    hosts = "a host that the command may reach; may be given more than once"
    command.add_argument("--host", metavar="HOST", action="append", default=[], help=hosts)
    command.add_argument("--daily", type=int, default=DAILY_CALLS, help=f"most calls a day (default: {DAILY_CALLS})")


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    if bool(arguments.url) == bool(arguments.command):
        raise ControlError("Give a URL or --command.")
    if missing := [name for name in arguments.env if name not in os.environ]:  # noqa: TID251 - the person names them
        raise ControlError(f"The variable {missing[0]} is not set in this shell.")
    return {
        "name": arguments.name,
        "url": arguments.url,
        "token": sys.stdin.readline().strip() if arguments.token_stdin else "",
        "command": shlex.split(arguments.command),
        "env": {name: os.environ[name] for name in arguments.env},  # noqa: TID251 - the same
        "hosts": arguments.host,
        "daily": arguments.daily,
    }


#: For each command, the end of the connection's path and a function that makes the body.
_POSTS: dict[str, tuple[str, Callable[[argparse.Namespace], object]]] = {
    "test": ("/test", lambda _: None),
    "on": ("/switch", lambda _: {"on": True}),
    "off": ("/switch", lambda _: {"on": False}),
    "pin": ("/pin", lambda arguments: {"tools": arguments.tools}),
}


async def _run(command: str, settings: Settings, arguments: argparse.Namespace) -> int:
    path = f"/users/{arguments.person}/connections"
    if command == "add":
        return await _post(settings, path, _asked(arguments))
    if command == "list":
        found = await _listed(settings, path)
        if arguments.json:
            return say_json(found)
        for each in found:
            _told(each)
        if not found:
            say("None yet. `connections add NAME URL` adds one.")
        return 0
    one = f"{path}/{quote(arguments.name, safe='')}"
    if command == "agree":
        found = [each for each in await _listed(settings, path) if each.name == arguments.name]
        return await _agree(settings, one, arguments, found[0].changed if found else [])
    if command == "remove":
        await ask(settings, "DELETE", one)
        say(f"{arguments.name} is removed, with its credentials.")
        return 0
    what, body = _POSTS[command]
    return await _post(settings, f"{one}{what}", body(arguments))


async def _agree(settings: Settings, path: str, arguments: argparse.Namespace, changed: Sequence[ChangedTool]) -> int:
    for tool in changed:
        say(f"{tool.name}: {printable(tool.description)}", f"  before: {printable(tool.before or 'not there')}")
    if not changed:
        say(f"No tool of {arguments.name} waits for you.")
        return 0
    if not arguments.yes:
        question = partial(input, "Agree to all of these? [y/N] ")
        if not sys.stdin.isatty() or (await asyncio.to_thread(question)).strip().lower() != "y":
            return _FAILED
    return await _post(settings, f"{path}/agree", {"tools": [tool.digest for tool in changed]})


async def _post(settings: Settings, path: str, body: object) -> int:
    return _told(await ask(settings, "POST", path, body, type_=Connection, seconds=_SECONDS))


async def _listed(settings: Settings, path: str) -> list[Connection]:
    found: dict[str, list[Connection]] = await ask(settings, "GET", path, type_=dict[str, list[Connection]])
    return found["connections"]


def _told(each: Connection) -> int:
    """Print a connection. Return the exit status."""
    state = _STATES.get(each.state, f"{len(each.tools)} tools" if each.state == "ready" else "failed")
    say(f"{each.name:<16} {each.address}  {state}  {each.calls_today:,} of {each.daily:,} calls today")
    if each.detail:
        say(f"  {printable(each.detail)}")
    if each.changed:
        say(f"  {len(each.changed)} new or changed tools wait: `connections agree {each.name}` shows them")
    return _FAILED if each.state == "failed" else 0
