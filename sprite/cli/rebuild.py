"""`rebuild`: rebuild memory.db and the curated files from the log; `--re-extract` asks the curator again first.

`--reapply` only shows the answers that today's guards would decide differently.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from tqdm import tqdm

from sprite.backup.restore import refuse_cut_off
from sprite.cli.output import dollars, say, show
from sprite.config import Settings
from sprite.curation.rebuild import Estimate, Reextraction, reapply
from sprite.errors import DatabaseUnusableError, OperatorError, WorkspaceLockedError
from sprite.log.transcript import TranscriptDB, open_transcript, read_transcript
from sprite.memory.database import open_memory
from sprite.memory.files import MemoryFiles
from sprite.memory.folders import workspace_lock
from sprite.memory.opening import open_own_memory, replay_aside, swap_in
from sprite.memory.projection import Projection
from sprite.protocol.shapes import counted


async def rebuild(settings: Settings, arguments: argparse.Namespace) -> int:
    """Rebuild memory. With `--dry-run`, only print how much there is to do; this works beside a running sprite."""
    if arguments.reapply:
        return await _show_reapplied(settings, arguments)
    async with _log(settings, dry_run=arguments.dry_run) as transcript:
        if arguments.re_extract:
            return await _re_extract(settings, transcript, arguments)
        total = await transcript.curations.count()
        if not arguments.dry_run:
            await _replay(settings, transcript, total)
    words = f"Memory was rebuilt from {counted(total, 'curation')}; no model was called."
    if arguments.dry_run:
        words = f"{counted(total, 'curation')} would be replayed; no model would be called and nothing would be paid."
    return show(arguments, {"curations": total, "rebuilt": not arguments.dry_run}, [words])


@asynccontextmanager
async def _log(settings: Settings, *, dry_run: bool) -> AsyncIterator[TranscriptDB]:
    refuse_cut_off(settings)
    if not settings.transcript_db.exists():
        raise OperatorError(f"There is no log in {settings.memory}: no sprite has run there yet.")
    if dry_run:
        async with read_transcript(settings.transcript_db) as transcript:
            yield transcript
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(workspace_lock(settings))
        except WorkspaceLockedError as error:
            raise WorkspaceLockedError(
                f"{error} Start the sprite again after the rebuild. `--dry-run` works beside a running sprite."
            ) from error
        async with open_transcript(settings.transcript_db) as transcript:
            yield transcript


async def _show_reapplied(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print curation decisions that today's code would make differently, changing nothing. A sprite may be running."""
    async with _log(settings, dry_run=True) as transcript:
        settings.run.mkdir(parents=True, exist_ok=True)
        with tqdm(total=await transcript.curations.count(), unit="curation", desc="deciding", disable=None) as progress:
            decisions, differences = await reapply(transcript, settings.run, progress.update)
    lines = []
    for each in differences:
        day = datetime.fromtimestamp(each.created_at, UTC)
        lines.append(f"Entry {each.curation_id} of the log, {day:%Y-%m-%d} ({each.kind}):")
        lines += [*(f"  - {words}" for words in each.gone), *(f"  + {words}" for words in each.new)]
    count = f"{len(differences)} of {counted(decisions, 'decision')}"
    lines.append(f"{count} would be different today; nothing was changed.")
    return show(arguments, {"decisions": decisions, "differences": differences}, lines)


async def _replay(settings: Settings, transcript: TranscriptDB, total: int) -> None:
    live, aside = settings.memory_db, settings.memory_db.with_suffix(".db.new")
    # A person's edit of a file that is not in the log yet would be lost. A damaged memory.db cannot reveal one, and
    # must not prevent the rebuild.
    with contextlib.suppress(DatabaseUnusableError, sqlite3.DatabaseError):
        async with open_own_memory(live, transcript) as memory:
            await Projection(transcript, memory, MemoryFiles(settings.memory)).settle()
    with tqdm(total=total, unit="curation", desc="replaying", disable=None) as progress:
        await replay_aside(transcript, aside, progress.update)
    swap_in(aside, live)
    async with open_memory(live) as memory:
        files = MemoryFiles(settings.memory)
        files.ensure()
        await Projection(transcript, memory, files).settle()


async def _re_extract(settings: Settings, transcript: TranscriptDB, arguments: argparse.Namespace) -> int:
    extraction = Reextraction(settings, transcript)
    estimate = await extraction.estimate()
    if not arguments.json:
        if skipped := await transcript.quarantine.count():
            say(f"Without {counted(skipped, 'turn')} that are set aside: `memory retry TURN` curates one again.")
        say(_estimate_words(estimate, has_claude=settings.has_credentials and not settings.is_offline))
    if arguments.dry_run:
        return show(arguments, estimate, [])
    with tqdm(total=estimate.turns, unit="turn", desc="asking again", disable=None) as progress:
        generation = await extraction.run(progress.update)
    await _replay(settings, transcript, await transcript.curations.count())
    facts = {**dataclasses.asdict(estimate), "generation": generation}
    return show(arguments, facts, ["Memory now uses the new answers; the old ones stay in the log."])


def _estimate_words(estimate: Estimate, *, has_claude: bool) -> str:
    price = "a price that is not known" if estimate.usd is None else f"about {dollars(estimate.usd)}"
    demo = "" if has_claude else "; the demo model costs nothing"
    return (
        f"{counted(estimate.turns, 'turn')} in {counted(estimate.calls, 'call')} to {estimate.model}: about "
        f"{estimate.tokens_read:,} tokens read and {estimate.tokens_written:,} written, for {price}{demo}."
    )
