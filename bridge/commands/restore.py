"""`python -m bridge restore NAME`: rebuild a lost agent from its replica on this bridge.

Asks the running bridge, or works on its data folder if none runs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.admin.audit import CLI
from bridge.admin.control import ControlError, NoBridgeError
from bridge.commands.export import Wanted, add_leave_out_damaged, receive
from bridge.commands.reach import add_as_of, add_data, moment, running_bridge
from bridge.commands.steps import Steps, follow_steps
from bridge.providers.child import passed_on, program_output
from bridge.providers.provider import HostError
from bridge.replicas.restore import SAY_OVER, Asked
from bridge.replicas.store import StoreError
from sprite.common.files import whole_file

if TYPE_CHECKING:
    from bridge.config import Settings

_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `restore`."""
    parser.epilog = (
        "Where the agent is still there, nothing is changed without --over or --new-machine. What --over replaces is "
        "put aside, never deleted. Ended in the middle, the same command makes it whole."
    )
    parser.add_argument("name", metavar="NAME", help="the person whose agent it is; your own here is called local")
    add_as_of(parser)
    parser.add_argument(
        "--over", action="store_true", help="also where the agent is there: what it has beyond that is put aside"
    )
    parser.add_argument(
        "--new-machine",
        action="store_true",
        help="on a new VM: the one that is there, which does not answer any more, is DESTROYED with all that is on it",
    )
    parser.add_argument(
        "--to", metavar="FOLDER", type=Path, help="into an empty folder of this machine instead, as a workspace"
    )
    add_leave_out_damaged(parser)
    parser.add_argument("--yes", action="store_true", help="--new-machine does not ask")
    parser.add_argument(
        "--provider", choices=("local", "sprites"), default="local", help="where it lives, when no bridge runs here"
    )
    add_data(parser)
    parser.set_defaults(work=_restore)


async def _restore(settings: Settings, arguments: argparse.Namespace) -> int:
    name = arguments.name
    as_of = None if arguments.as_of is None else moment(arguments.as_of, time.time())
    if arguments.to is not None:
        into = Wanted(name, "store", as_of, into="a folder", leave_out_damaged=arguments.leave_out_damaged)
        return await _restore_to(settings, arguments.to.resolve(), into)
    anew = arguments.new_machine
    if anew and not arguments.yes:
        await asyncio.to_thread(_ask, name)
    try:
        async with running_bridge(settings) as session:
            wanted = {"as_of": None if as_of is None else str(as_of), "over": "1" if arguments.over or anew else None}
            wanted["anew"] = "1" if anew else None
            wanted["leave_out_damaged"] = "1" if arguments.leave_out_damaged else None
            query = {key: text for key, text in wanted.items() if text is not None}
            return await follow_steps(session, f"/restore/{name}", query)
    except NoBridgeError:
        pass
    from bridge.app import host_alone

    with Steps() as show:
        try:
            async with host_alone(settings, acts_on=arguments.name) as alone:
                asked = Asked(
                    CLI,
                    as_of,
                    over=arguments.over or anew,
                    anew=anew,
                    advice=SAY_OVER,
                    leave_out_damaged=arguments.leave_out_damaged,
                )
                show("done", (await alone.restorer.restore(name, asked, show)).words)
        except (HostError, StoreError) as error:
            show("failed", str(error))
            return _FAILED
    return 0


async def _restore_to(settings: Settings, folder: Path, wanted: Wanted) -> int:
    """Import the replica into a folder as a workspace without a sprite.

    `python -m sprite serve` starts an agent in it.
    """
    with Steps() as show, tempfile.TemporaryDirectory(prefix="restore-") as scratch:
        archive = Path(scratch, f"{wanted.name}.zip")
        try:
            with whole_file(archive, force=False, error=ControlError) as stream:
                received = await receive(settings, wanted, stream, show)
            show("updating", f"Making a workspace of it in {folder}.")
            command = ["import", str(archive), "--workspace", str(folder)]
            async for _ in program_output(command, passed_on(settings.environment)):
                pass
        except (HostError, StoreError, OSError) as error:
            show("failed", str(error))
            return _FAILED
        done = f"What is kept of {wanted.name}'s agent is a workspace in {folder}."
        show("done", f"{done} {received.left_out}".rstrip())
    return 0


def _ask(name: str) -> None:
    """Raise ControlError unless a person at a terminal types the name."""
    if not sys.stdin.isatty():
        raise ControlError("--new-machine destroys a VM: say --yes as well, where nobody can be asked.")
    sys.stderr.write(
        f"The VM of {name}'s agent is destroyed, with all that is on it. What this bridge keeps of it is put on a new "
        f"one.\nType {name} to go on: "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise ControlError("Nothing was done.")
