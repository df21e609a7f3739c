"""A person's changes to memory: `memory forget`, `restore`, `accept`, `reject`, `confirm`, `retire` and `retry`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Awaitable, Callable

from tqdm import tqdm

from sprite.agent.processes import end_orphans, end_programs
from sprite.backup.replicator import Shipping
from sprite.cli.memory import content_of
from sprite.cli.output import say, show
from sprite.config import Settings
from sprite.errors import PeerError, WorkspaceLockedError
from sprite.forget.forget import MANY_TURNS, Forgetter
from sprite.forget.plan import Target
from sprite.memory.projection import Projection
from sprite.owner import ask_running, open_stores, owned
from sprite.protocol import memory as wire
from sprite.protocol.shapes import Forgotten
from sprite.search.meaning.meaning import open_meaning

EXIT_DECLINED = 1
#: A shorter search shows no progress.
_QUICK_SECONDS = 0.5


async def forget(settings: Settings, arguments: argparse.Namespace) -> int:
    """Show what would be forgotten, then forget it permanently; exit code 1 if the person declines."""
    target = Target(arguments.text, arguments.turn, arguments.session, arguments.learning)
    preview = await _forget(settings, target, preview=True, sure=False)
    if not arguments.json:
        _say_preview(preview)
    if not arguments.yes:
        if len(preview.turns) > MANY_TURNS:
            raise PeerError(f"This would forget more than {MANY_TURNS} turns. Add --yes to confirm.", code="too_much")
        # A person has to confirm, so piped text does not count.
        if not sys.stdin.isatty():
            raise PeerError("Nothing was forgotten. Without a terminal, confirm with --yes.", code="not_sure")
        # On stderr, because stdout may be redirected. Ctrl-D reads as an empty line, which means no.
        sys.stderr.write("Forget it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            say("Nothing was forgotten.")
            return EXIT_DECLINED
    done = await _forget(settings, target, preview=False, sure=arguments.yes)
    lines = ["Forgotten. The log keeps only the time of this, and how much was removed."]
    lines += [f"Still in {place.where}: {place.text}" for place in done.still] or ["No store contains it any more."]
    return show(arguments, done, lines)


def _say_preview(preview: Forgotten) -> None:
    say(f"Forgetting this {preview.by} removes permanently: {_words(preview)}")
    for place in preview.gone:
        say(f"  {place.where}: {place.text}")
    if preview.more:
        say(f"  and {preview.more} more")
    for place in preview.still:
        say(f"Stays in {place.where}: {place.text}")


async def _forget(settings: Settings, target: Target, *, preview: bool, sure: bool) -> Forgotten:
    try:
        async with owned(settings) as own, open_meaning(settings, own.transcript) as meaning:
            # An agent that outlived its sprite, or its programs, would continue to write the forgotten text.
            end_orphans(settings.cli_state)
            await end_programs(settings.cli_state)
            bar = tqdm(bar_format="{desc} ... {percentage:3.0f} %", delay=_QUICK_SECONDS, leave=False, disable=None)
            forgetter = Forgetter(
                settings,
                own.transcript,
                own.memory,
                own.workspace,
                own.projection,
                (meaning, Shipping(settings, own.transcript, own.workspace)),
                bar.update,
            )
            await forgetter.finish_interrupted()
            turns, bar.total = await forgetter.steps(target, preview=preview)
            bar.set_description_str(f"Searching {turns:,} turns", refresh=False)
            with bar:
                if preview:
                    return await forgetter.preview(target)
                return await forgetter.search(await forgetter.forget(target, sure=sure))
    except WorkspaceLockedError:
        request = wire.ForgetRequest(**dataclasses.asdict(target), preview=preview, yes=sure)
        return (await ask_running(settings, request, wire.ForgetResult)).forgotten


def _words(summary: Forgotten) -> str:
    counts = {
        "text of {} turn{}": len(summary.turns),
        "{} learning{}": summary.learnings,
        "{} line{} of memory files": summary.lines,
        "{} card{}": summary.cards,
    }
    words = ", ".join(form.format(number, "s" if number > 1 else "") for form, number in counts.items() if number)
    return f"{words}." if words else "what is listed here."


async def _change(
    settings: Settings,
    request: wire.MemoryRequest,
    answer: type[wire.MemoryResult],
    change: Callable[[Projection], Awaitable[object]],
) -> bool:
    """Run `change` as the workspace's owner, or else send `request` to the running sprite. Return whether one runs."""
    try:
        async with owned(settings) as own:
            await change(own.projection)
    except WorkspaceLockedError:
        await ask_running(settings, request, answer)
        return True
    return False


async def accept(settings: Settings, arguments: argparse.Namespace) -> int:
    """Accept a file's content on disk that changed while the agent worked, as the person's own edit."""
    name = arguments.name
    await _change(settings, wire.AcceptRequest(name), wire.AcceptResult, lambda memory: memory.accept(name))
    say(f"{name}: the content on disk is now in memory; the earlier content is kept as a version.")
    return 0


async def reject(settings: Settings, arguments: argparse.Namespace) -> int:
    """Reject a file change that waits for the person's decision: the file on disk gets memory's content again."""
    name = arguments.name
    await _change(settings, wire.RejectRequest(name), wire.RejectResult, lambda memory: memory.reject(name))
    say(f"{name}: the file has memory's content again; the discarded content is kept in the log.")
    return 0


async def restore(settings: Settings, arguments: argparse.Namespace) -> int:
    """Make an earlier version of a curated file the newest; version 0 is the file as shipped."""
    name = arguments.name
    async with open_stores(settings) as stores:
        content = await content_of(stores, name, arguments.version)
    await _change(settings, wire.EditRequest(name, content), wire.EditResult, lambda memory: memory.edit(name, content))
    say(f"{name} is as it was in version {arguments.version}; the versions in between are kept.")
    return 0


async def answer(settings: Settings, arguments: argparse.Namespace) -> int:
    """Confirm or retire an unverified learning."""
    number, op = arguments.learning, arguments.op
    await _change(
        settings, wire.LearningRequest(number, op), wire.LearningResult, lambda memory: memory.answer(number, op)
    )
    words = "now counts as your own statement" if op == "confirm" else "is no longer true; it stays in the log"
    say(f"Learning {number} {words}.")
    return 0


async def retry(settings: Settings, arguments: argparse.Namespace) -> int:
    """Queue a quarantined turn for curation: now by the running sprite, or else by the next one."""
    turn = arguments.turn
    is_running = await _change(settings, wire.RetryRequest(turn), wire.RetryResult, lambda memory: memory.retry(turn))
    time = "now" if is_running else "when it runs next"
    say(f"Turn {turn} waits again: the sprite learns from it {time}.")
    return 0
