"""`python -m bridge serve`: run a bridge until a signal ends it, and print its address."""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace

from bridge.app import Bridge, running
from bridge.config import OidcSettings, Settings, from_environment
from bridge.errors import BAD_USAGE, FAULT, OperatorError
from bridge.telemetry import logs
from sprite.common.orphans import adopting
from sprite.common.settings import add_flags, epilog
from sprite.common.tasks import TaskDiedError

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    add_flags(parser, Settings)
    parser.add_argument(
        "--metrics-open",
        action="store_true",
        help="show `/metrics` without a token to everybody who can connect to this port",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        f"{epilog(Settings, OidcSettings)}\n\n"
        "Agents on this machine also take their own settings, such as SPRITE_MODEL and SPRITE_SANDBOX:\n"
        "`python -m sprite --help` and docs/reference.md list them."
    )


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings from flags and the environment. OperatorError names an invalid one."""
    return replace(from_environment(vars(arguments)), metrics_open=arguments.metrics_open)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal and return the exit status."""
    try:
        settings = settings_of(arguments)
        logs.set_up(settings.log_file)
        asyncio.run(_serve(settings))
    except OperatorError as error:
        sys.stderr.write(f"{arguments.program}: {error}\n")
        return BAD_USAGE
    except TaskDiedError as error:
        sys.stderr.write(f"{arguments.program}: {error}\n")
        return FAULT
    return 0


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    end_on_signals(stop)
    async with adopting(), running(settings, stop.set) as bridge:
        log.info("listening on %s, sprites by provider %s", bridge.url, settings.provider)
        _greet(settings, bridge)
        # A collection of the modules' objects stalls the event loop for 30 ms.
        gc.freeze()
        await stop.wait()
        log.info("stopping")
        if sys.stderr.isatty():
            # Writing to a closed terminal fails.
            with suppress(OSError):
                sys.stderr.write(
                    "bridge: stopping; conversations are being stored (press Ctrl-C again to end at once)\n"
                )


def end_on_signals(stop: asyncio.Event) -> None:
    """End in order on the first SIGINT, SIGTERM or SIGHUP, and end the process at once on the second."""
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        if stop.is_set():
            # Local sprites notice that the bridge is gone, and end by themselves.
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup ignores the signal on purpose.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)


def _greet(settings: Settings, bridge: Bridge) -> None:
    lines = [f"bridge listening on {bridge.address}", f"Agents and their memory are kept in {settings.data}."]
    if settings.uses_offline_model:
        lines.append("The model is the built-in demo model, not Claude. Set ANTHROPIC_API_KEY for Claude.")
    if settings.own_access:
        lines.append("Your own Claude plan or cloud is used, for you alone; no daily budget applies.")
    if settings.database_url is not None and settings.cluster_secret is None:
        lines.append(
            "This bridge and others over this database cannot forward people to each other. If there are "
            "any, set BRIDGE_CLUSTER_SECRET to the same secret on each: openssl rand -hex 32"
        )
    if bridge.login_token is not None:
        lines.append("Open that address in your browser: it logs you in, once. Ctrl-C stops the bridge.")
    if sys.stderr.isatty():
        lines.append(f"What it does is logged in {settings.log_file}.")
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except BrokenPipeError:
        # A closed stdout is no reason to stop.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
