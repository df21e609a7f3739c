"""A person's changes to memory from a terminal.

`memory forget`, `restore`, `accept`, `reject`, `confirm`, `retire` and `retry`.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import msgspec

from sprite.agent.processes import end_orphans, end_programs
from sprite.backup.replicator import Shipping
from sprite.cli.output import say, say_json
from sprite.config import Settings
from sprite.errors import PeerError, WorkspaceLockedError
from sprite.forget.forget import MANY_TURNS, NOT_CONFIRMED, Forgetter
from sprite.forget.plan import Target
from sprite.memory.answers import Op
from sprite.memory.files import template
from sprite.owner import ask_running, owned
from sprite.protocol.memory import (
    AcceptRequest,
    AcceptResult,
    EditRequest,
    EditResult,
    FileRequest,
    FileResult,
    ForgetRequest,
    ForgetResult,
    LearningRequest,
    LearningResult,
    RejectRequest,
    RejectResult,
    RetryRequest,
    RetryResult,
)
from sprite.protocol.shapes import Forgotten
from sprite.search.meaning.meaning import forget_vectors
from sprite.search.view import known_file

EXIT_DECLINED = 1


async def forget(settings: Settings, arguments: argparse.Namespace) -> int:
    """Show what would be forgotten, then forget it permanently; exit code 1 if the person declines.

    Confirmation requires a terminal; anywhere else `--yes` is required, whatever is on stdin.
    """
    target = Target(arguments.text, arguments.turn, arguments.session, arguments.learning)
    preview = await _forget(settings, target, preview=True, sure=False)
    if not arguments.json:
        _say_preview(preview)
    many = len(preview.turns) > MANY_TURNS
    if many and not arguments.yes:
        raise PeerError(f"That is more than {MANY_TURNS} turns. If you are sure, say so: --yes", code="too_much")
    if not arguments.yes and not sys.stdin.isatty():
        raise PeerError("Nothing was forgotten: without a terminal to ask at, it takes --yes.", code="not_sure")
    if not arguments.yes and not _agreed():
        say("Nothing was forgotten.")
        return EXIT_DECLINED
    done = await _forget(settings, target, preview=False, sure=arguments.yes)
    if arguments.json:
        say_json(msgspec.to_builtins(done))
    else:
        _say_done(done)
    return 0


def _say_preview(preview: Forgotten) -> None:
    say(f"Forgetting this by its {preview.by} takes away for good: {_words(preview)}")
    for place in preview.gone:
        say(f"  {place.where}: {place.text}")
    if preview.more:
        say(f"  and {preview.more} more")
    for name in preview.remains:
        say(f"{name} says it, too, and stays as it is: it is deployed, not learned. Change it there.")


def _say_done(done: Forgotten) -> None:
    say("Forgotten. What is left is a tombstone that says when, and how much; not what.")
    if not done.still:
        say("All stores were searched: gone.")
    for place in done.still:
        say(f"Still in {place.where}: {place.text}")


def _agreed() -> bool:
    # On stderr, because stdout may be redirected. Ctrl-D reads as an empty line, which means no.
    sys.stderr.write("Forget it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


async def _forget(settings: Settings, target: Target, *, preview: bool, sure: bool) -> Forgotten:
    try:
        async with owned(settings) as own:
            # An agent that outlived its sprite, or its programs, would continue to write the forgotten text.
            end_orphans(settings.cli_state)
            await end_programs(settings.cli_state)
            shipping = Shipping(settings, own.transcript, own.workspace, own.memory)
            forgetter = Forgetter(
                settings,
                own.transcript,
                own.memory,
                own.workspace,
                own.projection,
                shipping.forgotten,
                partial(forget_vectors, settings),
            )
            await forgetter.finish_interrupted()
            if preview:
                return await forgetter.preview(target)
            forgotten = await forgetter.forget(target, sure=sure)
            if await own.workspace.ship_state.tombstones():
                # Replication needs a running sprite.
                forgotten.still.append(NOT_CONFIRMED)
            return forgotten
    except WorkspaceLockedError:
        request = ForgetRequest(
            text=target.text,
            turn=target.turn,
            session=target.session,
            learning=target.learning,
            preview=preview,
            yes=sure,
        )
        return (await ask_running(settings, request, ForgetResult)).forgotten


def _words(summary: Forgotten) -> str:
    counts = {
        "turn": len(summary.turns),
        "learning": summary.learnings,
        "curated line": summary.lines,
        "card": summary.cards,
    }
    words = ", ".join(f"{number} {name}{'s' if number > 1 else ''}" for name, number in counts.items() if number)
    return f"{words}." if words else "what is listed here."


async def accept(settings: Settings, arguments: argparse.Namespace) -> int:
    """Accept a file's content on disk that changed while the agent worked, as the person's own edit."""
    try:
        async with owned(settings) as own:
            await own.projection.accept(arguments.name)
    except WorkspaceLockedError:
        await ask_running(settings, AcceptRequest(arguments.name), AcceptResult)
    say(f"{arguments.name} is now as it stands on disk; what memory had before is kept as a version.")
    return 0


async def reject(settings: Settings, arguments: argparse.Namespace) -> int:
    """Reject such a change: the file on disk gets memory's content again."""
    try:
        async with owned(settings) as own:
            await own.projection.reject(arguments.name)
    except WorkspaceLockedError:
        await ask_running(settings, RejectRequest(arguments.name), RejectResult)
    say(f"{arguments.name} is again as memory has it; what stood on disk is kept in the log.")
    return 0


async def restore(settings: Settings, arguments: argparse.Namespace) -> int:
    """Make an earlier version of a curated file the newest; version 0 is the file as shipped."""
    try:
        async with owned(settings) as own:
            if arguments.version == 0:
                content = template(known_file(arguments.name))
            else:
                found = await own.memory.version(arguments.name, arguments.version)
                if found is None:
                    raise PeerError(f"{arguments.name} has no version {arguments.version}.", code="not_found")
                content = found.content
            await own.projection.edit(arguments.name, content)
    except WorkspaceLockedError:
        if arguments.version == 0:
            content = template(known_file(arguments.name))
        else:
            asked = FileRequest(arguments.name, arguments.version)
            content = (await ask_running(settings, asked, FileResult)).content
        await ask_running(settings, EditRequest(arguments.name, content), EditResult)
    say(f"{arguments.name} is as it was in version {arguments.version}; the versions in between are kept.")
    return 0


async def answer(settings: Settings, arguments: argparse.Namespace) -> int:
    """Confirm or retire an unverified learning."""
    op: Op = "confirm" if arguments.memory_command == "confirm" else "retire"
    try:
        async with owned(settings) as own:
            await own.projection.answer(arguments.learning, op)
    except WorkspaceLockedError:
        await ask_running(settings, LearningRequest(arguments.learning, op), LearningResult)
    words = "is now your own word" if op == "confirm" else "no longer holds; it stays in the log"
    say(f"Learning {arguments.learning} {words}.")
    return 0


async def retry(settings: Settings, arguments: argparse.Namespace) -> int:
    """Queue a quarantined turn for curation: now by the running sprite, or else by the next one."""
    try:
        async with owned(settings) as own:
            await own.projection.retry(arguments.turn)
            when = "it is curated when the sprite runs next"
    except WorkspaceLockedError:
        await ask_running(settings, RetryRequest(arguments.turn), RetryResult)
        when = "it is being curated now"
    say(f"Turn {arguments.turn} waits again: {when}.")
    return 0
