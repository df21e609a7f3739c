"""The conversation in a terminal or a pipe."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bridge.config import LOCAL_PERSON, from_environment
from bridge.errors import BAD_USAGE, INTERRUPTED, OperatorError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `chat`."""
    from pathlib import Path

    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the bridge on this machine with that data, started for as long as this lasts when none runs "
        "(default: SPRITE_DATA, else data/ in the checkout)",
    )
    parser.add_argument("--person", default=LOCAL_PERSON, metavar="NAME", help=f"as whom (default: {LOCAL_PERSON})")
    parser.add_argument("--permissions", choices=("ask", "bypass"), help="whether an agent started now asks first")
    parser.add_argument("--url", metavar="URL", help="a bridge elsewhere instead, such as https://sprite.example.org")
    parser.add_argument("--token", help="your token there, with --url (better: the variable BRIDGE_TOKEN)")


def run(arguments: argparse.Namespace) -> int:
    """Run a conversation and return the exit status."""
    from bridge.terminal.client import Elsewhere, Here, hold

    try:
        if arguments.url is not None:
            place: Elsewhere | Here = Elsewhere(address_of(arguments.url), person_token(arguments.token))
        else:
            settings = from_environment({**vars(arguments), "port": 0})
            place = Here(settings, arguments.person)
        return asyncio.run(hold(place))
    except OperatorError as error:
        sys.stderr.write(f"bridge chat: {error}\n")
        return BAD_USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


def address_of(text: str) -> str:
    """Return the bridge's address from --url. Raises OperatorError if it is invalid."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise OperatorError(f"--url takes an address such as https://sprite.example.org, not {text!r}.")
    return f"{parts.scheme}://{parts.netloc}"


def person_token(given: str | None = None) -> str:
    """Return the person's token for --url. Raises OperatorError if there is none."""
    token = given or from_environment().person_token
    if token is None or not token.isascii() or not token.isprintable():
        raise OperatorError("--url needs your token there: set BRIDGE_TOKEN. `users add NAME` printed it.")
    return token


__all__ = ["add_arguments", "address_of", "drawing", "endpoints", "person_token", "run"]
