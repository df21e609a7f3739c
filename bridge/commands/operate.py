"""`python -m bridge users|status|deploy|notify|audit|move-database`: by the running bridge, or on its data folder."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime

import msgspec

from bridge.admin import control, status
from bridge.admin.audit import CLI, DONE, MOST_SHOWN, Audit, AuditLog, told
from bridge.admin.control import ControlError, NoBridgeError
from bridge.admin.status import Row
from bridge.auth.people import ROLES, Person, login_link
from bridge.commands import login_methods
from bridge.commands.reach import add_data, ask_or_act, bridge_or_acts, day, running_bridge, say
from bridge.config import DEFAULT_HOST, DEFAULT_PORT, Settings, from_environment
from bridge.db import data_folder
from bridge.db.open import Transaction, continue_numbers, copy, open_database
from bridge.errors import BAD_USAGE, INTERRUPTED, BridgeError, OperatorError
from bridge.providers.provider import printable

_FAILED = 1

Work = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]


#: Limits the status query.
_PROBE_SECONDS = 5.0


class _Status(msgspec.Struct):
    """The known state of sprites."""

    sprites: list[Row]
    #: Current troubles, as messages for the operator.
    trouble: str = ""


# --- the command line ---


def add_users_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `users`."""
    commands = parser.add_subparsers(
        required=True,
        metavar="add|list|link|revoke|restore|role|identities|link-identity|unlink-identity|remove-passkey|token|tokens|"
        "revoke-token",
    )
    every: list[tuple[str, str, Work]] = [
        ("add", "a new person: prints a login link and a token for programs, once", _add),
        ("link", "a new login link for somebody who is there", _link),
        ("revoke", "ends a person's sessions, links and tokens; the agent and its memory stay", _revoke),
        ("restore", "lets a revoked person in again", _restore),
    ]
    for name, summary, work in every:
        command = commands.add_parser(name, help=summary)
        command.add_argument("name", metavar="NAME", help="up to 39 of a-z, 0-9 and -, beginning with a letter")
        add_data(command)
        command.set_defaults(work=work)
    listing = commands.add_parser("list", help="everybody")
    listing.add_argument("--json", action="store_true", help="for programs")
    add_data(listing)
    listing.set_defaults(work=_list)
    role = commands.add_parser(
        "role", help="makes a person an operator, who may do on the operator's page what you do here, or one no more"
    )
    role.add_argument("name", metavar="NAME", help="somebody who may come in")
    role.add_argument("role", choices=ROLES)
    add_data(role)
    role.set_defaults(work=_role)
    login_methods.add_commands(commands)
    login_methods.add_token_commands(commands)


def add_notify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `notify`."""
    commands = parser.add_subparsers(required=True, metavar="key|test")
    key = commands.add_parser("key", help="the key with which a receiver checks what SPRITE_NOTIFY_URL is sent")
    add_data(key)
    key.set_defaults(work=_notify_key)
    test = commands.add_parser("test", help="sends a person a notification, by every way that there is to them")
    test.add_argument("name", metavar="NAME", help="the person")
    add_data(test)
    test.set_defaults(work=_notify_test)


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `status`."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="whose agent (default: everybody's)")
    parser.add_argument("--json", action="store_true", help="for programs")
    add_data(parser)
    parser.set_defaults(work=_status)


def add_deploy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `deploy`."""
    parser.add_argument("name", metavar="NAME", help="the person whose sprite it is")
    parser.add_argument(
        "--provider", choices=("local", "sprites"), default="local", help="where it lives, when no bridge runs here"
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
        sys.stderr.write(f"bridge: {error}\n")
        return BAD_USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


# --- the commands ---


async def _add(settings: Settings, arguments: argparse.Namespace) -> int:
    return await _let_in(settings, arguments.name, "add")


async def _restore(settings: Settings, arguments: argparse.Namespace) -> int:
    return await _let_in(settings, arguments.name, "restore")


async def _let_in(settings: Settings, name: str, how: str) -> int:
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            answer = await control.ask(session, "POST", f"/users/{name}" + ("/restore" if how == "restore" else ""))
            link, token = answer["link"], answer["token"]
        else:
            secret, token = await (acts.add(CLI, name) if how == "add" else acts.restore(CLI, name))
            link = _link_of(settings, secret)
    say(
        f"{name} may come in. Neither of these is shown again:",
        f"  login link   {link}   (once, within a day)",
        f"  token        {token}   (for programs: Authorization: Bearer ...)",
    )
    return 0


async def _link(settings: Settings, arguments: argparse.Namespace) -> int:
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            link = (await control.ask(session, "POST", f"/users/{arguments.name}/link"))["link"]
        else:
            link = _link_of(settings, await acts.link(CLI, arguments.name))
    say(link)
    return 0


async def _revoke(settings: Settings, arguments: argparse.Namespace) -> int:
    path = f"/users/{arguments.name}"
    await ask_or_act(settings, "DELETE", path, lambda acts: acts.revoke(CLI, arguments.name))
    say(f"{arguments.name} is out. The agent and its memory are still there.")
    return 0


async def _role(settings: Settings, arguments: argparse.Namespace) -> int:
    name, role = arguments.name, arguments.role
    has_changed = await ask_or_act(
        settings,
        "PUT",
        f"/users/{name}/role",
        lambda acts: acts.change_role(CLI, name, role),
        body={"role": role},
        field="has_changed",
    )
    what = "an operator" if role == "operator" else "a person like any other"
    say(f"{name} is {what} {'now' if has_changed else 'already'}.")
    return 0


async def _list(settings: Settings, arguments: argparse.Namespace) -> int:
    everyone = await ask_or_act(
        settings, "GET", "/users", lambda acts: acts.everyone(), field="users", type_=list[Person]
    )
    if arguments.json:
        say(msgspec.json.encode(everyone).decode())
        return 0
    for person in everyone:
        state = "revoked" if person.revoked_at is not None else f"{person.sessions} browsers"
        say(f"{person.name:<20} since {day(person.created_at)}  {person.role:<8}  {state}")
    if not everyone:
        say("Nobody yet. `python -m bridge users add NAME` adds a person.")
    return 0


async def _status(settings: Settings, arguments: argparse.Namespace) -> int:
    try:
        async with running_bridge(settings) as session:
            found = msgspec.convert(await control.ask(session, "GET", "/status", seconds=_PROBE_SECONDS), _Status)
    except NoBridgeError:
        from bridge.app import looked_into

        async with looked_into(settings) as overview:
            found = _Status(await overview.rows())
    rows = found.sprites
    if arguments.name is not None:
        rows = [row for row in rows if row.sprite == arguments.name]
        if not rows:
            raise ControlError(f"Nobody here is called {printable(arguments.name)}, or they may not come in any more.")
    if arguments.json:
        say(msgspec.json.encode(rows).decode())
    else:
        table = status.drawn(rows, time.time(), shows_bridges=settings.database_url is not None)
        say(table, *([found.trouble] if found.trouble else []))
    return 0


async def _notify_key(settings: Settings, _arguments: argparse.Namespace) -> int:
    try:
        async with running_bridge(settings) as session:
            key: str = (await control.ask(session, "GET", "/notify/key"))["key"]
    except NoBridgeError:
        from bridge.app import webhook_key_alone

        key = await webhook_key_alone(settings)
    say(key)
    return 0


async def _notify_test(settings: Settings, arguments: argparse.Namespace) -> int:
    async with running_bridge(settings) as session:
        ways: list[str] = (await control.ask(session, "POST", f"/notify/test/{arguments.name}"))["ways"]
    if not ways:
        raise ControlError(
            f"Nothing was sent: there is no way to {arguments.name} yet. Set SPRITE_NOTIFY_URL for the bridge, or turn "
            "notifications on in a browser (on the page: Memory, To do, Notifications)."
        )
    say(f"A test is on its way to {arguments.name}, by {' and '.join(ways)}. `status` says what the webhook refuses.")
    return 0


async def _deploy(settings: Settings, arguments: argparse.Namespace) -> int:
    from bridge.commands.steps import follow_steps

    try:
        async with running_bridge(settings) as session:
            return await follow_steps(session, f"/deploy/{arguments.name}")
    except NoBridgeError:
        if settings.provider == "local":
            say("Sprites on this machine need no deploy: `python -m bridge serve` starts each when it is wanted.")
            return 0
    from bridge.app import host_alone
    from bridge.commands.steps import Steps
    from bridge.providers.provider import HostError

    with Steps() as show:
        try:
            async with (
                host_alone(settings, acts_on=arguments.name) as alone,
                alone.audit.act(CLI, "deploy", arguments.name),
            ):
                await alone.host.deploy(arguments.name, show)
        except HostError as error:
            show("failed", str(error))
            return _FAILED
        show("done", f"{arguments.name} is deployed.")
    return 0


def _link_of(settings: Settings, token: str) -> str:
    url = settings.public_url or data_folder.last_address(settings.run) or f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
    return login_link(url, token)


_BROKEN = 1


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="a day or a time, such as 2026-11-22 or 2026-11-22T08:30 (UTC where none is said)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_data(parser)
    parser.set_defaults(work=_audit)


async def _audit(settings: Settings, arguments: argparse.Namespace) -> int:
    since = _seconds(arguments.since)
    path = f"/audit?since={since!r}"
    found = await ask_or_act(settings, "GET", path, lambda acts: acts.audit.since(since), type_=AuditLog)
    if arguments.json:
        say(msgspec.json.encode(found.entries).decode())
    else:
        for entry in found.entries:
            at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
            say(f"{at}  {printable(entry.actor):<12}  {printable(told(entry))}")
        if not found.entries:
            say("Nothing yet." if arguments.since is None else "Nothing since then.")
        elif len(found.entries) == MOST_SHOWN:
            say(f"These are the newest {MOST_SHOWN}; --since shows from a time on.")
    if found.broken_at is not None:
        sys.stderr.write(f"bridge: line {found.broken_at} is not as it was written: somebody changed the audit log.\n")
        return _BROKEN
    return 0


def _seconds(text: str | None) -> float:
    """Return the time in Unix seconds; 0 for None."""
    if text is None:
        return 0.0
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise OperatorError(f"--since must be a day or a time such as 2026-11-22T08:30, not {text!r}.") from None


def add_move_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `move-database`."""
    parser.epilog = (
        "Stop the bridge first, and set BRIDGE_DATABASE_URL to a new database. All of it is moved or nothing. "
        "bridge.db stays as it is, and is not used while BRIDGE_DATABASE_URL is set."
    )
    add_data(parser)
    parser.set_defaults(work=_move)


async def _move(settings: Settings, _arguments: argparse.Namespace) -> int:
    if not isinstance(settings.database, str):
        raise OperatorError(
            "BRIDGE_DATABASE_URL is not set: it says where to, such as postgresql://USER:PASSWORD@HOST/DB."
        )
    path = settings.database_file
    if not path.is_file():
        raise OperatorError(f"There is no {path}: nothing is to be moved. Another folder is named by --data.")

    def move(tx: Transaction) -> dict[str, int]:
        counts = copy(tx, path)
        continue_numbers(tx)
        return counts

    with data_folder.owned(settings):
        # Opening an old file migrates it to the newest version.
        async with open_database(path), open_database(settings.database) as target:
            counts = await target.write(move)
            await Audit(target).note(CLI, "move-database", "all", outcome=DONE)
    moved = ", ".join(f"{count} in {table}" for table, count in counts.items() if count)
    say(f"Moved, rows: {moved or 'none'}.", f"{path} is as it was, and is not used while BRIDGE_DATABASE_URL is set.")
    if settings.store.is_dir():
        say(
            f"What {settings.store} keeps of agents is not moved: each is stored anew when it is next connected. Keep "
            "that folder, and its key, until `python -m bridge status` says `all` for everybody."
        )
    return 0
