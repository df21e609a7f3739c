"""`python -m bridge chat`: talk to a sprite from a terminal, or from a pipe.

Here are only its arguments and its entry; the libraries that draw are imported when a conversation begins.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from bridge.sprite_link import Endpoint

_DEFAULT_WORKSPACE = Path("data/workspaces/local")
_BAD_USAGE = 2
_INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `chat`."""
    parser.add_argument(
        "--workspace",
        type=Path,
        default=_DEFAULT_WORKSPACE,
        metavar="DIR",
        help=f"the sprite's workspace on this machine (default: {_DEFAULT_WORKSPACE})",
    )
    parser.add_argument("--connect", metavar="HOST:PORT", help="talk to a sprite that runs there instead")
    parser.add_argument("--token", help="its token, with --connect (default: SPRITE_TOKEN, or the workspace's own)")
    parser.add_argument("--permissions", choices=("ask", "bypass"), help="whether the agent asks before it acts")


def run(arguments: argparse.Namespace) -> int:
    """Hold a conversation; the exit status."""
    try:
        connect = _endpoint(arguments.connect, arguments.token, arguments.workspace)
    except ValueError as error:
        sys.stderr.write(f"bridge chat: {error}\n")
        return _BAD_USAGE
    try:
        return asyncio.run(chat(arguments.workspace, connect=connect, permissions=arguments.permissions))
    except KeyboardInterrupt:
        return _INTERRUPTED


async def chat(workspace: Path, *, connect: Endpoint | None = None, permissions: str | None = None) -> int:
    """Hold a conversation with the sprite of a workspace (started when missing), or with one elsewhere."""
    from bridge.chat.client import Options, hold

    return await hold(Options(workspace, connect, permissions))


def _endpoint(address: str | None, token: str | None, workspace: Path) -> Endpoint | None:
    if address is None:
        return None
    from bridge.sprite_link import Endpoint

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"--connect takes HOST:PORT, not {address!r}")
    return Endpoint(host.strip("[]"), int(port), token or _known_token(workspace))


def _known_token(workspace: Path) -> str:
    if token := os.environ.get("SPRITE_TOKEN"):
        return token
    path = workspace / ".os" / "run" / "token"
    try:
        return path.read_text().strip()
    except OSError:
        raise ValueError(f"--connect needs --token (there is no SPRITE_TOKEN and no {path})") from None
