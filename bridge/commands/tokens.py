"""`python -m bridge users token|tokens|revoke-token`: people's tokens for programs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from bridge.admin import control
from bridge.admin.audit import CLI
from bridge.admin.operator_api import AskedToken, MadeToken
from bridge.auth.tokens import DEFAULT_SCOPES, MEANING, SCOPES, Token
from bridge.commands.reach import add_data, bridge_or_acts, day, say
from bridge.config import Settings

if TYPE_CHECKING:
    # argparse names this type only for type checkers.
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

Work = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]


class _Tokens(msgspec.Struct):
    tokens: list[Token]


def add_commands(commands: Commands) -> None:
    """Add the commands to `users`."""
    scopes = "".join(f"  {scope:<13}{meaning}\n" for scope, meaning in MEANING.items())
    make = commands.add_parser(
        "token",
        help="a new token for a program, which opens only what its scopes name",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"scopes:\n{scopes}\nThe token is the last line on stdout, and is not shown again.",
    )
    _add_name(make)
    make.add_argument(
        "--scope",
        action="append",
        choices=SCOPES,
        metavar="SCOPE",
        help=f"{', '.join(SCOPES)}; may be given more than once (default: {', '.join(DEFAULT_SCOPES)})",
    )
    make.add_argument("--full", action="store_true", help="no scopes: opens everything that is the person's")
    make.add_argument("--name", dest="label", metavar="LABEL", help="by which it is listed and revoked")
    make.set_defaults(work=_make)
    listing = commands.add_parser("tokens", help="a person's tokens: what each opens, and when it was used last")
    _add_name(listing)
    listing.add_argument("--json", action="store_true", help="for programs")
    listing.set_defaults(work=_list)
    revoke = commands.add_parser("revoke-token", help="ends one token, and at once whatever goes on with it")
    _add_name(revoke)
    revoke.add_argument("label", metavar="LABEL", help="the token's name, as `users tokens NAME` lists it")
    revoke.set_defaults(work=_revoke)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the person; `local` is whoever starts the bridge here")
    add_data(parser)


async def _make(settings: Settings, arguments: argparse.Namespace) -> int:
    if arguments.full and arguments.scope:
        raise control.ControlError("A full token has no scopes: give --full or --scope.")
    asked = AskedToken(arguments.label, None if arguments.full else arguments.scope or list(DEFAULT_SCOPES))
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            path = f"/users/{quote(arguments.name, safe='')}/tokens"
            made = msgspec.convert(await control.ask(session, "POST", path, msgspec.to_builtins(asked)), MadeToken)
        else:
            secret, token = await acts.make_token(CLI, arguments.name, asked.label, asked.scopes)
            made = MadeToken(token, secret)
    say(
        f"A token of {arguments.name}, called {made.token.label!r}. {_opens(made.token)}",
        f"It is not shown again. `users revoke-token {arguments.name} {_quoted(made.token.label)}` ends it.",
        made.secret,
    )
    return 0


async def _list(settings: Settings, arguments: argparse.Namespace) -> int:
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            path = f"/users/{quote(arguments.name, safe='')}/tokens"
            tokens = msgspec.convert(await control.ask(session, "GET", path), _Tokens).tokens
        else:
            tokens = await acts.tokens_of(arguments.name)
    if arguments.json:
        say(msgspec.json.encode(tokens).decode())
        return 0
    for token in tokens:
        used = "never used" if token.used_at is None else f"last used {day(token.used_at)}"
        say(f"{token.label:<20} since {day(token.created_at)}  {used:<20}  {_shown(token)}")
    if not tokens:
        say(f"None yet. `python -m bridge users token {arguments.name}` makes one.")
    return 0


async def _revoke(settings: Settings, arguments: argparse.Namespace) -> int:
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            path = f"/users/{quote(arguments.name, safe='')}/tokens/{quote(arguments.label, safe='')}"
            await control.ask(session, "DELETE", path)
        else:
            await acts.revoke_token(CLI, arguments.name, arguments.label)
    say(f"The token {arguments.label!r} of {arguments.name} opens nothing any more.")
    return 0


def _opens(token: Token) -> str:
    if token.scopes is None:
        return "It is full: it opens whatever is theirs."
    return f"Its scopes: {', '.join(token.scopes)}."


def _shown(token: Token) -> str:
    return "everything" if token.scopes is None else " ".join(token.scopes)


def _quoted(label: str) -> str:
    return f'"{label}"' if " " in label else label
