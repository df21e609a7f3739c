"""The command line: `python -m sprite serve|status|memory|rebuild|doctor`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from sprite.config import from_environment
from sprite.errors import SpriteError

EXIT_OPERATOR = 2


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    _set_up_logging()
    try:
        return int(arguments.run(arguments))
    except SpriteError as error:
        print(f"sprite: {error}", file=sys.stderr)
        return EXIT_OPERATOR
    except KeyboardInterrupt:
        return 130


def _set_up_logging() -> None:
    """Our own words from INFO up, other libraries' from WARNING up; stderr, since stdout is for programs."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("sprite").setLevel(logging.INFO)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sprite", description="An agent that lives on its own computer and never forgets."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--workspace",
        type=Path,
        default=Path("/workspace"),
        metavar="DIR",
        help="the agent's folder (default: /workspace); everything of Sprite's is below its .os/",
    )

    serve = commands.add_parser("serve", parents=[common], help="run the agent's server")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, default=8765, help="port to listen on, 0 for a free one (default: 8765)")
    serve.add_argument(
        "--permissions",
        choices=["ask", "bypass"],
        help="whether tool calls are asked for (default: bypass inside a VM, ask anywhere else)",
    )
    serve.set_defaults(run=_serve)
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    from sprite.server import install_signals, serve

    settings = from_environment(
        arguments.workspace, host=arguments.host, port=arguments.port, permissions=arguments.permissions
    )

    async def run() -> None:
        stop = asyncio.Event()
        install_signals(stop)
        await serve(settings, lambda host, port: print(f"sprite listening on {host}:{port}", flush=True), stop)

    asyncio.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
