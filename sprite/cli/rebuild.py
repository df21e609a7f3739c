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
from typing import NoReturn

from tqdm import tqdm

from sprite.backup.restore import refuse_cut_off
from sprite.cli.output import dollars, say, say_json
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
    dry_run, as_json = arguments.dry_run, arguments.json
    if arguments.reapply:
        return await _show_reapplied(settings, as_json=as_json)
    async with _log(settings, dry_run=dry_run) as transcript:
        if arguments.re_extract:
            return await _re_extract(settings, transcript, dry_run=dry_run, as_json=as_json)
        total = await transcript.curations.count()
        if not dry_run:
            await _replay(settings, transcript, total)
    if as_json:
        say_json({"curations": total, "rebuilt": not dry_run})
    elif dry_run:
        say(f"{counted(total, 'curation')} would be replayed; no model would be called and nothing would be paid.")
    else:
        say(f"Memory was rebuilt from {counted(total, 'curation')}; no model was called.")
    return 0


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


async def _show_reapplied(settings: Settings, *, as_json: bool) -> int:
    """Print curation decisions that today's code would make differently, changing nothing. A sprite may be running."""
    async with _log(settings, dry_run=True) as transcript:
        settings.run.mkdir(parents=True, exist_ok=True)
        with tqdm(total=await transcript.curations.count(), unit="curation", desc="deciding", disable=None) as progress:
            decisions, differences = await reapply(transcript, settings.run, lambda: _advance(progress, 1))
    if as_json:
        say_json({"decisions": decisions, "differences": [dataclasses.asdict(each) for each in differences]})
        return 0
    for each in differences:
        day = datetime.fromtimestamp(each.created_at, UTC)
        say(f"Entry {each.curation_id} of the log, {day:%Y-%m-%d} ({each.kind}):")
        say("\n".join([*(f"  - {words}" for words in each.gone), *(f"  + {words}" for words in each.new)]))
    say(f"{len(differences)} of {counted(decisions, 'decision')} would be different today; nothing was changed.")
    return 0


async def _replay(settings: Settings, transcript: TranscriptDB, total: int) -> None:
    live, aside = settings.memory_db, settings.memory_db.with_suffix(".db.new")
    # A person's edit of a file that is not in the log yet would be lost. A damaged memory.db cannot reveal one, and
    # must not prevent the rebuild.
    with contextlib.suppress(DatabaseUnusableError, sqlite3.DatabaseError):
        async with open_own_memory(live, transcript) as memory:
            await Projection(transcript, memory, MemoryFiles(settings.memory)).settle()
    with tqdm(total=total, unit="curation", desc="replaying", disable=None) as progress:
        await replay_aside(transcript, aside, lambda: _advance(progress, 1))
    swap_in(aside, live)
    async with open_memory(live) as memory:
        files = MemoryFiles(settings.memory)
        files.ensure()
        await Projection(transcript, memory, files).settle()


async def _re_extract(settings: Settings, transcript: TranscriptDB, *, dry_run: bool, as_json: bool) -> int:
    extraction = Reextraction(settings, transcript)
    estimate = await extraction.estimate()
    if not as_json and (skipped := await transcript.quarantine.count()):
        say(f"Without {counted(skipped, 'turn')} that are set aside: `memory retry TURN` curates one again.")
    if not as_json:
        say(_estimate_words(estimate, has_claude=settings.has_credentials and not settings.is_offline))
    if dry_run:
        if as_json:
            say_json(dataclasses.asdict(estimate))
        return 0
    with tqdm(total=estimate.turns, unit="turn", desc="asking again", disable=None) as progress:
        generation = await extraction.run(lambda turns: _advance(progress, turns))
    await _replay(settings, transcript, await transcript.curations.count())
    if as_json:
        say_json({**dataclasses.asdict(estimate), "generation": generation})
    else:
        say("Memory now uses the new answers; the old ones stay in the log.")
    return 0


def _advance(progress: tqdm[NoReturn], steps: int) -> None:
    progress.update(steps)


def _estimate_words(estimate: Estimate, *, has_claude: bool) -> str:
    price = "a price that is not known" if estimate.usd is None else f"about {dollars(estimate.usd)}"
    demo = "" if has_claude else "; the demo model costs nothing"
    return (
        f"{counted(estimate.turns, 'turn')} in {counted(estimate.calls, 'call')} to {estimate.model}: about "
        f"{estimate.tokens_read:,} tokens read and {estimate.tokens_written:,} written, for {price}{demo}."
    )
