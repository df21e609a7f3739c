"""`python -m bridge connections ...`: MCP servers that a person's agent may use."""

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from urllib.parse import quote

import msgspec

from bridge.admin.control import ControlError
from bridge.commands import reach
from bridge.commands.reach import add_data, say
from bridge.config import LOCAL_PERSON, Settings
from bridge.connections.routes import Asked, Chosen, Switch
from bridge.connections.store import DAILY_CALLS
from bridge.providers.provider import person_name, printable
from sprite.protocol.shapes import Connection

Work = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]

#: A server may take half a minute to start.
_SECONDS = 90.0
_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `connections`."""
    commands = parser.add_subparsers(required=True, metavar="add|list|test|agree|on|off|pin|remove")
    every: tuple[tuple[str, str, Work], ...] = (
        ("add", "a server: by its URL, or by a command that starts it here in a sandbox", _add),
        ("list", "connections, their state and the tools that wait for agreement", _list),
        ("test", "reach a server again and list its tools", _test),
        ("agree", "agree to a server's changed tools, after they were shown", _agree),
        ("on", "let the agent use it even where nobody is asked about text from outside", partial(_switch, True)),
        ("off", "take that back", partial(_switch, False)),
        ("pin", "offer tools to the agent directly; without TOOL, none", _pin),
        ("remove", "delete a connection with its credentials, and end its calls", _remove),
    )
    for name, summary, work in every:
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name != "list":
            command.add_argument("name", metavar="NAME", help="the connection")
        command.add_argument("--person", type=person_name, default=LOCAL_PERSON, help="whose agent (default: local)")
        add_data(command)
        command.set_defaults(work=work)
        match name:
            case "add":
                _add_server(command)
            case "pin":
                command.add_argument("tools", metavar="TOOL", nargs="*")
            case "list":
                command.add_argument("--json", action="store_true", help="for programs")
            case "agree":
                command.add_argument("--yes", action="store_true", help="do not ask")


def _add_server(command: argparse.ArgumentParser) -> None:
    command.add_argument("url", metavar="URL", nargs="?", default="", help="a server of Streamable HTTP")
    command.add_argument("--command", metavar='"PROGRAM ARGS"', default="", help="starts a server on this machine")
    command.add_argument("--token-stdin", action="store_true", help="read a bearer token from stdin")
    variables = "a variable of this shell that the command gets; may be given more than once"
    command.add_argument("--env", metavar="NAME", action="append", default=[], help=variables)
    hosts = "a host that the command may reach; may be given more than once"
    command.add_argument("--host", metavar="HOST", action="append", default=[], help=hosts)
    command.add_argument("--daily", type=int, default=DAILY_CALLS, help=f"calls a day (default: {DAILY_CALLS})")


async def _add(settings: Settings, arguments: argparse.Namespace) -> int:
    if bool(arguments.url) == bool(arguments.command):
        raise ControlError("Give a URL or --command.")
    missing = [name for name in arguments.env if name not in os.environ]  # noqa: TID251 - the person names them
    if missing:
        raise ControlError(f"The variable {missing[0]} is not set in this shell.")
    asked = Asked(
        arguments.url,
        sys.stdin.readline().strip() if arguments.token_stdin else "",
        shlex.split(arguments.command),
        {name: os.environ[name] for name in arguments.env},  # noqa: TID251 - the same
        arguments.host,
        arguments.daily,
        arguments.name,
    )
    return await _post(settings, arguments, "", asked)


async def _test(settings: Settings, arguments: argparse.Namespace) -> int:
    return await _post(settings, arguments, f"/{quote(arguments.name, safe='')}/test")


async def _list(settings: Settings, arguments: argparse.Namespace) -> int:
    found = await _listed(settings, arguments)
    if arguments.json:
        say(msgspec.json.encode(found).decode())
        return 0
    for each in found:
        _told(each)
    if not found:
        say("None yet. `connections add NAME URL` adds one.")
    return 0


async def _agree(settings: Settings, arguments: argparse.Namespace) -> int:
    found = next((each for each in await _listed(settings, arguments) if each.name == arguments.name), None)
    if found is None or not found.changed:
        say(f"No tool of {arguments.name} waits for you.")
        return 0
    for tool in found.changed:
        say(f"{tool.name}: {printable(tool.description)}", f"  before: {printable(tool.before or 'not there')}")
    if not arguments.yes:
        question = partial(input, "Agree to all of these? [y/N] ")
        if not sys.stdin.isatty() or (await asyncio.to_thread(question)).strip().lower() != "y":
            return _FAILED
    chosen = Chosen([tool.digest for tool in found.changed])
    return await _post(settings, arguments, f"/{quote(arguments.name, safe='')}/agree", chosen)


async def _switch(is_on: bool, settings: Settings, arguments: argparse.Namespace) -> int:
    return await _post(settings, arguments, f"/{quote(arguments.name, safe='')}/switch", Switch(is_on))


async def _pin(settings: Settings, arguments: argparse.Namespace) -> int:
    return await _post(settings, arguments, f"/{quote(arguments.name, safe='')}/pin", Chosen(arguments.tools))


async def _remove(settings: Settings, arguments: argparse.Namespace) -> int:
    await reach.ask(settings, "DELETE", f"/users/{arguments.person}/connections/{quote(arguments.name, safe='')}")
    say(f"{arguments.name} is removed, with its credentials.")
    return 0


async def _post(settings: Settings, arguments: argparse.Namespace, path: str, body: object = None) -> int:
    path = f"/users/{arguments.person}/connections{path}"
    body = msgspec.to_builtins(body)
    return _told(await reach.ask(settings, "POST", path, body, type_=Connection, seconds=_SECONDS))


async def _listed(settings: Settings, arguments: argparse.Namespace) -> list[Connection]:
    path, type_ = f"/users/{arguments.person}/connections", dict[str, list[Connection]]
    found: dict[str, list[Connection]] = await reach.ask(settings, "GET", path, type_=type_)
    return found["connections"]


def _told(each: Connection) -> int:
    """Print a connection. Return the exit status."""
    states = {
        "new": "not used since the bridge started",
        "ready": f"{len(each.tools)} tools",
        "login": "log in at the page, under Settings",
        "failed": "failed",
    }
    say(f"{each.name:<16} {each.address}  {states[each.state]}  {each.calls_today:,} of {each.daily:,} calls today")
    if each.detail:
        say(f"  {printable(each.detail)}")
    if each.changed:
        say(f"  {len(each.changed)} new or changed tools wait: `connections agree {each.name}` shows them")
    return _FAILED if each.state == "failed" else 0
