"""`python -m bridge users identities|link-identity|unlink-identity|remove-passkey`: login methods of people."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from bridge.admin import control
from bridge.admin.audit import CLI
from bridge.admin.control import ControlError
from bridge.admin.operator_actions import WaysIn
from bridge.commands.reach import add_data, bridge_or_acts, day, say
from bridge.config import Settings
from bridge.providers.provider import printable

if TYPE_CHECKING:
    # argparse names this type only for type checkers.
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001


def add_commands(commands: Commands) -> None:
    """Add the commands to `users`."""
    listing = commands.add_parser("identities", help="who a person is at the OpenID provider, and their passkeys")
    _add_name(listing, "somebody here")
    listing.add_argument("--json", action="store_true", help="for programs")
    listing.set_defaults(work=_list)
    link = commands.add_parser(
        "link-identity", help="says who somebody at the OpenID provider is here; whoever they were before is left"
    )
    _add_name(link, "somebody who may come in")
    _add_subject(link, "their `sub` at the provider; `audit` shows it", "default: BRIDGE_OIDC_ISSUER")
    link.set_defaults(work=_link)
    unlink = commands.add_parser(
        "unlink-identity",
        help="takes an identity at the OpenID provider off a person, whose browsers are logged out",
        epilog="Whoever logs in by it from then on is somebody new here. `users revoke` keeps a person out.",
    )
    _add_name(unlink, "whose it is no more")
    _add_subject(unlink, "their `sub` at the provider, as `users identities` lists it", "where it is at several")
    unlink.set_defaults(work=_unlink)
    passkey = commands.add_parser("remove-passkey", help="ends a passkey of a person, whose browsers are logged out")
    _add_name(passkey, "whose it is")
    passkey.add_argument("passkey", metavar="PASSKEY", help="its name or its id, as `users identities` lists them")
    passkey.set_defaults(work=_remove_passkey)


def _add_name(parser: argparse.ArgumentParser, whose: str) -> None:
    parser.add_argument("name", metavar="NAME", help=whose)
    add_data(parser)


def _add_subject(parser: argparse.ArgumentParser, subject: str, issuer: str) -> None:
    parser.add_argument("subject", metavar="SUBJECT", help=subject)
    parser.add_argument("--issuer", metavar="URL", help=issuer)


async def _list(settings: Settings, arguments: argparse.Namespace) -> int:
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            path = f"/users/{quote(arguments.name, safe='')}/identities"
            ways = msgspec.convert(await control.ask(session, "GET", path), WaysIn)
        else:
            ways = await acts.ways_in(arguments.name)
    if arguments.json:
        say(msgspec.json.encode(ways).decode())
        return 0
    for identity in ways.identities:
        say(f"identity  {printable(identity.subject)} at {identity.issuer}, since {day(identity.created_at)}")
    for passkey in ways.passkeys:
        used = "never used" if passkey.used_at is None else f"last used {day(passkey.used_at)}"
        say(f"passkey   {passkey.id}  {printable(passkey.label)}, since {day(passkey.created_at)}, {used}")
    if not ways.identities and not ways.passkeys:
        say(f"None: {arguments.name} comes in by login links and tokens.")
    return 0


async def _link(settings: Settings, arguments: argparse.Namespace) -> int:
    issuer = arguments.issuer or (settings.oidc.issuer if settings.oidc is not None else None)
    if issuer is None:
        raise ControlError("Which provider? Give --issuer, or set BRIDGE_OIDC_ISSUER as for `serve`.")
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            body = {"issuer": issuer, "subject": arguments.subject}
            before = (await control.ask(session, "PUT", f"/users/{arguments.name}/identity", body))["before"]
        else:
            before = await acts.link_identity(CLI, arguments.name, issuer, arguments.subject)
    moved = "" if before in {None, arguments.name} else f" They were {before} until now."
    say(f"Whoever is {arguments.subject} at {issuer} is {arguments.name} here.{moved}")
    return 0


async def _unlink(settings: Settings, arguments: argparse.Namespace) -> int:
    name, subject = arguments.name, arguments.subject
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            path = f"/users/{quote(name, safe='')}/identities/{quote(subject, safe='')}"
            query = "" if arguments.issuer is None else f"?issuer={quote(arguments.issuer, safe='')}"
            issuer = (await control.ask(session, "DELETE", path + query))["issuer"]
        else:
            issuer = await acts.unlink_identity(CLI, name, subject, arguments.issuer)
    say(
        f"Whoever is {printable(subject)} at {issuer} is not {name} here any more; {name}'s browsers were logged out.",
        f"At their next login they are somebody new. `users revoke {name}` shuts {name} out; `users link-identity` "
        "says who they are instead.",
    )
    return 0


async def _remove_passkey(settings: Settings, arguments: argparse.Namespace) -> int:
    name = arguments.name
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            path = f"/users/{quote(name, safe='')}/passkeys/{quote(arguments.passkey, safe='')}"
            label = (await control.ask(session, "DELETE", path))["label"]
        else:
            label = await acts.remove_passkey(CLI, name, arguments.passkey)
    say(f"The passkey {printable(label)!r} of {name} opens nothing any more; {name}'s browsers were logged out.")
    return 0
