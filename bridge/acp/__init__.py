"""`python -m bridge acp`: a person's agent in their editor, over the Agent Client Protocol on stdin and stdout.

This module has only the arguments and the entry point. The protocol's library is imported once an editor has connected.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.config import LOCAL_PERSON, from_environment
from bridge.errors import BAD_USAGE, INTERRUPTED, OperatorError
from bridge.terminal import address_of, person_token

if TYPE_CHECKING:
    import argparse

    from bridge.terminal.endpoints import LocalEndpoint, RemoteEndpoint

DESCRIPTION = """\
Your agent in an editor that speaks the Agent Client Protocol: Zed, JetBrains IDEs, Neovim and others. The editor starts
this and talks to it on stdin and stdout; docs/editors.md has what to write into its settings. It joins the bridge that
runs on this machine, or (with --url) one elsewhere; it starts none. The agent works on its own computer, not in the
editor's folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `acp`."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the bridge that runs on that data (default: SPRITE_DATA, else data/ in the checkout)",
    )
    parser.add_argument("--person", default=LOCAL_PERSON, metavar="NAME", help=f"as whom (default: {LOCAL_PERSON})")
    parser.add_argument("--url", metavar="URL", help="a bridge elsewhere instead, such as https://sprite.example.org")


def run(arguments: argparse.Namespace) -> int:
    """Serve an editor until it disconnects. Return the exit status."""
    try:
        endpoint = _endpoint(arguments)

        from bridge.acp.program import serve

        return asyncio.run(serve(endpoint))
    except OperatorError as error:
        sys.stderr.write(f"bridge acp: {error}\n")
        return BAD_USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


def _endpoint(arguments: argparse.Namespace) -> LocalEndpoint | RemoteEndpoint:
    from bridge.terminal.endpoints import LocalEndpoint, RemoteEndpoint

    if sys.stdin.isatty():
        raise OperatorError(
            "This is for an editor to start: docs/editors.md has its settings. `python -m bridge chat` talks to the "
            "agent from a terminal."
        )
    if arguments.url is not None:
        return RemoteEndpoint(address_of(arguments.url), person_token())
    return LocalEndpoint(from_environment({"data": arguments.data, "port": 0}), arguments.person)


__all__ = ["add_arguments", "run"]
