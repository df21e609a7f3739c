"""`python -m bridge users|status|deploy|notify|audit`: by the running bridge, or on its data folder."""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial

from bridge.admin import status
from bridge.admin.control import ControlError
from bridge.admin.operator_actions import MOST_SHOWN, Entry, told
from bridge.admin.status import Row
from bridge.auth.people import ROLES, Person
from bridge.commands import reach, tokens
from bridge.commands.reach import add_data, add_json, add_person, add_provider, ask, day, moment, say, say_json
from bridge.config import Settings, from_environment
from bridge.db import data_folder
from bridge.errors import BAD_USAGE, BridgeError
from bridge.providers.provider import printable

Work = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]


def add_users_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `users`."""
    names = "add|list|link|revoke|restore|role|token|tokens|revoke-token"
    commands = parser.add_subparsers(required=True, metavar=names)
    every: list[tuple[str, str, Work]] = [
        ("add", "adds a person; prints a login link and a token for programs, once", _let_in),
        ("link", "prints a new login link for a person", _link),
        ("revoke", "revokes a person's sessions, links and tokens; the agent and its memory stay", _revoke),
        ("restore", "gives a revoked person access again", partial(_let_in, how="/restore")),
    ]
    for name, summary, work in every:
        command = commands.add_parser(name, help=summary)
        add_person(command, "up to 39 of a-z, 0-9 and -, beginning with a letter")
        command.set_defaults(work=work)
    listing = commands.add_parser("list", help="everybody")
    add_json(listing)
    add_data(listing)
    listing.set_defaults(work=_list)
    summary = "makes a person an operator, who sees the operators' page, or takes that role away"
    role = commands.add_parser("role", help=summary)
    add_person(role, "a person who has access")
    role.add_argument("role", choices=ROLES)
    role.set_defaults(work=_role)
    tokens.add_commands(commands)


def add_notify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `notify`."""
    commands = parser.add_subparsers(required=True, metavar="key")
    summary = "prints the key with which a receiver verifies the messages to SPRITE_NOTIFY_URL"
    key = commands.add_parser("key", help=summary)
    add_data(key)
    key.set_defaults(work=_notify_key)


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `status`."""
    add_person(parser, "whose agent (default: everybody's)", nargs="?")
    add_json(parser)
    parser.set_defaults(work=_status)


def add_deploy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `deploy`."""
    add_person(parser, "the person whose sprite it is")
    add_provider(parser)
    parser.set_defaults(work=_deploy)


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands and return its exit status."""
    work: Work = arguments.work
    try:
        settings = from_environment(vars(arguments))
        return asyncio.run(work(settings, arguments))
    except BridgeError as error:
        sys.stderr.write(f"{arguments.program}: {error}\n")
        return BAD_USAGE


async def _let_in(settings: Settings, arguments: argparse.Namespace, *, how: str = "") -> int:
    made = await ask(settings, "POST", f"/users/{arguments.name}{how}")
    say(
        f"{arguments.name} has access now. The link and the token are not shown again:",
        f"  login link   {made['link']}   (once, within a day)",
        f"  token        {made['token']}   (for programs: Authorization: Bearer ...)",
    )
    return 0


async def _link(settings: Settings, arguments: argparse.Namespace) -> int:
    say((await ask(settings, "POST", f"/users/{arguments.name}/link"))["link"])
    return 0


async def _revoke(settings: Settings, arguments: argparse.Namespace) -> int:
    await ask(settings, "DELETE", f"/users/{arguments.name}")
    say(f"{arguments.name} has no access any more. The agent and its memory still exist.")
    return 0


async def _role(settings: Settings, arguments: argparse.Namespace) -> int:
    name, role = arguments.name, arguments.role
    has_changed = (await ask(settings, "PUT", f"/users/{name}/role", {"role": role}))["has_changed"]
    what = "an operator" if role == "operator" else "a person without the operator role"
    say(f"{name} is {what} {'now' if has_changed else 'already'}.")
    return 0


async def _list(settings: Settings, arguments: argparse.Namespace) -> int:
    everyone = (await ask(settings, "GET", "/users", type_=dict[str, list[Person]]))["users"]
    if arguments.json:
        return say_json(everyone)
    for person in everyone:
        browsers = "1 browser" if person.sessions == 1 else f"{person.sessions} browsers"
        state = "revoked" if person.revoked_at is not None else browsers
        say(f"{person.name:<20} since {day(person.created_at)}  {person.role:<8}  {state}")
    if not everyone:
        say("Nobody yet. `python -m bridge users add NAME` adds a person.")
    return 0


async def _status(settings: Settings, arguments: argparse.Namespace) -> int:
    rows = (await ask(settings, "GET", "/status", type_=dict[str, list[Row]]))["sprites"]
    if arguments.name is not None:
        rows = [row for row in rows if row.sprite == arguments.name]
        if not rows:
            raise ControlError(f"No person called {printable(arguments.name)} has access.")
    if arguments.json:
        return say_json(rows)
    say(status.drawn(rows, time.time(), shows_bridges=settings.database_url is not None))
    return 0


async def _notify_key(settings: Settings, _arguments: argparse.Namespace) -> int:
    key: str = (await ask(settings, "GET", "/notify/key"))["key"]
    say(key)
    return 0


async def _deploy(settings: Settings, arguments: argparse.Namespace) -> int:
    from bridge.commands.archive import follow_steps

    if settings.provider == "local" and not data_folder.is_taken(settings):
        say("Sprites on this machine need no deploy: `python -m bridge serve` starts each when it is needed.")
        return 0
    async with reach.bridge_or_folder(settings) as session:
        return await follow_steps(session, f"/deploy/{arguments.name}")


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit`."""
    words = "a day or a time, such as 2026-11-22 or 2026-11-22T08:30 (in UTC unless it names a zone)"
    parser.add_argument("--since", metavar="TIME", type=moment, default=0.0, help=words)
    add_json(parser)
    add_data(parser)
    parser.set_defaults(work=_audit)


async def _audit(settings: Settings, arguments: argparse.Namespace) -> int:
    path = f"/audit?since={arguments.since!r}"
    entries = (await ask(settings, "GET", path, type_=dict[str, list[Entry]]))["entries"]
    if arguments.json:
        return say_json(entries)
    for entry in entries:
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        say(f"{at}  {printable(entry.actor):<12}  {printable(told(entry))}")
    if not entries:
        say("Nothing since then." if arguments.since else "Nothing yet.")
    elif len(entries) == MOST_SHOWN:
        say(f"These are the newest {MOST_SHOWN}; use --since to see others.")
    return 0
