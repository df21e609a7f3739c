"""The bridge's command line: `python -m bridge COMMAND`."""

import argparse
import asyncio
import importlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bridge.errors import BAD_USAGE, INTERRUPTED

Run = Callable[[argparse.Namespace], int]
#: Adds the arguments of a command and returns the function that runs it.
Fill = Callable[[argparse.ArgumentParser], Run]


def main(
    arguments: Sequence[str] | None = None,
    *,
    program: str = "python -m bridge",
    names: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run one command and return its exit status. `program` and `names` (of commands) replace the usual names."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Connects people to their sprites.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for name, summary, fill in _COMMANDS:
        commands.add_parser(names.get(name, name), help=summary).fill = fill
    given = sys.argv[1:] if arguments is None else list(arguments)
    is_help = {"-h", "--help"} & set(given)
    if is_help:
        parser.epilog = _variables()
    if given[:1] in (["serve"], ["run"], ["chat"]) and sys.stderr.isatty() and not is_help:
        # The very first start compiles every module, which takes seconds.
        sys.stderr.write(f"{program}: starting; the first time takes a few seconds\n")
    try:
        chosen = parser.parse_args(given)
        run: Run = chosen.run
        return run(chosen)
    except KeyboardInterrupt:
        return INTERRUPTED


def _variables() -> str:
    from bridge.config import OidcSettings, Settings
    from sprite.common.settings import epilog

    return epilog(Settings, OidcSettings)


class _Parser(argparse.ArgumentParser):
    """Argument parser of one bridge command. Imports the command's module only when that command is chosen."""

    fill: Fill | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the command's arguments on the first call, then parse."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            self.set_defaults(run=fill(self), program=self.prog)
        return super().parse_known_args(args, namespace)


def _command(module: str, add_arguments: str | None = "add_arguments", *, runs_in: str | None = None) -> Fill:
    """Return a function that calls a module's `add_arguments` and returns its `run`, or that of `runs_in`."""

    def fill(parser: argparse.ArgumentParser) -> Run:
        if add_arguments is not None:
            getattr(importlib.import_module(module), add_arguments)(parser)
        run: Run = importlib.import_module(runs_in or module).run
        return run

    return fill


def _operating(module: str, add_arguments: str = "add_arguments") -> Fill:
    return _command(f"bridge.commands.{module}", add_arguments, runs_in="bridge.commands.operate")


def _offline_model(parser: argparse.ArgumentParser) -> Run:
    from sprite.common.settings import port

    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=port, default=0, help="port to listen on; 0 (the default) picks a free one")
    return _model


#: In the order of `--help`: name, summary, and the function that adds the arguments.
_COMMANDS: tuple[tuple[str, str, Fill], ...] = (
    (
        "serve",
        "run the bridge: log people in, connect them to their sprites, forward model calls",
        _command("bridge.commands.serve"),
    ),
    ("chat", "chat with your agent in this terminal", _command("bridge.terminal")),
    ("acp", "connect an editor to your agent; the editor starts this command", _command("bridge.acp")),
    ("deploy", "create or update a sprite, and show each step", _operating("operate", "add_deploy_arguments")),
    ("export", "write a person's agent with all its data to one file", _operating("archive", "add_export_arguments")),
    ("store", "replicas of agents: list, verify, accept, delete", _operating("store")),
    ("restore", "restore a lost agent from its replica", _operating("archive", "add_restore_arguments")),
    (
        "status",
        "every sprite: state, version, last seen, next due, spend",
        _operating("operate", "add_status_arguments"),
    ),
    ("users", "people, login links and tokens", _operating("operate", "add_users_arguments")),
    ("connections", "MCP servers that an agent may use: add, list, pin, remove", _operating("connections")),
    (
        "audit",
        "audit log: what operators did, here and on the operators' page",
        _operating("operate", "add_audit_arguments"),
    ),
    ("notify", "notifications: show the webhook's key", _operating("operate", "add_notify_arguments")),
    (
        "update",
        "install the newest version with the tool that installed this one",
        _command("bridge.commands.update", None),
    ),
    ("model", "run only the built-in demo model", _offline_model),
)


def _model(chosen: argparse.Namespace) -> int:
    from bridge.fake_model.model import OfflineModel

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with OfflineModel(chosen.host, chosen.port) as model:
            sys.stdout.write(f"offline model listening on {model.url}\n")
            sys.stdout.flush()
            await stop.wait()

    try:
        asyncio.run(serve())
    except OSError as error:
        sys.stderr.write(f"{chosen.program}: cannot listen on {chosen.host}:{chosen.port}: {error}\n")
        return BAD_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
