"""The bridge's command line: `python -m bridge COMMAND`. Each command is one function that adds itself."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import BAD_USAGE

if TYPE_CHECKING:
    # argparse names its own type only for checkers.
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="bridge", description="Connects people to their sprites.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_serve, _add_chat, _add_acp, _add_operating, _add_model):
        add(commands)
    chosen = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = chosen.run
    return run(chosen)


def _add_serve(commands: "Commands") -> None:
    from bridge.commands import serve

    command = commands.add_parser("serve", help="let people in, reach their sprites, and answer for the model")
    serve.add_arguments(command)
    command.set_defaults(run=serve.run)


def _add_operating(commands: "Commands") -> None:
    from bridge.commands import audit, export, move_database, operate, restore, store

    for name, summary, add_arguments in (
        ("deploy", "bring a sprite to what it should be, with its steps", operate.add_deploy_arguments),
        ("export", "everything of a person's agent as one file", export.add_arguments),
        (
            "store",
            "the sealed copy of what agents know: list, verify, rotate its key, accept, delete",
            store.add_arguments,
        ),
        ("restore", "a lost agent, of what this bridge keeps of it", restore.add_arguments),
        ("status", "every sprite: state, version, last seen, next due, spend", operate.add_status_arguments),
        ("users", "who may come in", operate.add_users_arguments),
        ("audit", "what operators did, here and on the operator's page", audit.add_arguments),
        ("notify", "notifications: the webhook's key, and a test", operate.add_notify_arguments),
        ("move-database", "from bridge.db into the Postgres of BRIDGE_DATABASE_URL", move_database.add_arguments),
    ):
        command = commands.add_parser(name, help=summary)
        add_arguments(command)
        command.set_defaults(run=operate.run)


def _add_chat(commands: "Commands") -> None:
    from bridge import chat

    command = commands.add_parser("chat", help="talk to a sprite from this terminal")
    chat.add_arguments(command)
    command.set_defaults(run=chat.run)


def _add_acp(commands: "Commands") -> None:
    from bridge import acp

    command = commands.add_parser("acp", help="your agent in an editor, which starts this", description=acp.DESCRIPTION)
    acp.add_arguments(command)
    command.set_defaults(run=acp.run)


def _add_model(commands: "Commands") -> None:
    command = commands.add_parser("model", help="serve the built-in offline model alone")
    command.add_argument("--host", default="127.0.0.1")
    command.add_argument("--port", type=int, default=0, help="0 (the default) picks a free one")
    command.add_argument("--script", type=Path, help="a JSON file of scripted answers")
    command.set_defaults(run=_model)


def _model(chosen: argparse.Namespace) -> int:
    import msgspec

    from bridge.offline.model import OfflineModel
    from bridge.offline.script import Script

    try:
        script = Script.load(chosen.script) if chosen.script else Script()
    except (OSError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"bridge model: cannot use the script {chosen.script}: {error}\n")
        return BAD_USAGE

    async def serve() -> None:
        stop = _stop_on_signals()
        async with OfflineModel(chosen.host, chosen.port, script) as model:
            sys.stdout.write(f"offline model listening on {model.url}\n")
            sys.stdout.flush()
            await stop.wait()

    try:
        asyncio.run(serve())
    except OSError as error:
        sys.stderr.write(f"bridge model: cannot listen on {chosen.host}:{chosen.port}: {error}\n")
        return BAD_USAGE
    return 0


def _stop_on_signals() -> asyncio.Event:
    """Returns an event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


if __name__ == "__main__":
    sys.exit(main())
