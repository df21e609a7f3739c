"""The conversation in a terminal or a pipe."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bridge.config import LOCAL_PERSON, from_environment
from bridge.errors import BAD_USAGE, OperatorError

if TYPE_CHECKING:
    import argparse

    from bridge.terminal.endpoints import LocalEndpoint, RemoteEndpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `chat`."""
    add_place(parser, "data folder of the bridge on this machine; if none runs, one is started for this conversation")
    parser.add_argument(
        "--permissions", choices=("ask", "bypass"), help="whether an agent that is started for this asks for permission"
    )
    parser.add_argument("--token", help="your token at that bridge, with --url (better: the variable SPRITE_TOKEN)")


def add_place(parser: argparse.ArgumentParser, data: str) -> None:
    """Add the options that choose a bridge and a person; `data` is the help of `--data`."""
    from pathlib import Path

    from bridge.providers.provider import person_name

    default = "(default: SPRITE_DATA, else data/ in the checkout)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"{data} {default}")
    whom = f"the person to connect as (default: {LOCAL_PERSON})"
    parser.add_argument("--person", type=person_name, default=LOCAL_PERSON, metavar="NAME", help=whom)
    parser.add_argument("--url", metavar="URL", help="address of another bridge, such as https://sprite.example.org")


def run(arguments: argparse.Namespace) -> int:
    """Run a conversation and return the exit status."""
    from bridge.terminal.client import hold

    try:
        return asyncio.run(hold(endpoint_of(arguments)))
    except OperatorError as error:
        sys.stderr.write(f"{arguments.program}: {error}\n")
        return BAD_USAGE


def endpoint_of(arguments: argparse.Namespace) -> LocalEndpoint | RemoteEndpoint:
    """Return the chosen bridge, not yet connected. Raises OperatorError if the arguments are invalid."""
    from bridge.terminal.endpoints import LocalEndpoint, RemoteEndpoint

    given = vars(arguments)
    if arguments.url is None:
        return LocalEndpoint(from_environment({**given, "port": 0}), arguments.person)
    parts = urlsplit(arguments.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise OperatorError(f"--url takes an address such as https://sprite.example.org, not {arguments.url!r}.")
    token = given.get("token") or from_environment().person_token
    if token is None or not token.isascii() or not token.isprintable():
        raise OperatorError("--url needs your token at that bridge: set SPRITE_TOKEN. `users add NAME` printed it.")
    return RemoteEndpoint(f"{parts.scheme}://{parts.netloc}", token)


__all__ = ["add_arguments", "add_place", "drawing", "endpoint_of", "endpoints", "run"]
