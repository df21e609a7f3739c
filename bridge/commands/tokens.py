"""`python -m bridge users token|tokens|revoke-token`: tokens for people's programs."""

from __future__ import annotations

import argparse
import shlex
from urllib.parse import quote

from bridge.admin.control import ControlError
from bridge.admin.operator_api import MadeToken
from bridge.auth.tokens import DEFAULT_SCOPES, MEANING, SCOPES, Token
from bridge.commands.reach import add_json, add_person, ask, day, say, say_json
from bridge.config import Settings

_WHO = "the person; `local` is the one who starts the bridge on this machine"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands for tokens to `users`."""
    scopes = "".join(f"  {scope:<13}{meaning}\n" for scope, meaning in MEANING.items())
    make = commands.add_parser(
        "token",
        help="makes a token for a program; its scopes limit what the program may do",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"scopes:\n{scopes}\nThe token is the last line on stdout, and is not shown again.",
    )
    add_person(make, _WHO)
    make.add_argument(
        "--scope",
        action="append",
        choices=SCOPES,
        metavar="SCOPE",
        help=f"{', '.join(SCOPES)}; may be given more than once (default: {', '.join(DEFAULT_SCOPES)})",
    )
    make.add_argument(
        "--full", action="store_true", help="no scopes: the program may do everything that the person may do"
    )
    make.add_argument("--name", dest="label", metavar="LABEL", help="name by which the token is listed and revoked")
    make.set_defaults(work=_make)
    listing = commands.add_parser("tokens", help="lists a person's tokens with their scopes and last use")
    add_person(listing, _WHO)
    add_json(listing)
    listing.set_defaults(work=_list_tokens)
    revoke = commands.add_parser("revoke-token", help="revokes a token and ends its requests at once")
    add_person(revoke, _WHO)
    revoke.add_argument("label", metavar="LABEL", help="the token's name, as `users tokens NAME` lists it")
    revoke.set_defaults(work=_revoke_token)


async def _make(settings: Settings, arguments: argparse.Namespace) -> int:
    if arguments.full and arguments.scope:
        raise ControlError("A full token has no scopes: give --full or --scope.")
    asked = {"label": arguments.label, "scopes": None if arguments.full else arguments.scope or list(DEFAULT_SCOPES)}
    path = f"/users/{arguments.name}/tokens"
    made = await ask(settings, "POST", path, asked, type_=MadeToken)
    label, scopes = made.token.label, made.token.scopes
    opens = "It may do everything that the person may do." if scopes is None else f"Its scopes: {', '.join(scopes)}."
    say(
        f"A token of {arguments.name}, called {label!r}. {opens}",
        f"It is not shown again. `users revoke-token {arguments.name} {shlex.quote(label)}` revokes it.",
        made.secret,
    )
    return 0


async def _list_tokens(settings: Settings, arguments: argparse.Namespace) -> int:
    path = f"/users/{arguments.name}/tokens"
    tokens = (await ask(settings, "GET", path, type_=dict[str, list[Token]]))["tokens"]
    if arguments.json:
        return say_json(tokens)
    for token in tokens:
        used = "never used" if token.used_at is None else f"last used {day(token.used_at)}"
        opens = "everything" if token.scopes is None else " ".join(token.scopes)
        say(f"{token.label:<20} since {day(token.created_at)}  {used:<20}  {opens}")
    if not tokens:
        say(f"None yet. `python -m bridge users token {arguments.name}` makes one.")
    return 0


async def _revoke_token(settings: Settings, arguments: argparse.Namespace) -> int:
    path = f"/users/{arguments.name}/tokens/{quote(arguments.label, safe='')}"
    await ask(settings, "DELETE", path)
    say(f"The token {arguments.label!r} of {arguments.name} is revoked.")
    return 0
