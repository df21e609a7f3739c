"""`python -m bridge acp`: a person's agent in their editor, over the Agent Client Protocol on stdin and stdout.

This module has only the arguments and the entry point. The protocol's library is imported once an editor has connected.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from bridge.errors import BAD_USAGE, OperatorError
from bridge.terminal import add_place, endpoint_of

if TYPE_CHECKING:
    import argparse

_DESCRIPTION = """\
Your agent in an editor that speaks the Agent Client Protocol: Zed, JetBrains IDEs, Neovim and others. The editor starts
this command and talks to it on stdin and stdout; docs/editors.md has the settings for each editor. The command connects
to the bridge that runs on this machine or, with --url, to another one; it starts none. The agent works on its own
computer, not in the editor's folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `acp`."""
    parser.description = _DESCRIPTION
    add_place(parser, "data folder of the bridge that runs on this machine")


def run(arguments: argparse.Namespace) -> int:
    """Serve an editor until it disconnects. Return the exit status."""
    if sys.stdin.isatty():
        sys.stderr.write(
            f"{arguments.program}: An editor starts this command; docs/editors.md has its settings. `chat` talks to "
            "the agent from a terminal.\n"
        )
        return BAD_USAGE
    try:
        endpoint = endpoint_of(arguments)

        from bridge.acp.program import serve

        return asyncio.run(serve(endpoint))
    except OperatorError as error:
        sys.stderr.write(f"{arguments.program}: {error}\n")
        return BAD_USAGE


__all__ = ["add_arguments", "run"]
