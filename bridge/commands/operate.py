"""`python -m bridge users|status|deploy|notify|audit`: by the running bridge, or on its data folder."""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial

import msgspec

from bridge.admin import status
from bridge.admin.control import ControlError
from bridge.admin.operator_actions import MOST_SHOWN, Entry, told
from bridge.admin.status import Row
from bridge.auth.people import ROLES, Person
from bridge.commands import tokens
from bridge.commands.reach import add_data, ask, bridge_or_folder, day, moment, say
from bridge.config import Settings, from_environment
from bridge.db import data_folder
from bridge.errors import BAD_USAGE, BridgeError
from bridge.providers.provider import person_name, printable

Work = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]


# --- the command line ---


def add_users_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `users`."""
    commands = parser.add_subparsers(
        required=True,
        metavar="add|list|link|revoke|restore|role|token|tokens|revoke-token",
    )
    every: list[tuple[str, str, Work]] = [
        ("add", "adds a person; prints a login link and a token for programs, once", _let_in),
        ("link", "prints a new login link for a person", _link),
        ("revoke", "revokes a person's sessions, links and tokens; the agent and its memory stay", _revoke),
        ("restore", "gives a revoked person access again", partial(_let_in, how="/restore")),
    ]
    for name, summary, work in every:
        command = commands.add_parser(name, help=summary)
        command.add_argument(
            "name", metavar="NAME", type=person_name, help="up to 39 of a-z, 0-9 and -, beginning with a letter"
        )
        add_data(command)
        command.set_defaults(work=work)
    listing = commands.add_parser("list", help="everybody")
    listing.add_argument("--json", action="store_true", help="for programs")
    add_data(listing)
    listing.set_defaults(work=_list)
    role = commands.add_parser(
        "role", help="makes a person an operator, who sees the operators' page, or takes that role away"
    )
    role.add_argument("name", metavar="NAME", type=person_name, help="a person who has access")
    role.add_argument("role", choices=ROLES)
    add_data(role)
    role.set_defaults(work=_role)
    tokens.add_commands(commands)


def add_notify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `notify`."""
    commands = parser.add_subparsers(required=True, metavar="key")
    key = commands.add_parser(
        "key", help="prints the key with which a receiver verifies the messages to SPRITE_NOTIFY_URL"
    )
    add_data(key)
    key.set_defaults(work=_notify_key)


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `status`."""
    parser.add_argument("name", metavar="NAME", type=person_name, nargs="?", help="whose agent (default: everybody's)")
    parser.add_argument("--json", action="store_true", help="for programs")
    add_data(parser)
    parser.set_defaults(work=_status)


def add_deploy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `deploy`."""
    parser.add_argument("name", metavar="NAME", type=person_name, help="the person whose sprite it is")
    parser.add_argument(
        "--provider",
        choices=("local", "sprites"),
        default="local",
        help="provider of the sprite, used if no bridge runs here",
    )
    add_data(parser)
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


# --- the commands ---


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
        say(msgspec.json.encode(everyone).decode())
        return 0
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
        say(msgspec.json.encode(rows).decode())
    else:
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
    async with bridge_or_folder(settings) as session:
        return await follow_steps(session, f"/deploy/{arguments.name}")


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit`."""
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="a day or a time, such as 2026-11-22 or 2026-11-22T08:30 (in UTC unless it names a zone)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_data(parser)
    parser.set_defaults(work=_audit)


async def _audit(settings: Settings, arguments: argparse.Namespace) -> int:
    since = 0.0 if arguments.since is None else moment(arguments.since, time.time())
    entries = (await ask(settings, "GET", f"/audit?since={since!r}", type_=dict[str, list[Entry]]))["entries"]
    if arguments.json:
        say(msgspec.json.encode(entries).decode())
        return 0
    for entry in entries:
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        say(f"{at}  {printable(entry.actor):<12}  {printable(told(entry))}")
    if not entries:
        say("Nothing yet." if arguments.since is None else "Nothing since then.")
    elif len(entries) == MOST_SHOWN:
        say(f"These are the newest {MOST_SHOWN}; use --since to see others.")
    return 0
