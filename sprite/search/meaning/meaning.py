"""Search by meaning: embed turns in the background, newest first, and compare a question with them.

A failing model switches search by meaning off until the next start. Search by words goes on, and its notes say so.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
from bisect import insort
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from sprite.common import sqlite
from sprite.common.tasks import TaskSet, backoff
from sprite.config import Settings
from sprite.errors import SpriteError
from sprite.forget.plan import Plan
from sprite.log.transcript import TranscriptDB
from sprite.protocol.shapes import Place, counted
from sprite.search.meaning import vectors as store
from sprite.search.meaning.embedders import Embedder, EmbedderDiedError, EndpointError, embedder_of
from sprite.storage.connection import plain_reader
from sprite.storage.full_text import Filters

log = logging.getLogger(__name__)

#: A question waits this long for its vector. A search by words takes 10 to 100 ms.
QUERY_SECONDS = 0.3
#: Idle time after which the model's memory is freed.
IDLE_SECONDS = 300.0
#: Between two looks at whether a turn or a search still runs, while turns wait for their vectors.
PAUSE_SECONDS = 0.5
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 300.0
BY_WORDS = "Searched by words only"
#: File in the run folder: why search by meaning is off, for `status` and `doctor`.
NOTE = "meaning"


class Meaning:
    """Search turns by meaning; `trouble` is the reason why this search is off, or empty."""

    name: ClassVar = "search by meaning"

    def __init__(self, transcript: TranscriptDB, vectors: store.VectorsDB, embedder: Embedder, note: Path) -> None:
        self._transcript = transcript
        self._vectors = vectors
        self._embedder = embedder
        self._note = note
        self._calls = TaskSet()
        self._wake = asyncio.Event()
        #: Indexed turns without vectors, oldest first, and the newest turn seen.
        self._missing: list[int] = []
        self._seen = 0
        #: Counts forgets. Vectors of text that was read before one are discarded.
        self._forgets = 0
        self._searches = 0
        self._used_at = time.monotonic()
        self._is_loaded = False
        self.trouble = ""

    # --- questions ---

    async def near(self, text: str) -> tuple[store.Near, tuple[str, ...]]:
        """Return the turns whose meaning is near to a question, and notes on what was not searched by meaning."""
        if self.trouble or not self._is_loaded:
            return store.NOTHING_NEAR, (f"{BY_WORDS}: {self.trouble or 'the vectors are being loaded'}.",)
        total = self._vectors.count + len(self._missing)
        waiting = f"{len(self._missing)} of {total} turns are not yet searched by meaning."
        if self._vectors.count < store.LEAST_TURNS:
            return store.NOTHING_NEAR, (waiting,) if total >= store.LEAST_TURNS else ()
        self._searches += 1
        try:
            # The answer is awaited in any case: it would be taken for the next text's.
            embed = partial(self._embedder.embed, store.piece(text), question=True)
            call = self._calls.start(self._call(embed), "embed a question")
            done, _ = await asyncio.wait({call}, timeout=QUERY_SECONDS)
            if not done:
                return store.NOTHING_NEAR, (f"{BY_WORDS}: the model is not ready yet.",)
            if (vector := call.result()) is None:
                return store.NOTHING_NEAR, (f"{BY_WORDS}: {self.trouble or 'the endpoint does not answer'}.",)
            near = await self._vectors.near(vector)
        except ValueError as error:
            self._fail(str(error))
            return store.NOTHING_NEAR, (f"{BY_WORDS}: {self.trouble}.",)
        finally:
            self._searches -= 1
        return near, (waiting,) if self._missing else ()

    def turn_began(self) -> None:
        """Load the model when the agent begins a turn, because it may search memory in the turn."""
        if self._is_loaded and not self.trouble and self._vectors.count >= store.LEAST_TURNS:
            self._calls.start(self._call(self._embedder.warm), "load the model")

    # --- turns ---

    def turns_changed(self) -> None:
        """Embed new turns soon."""
        self._wake.set()

    # --- forgetting: see `forget.Store` ---

    async def find(self, made: Plan) -> list[Place]:
        """Return the turns of a forget that have vectors, as one place; those embedded since do not count."""
        turns = await self._vectors.turns() & made.observations.keys()
        if made.is_done:
            # The vectors were read first: a turn that is embedded meanwhile has left the list.
            turns.intersection_update(self._missing)
        return [Place(self.name, f"the meaning of {counted(len(turns), 'turn')}")] if turns else []

    async def remove(self, made: Plan) -> None:
        """Delete the vectors of the turns that a forget changed (all if it is not done yet), and embed them again."""
        self._forgets += 1
        turns = made.observations.keys() if made.is_done else None
        await self._vectors.delete(turns)
        if turns is None:
            self._seen, self._missing = 0, []
        for turn in turns or ():
            if turn not in self._missing:
                insort(self._missing, turn)
        self._wake.set()

    # --- the loop ---

    async def run(self, is_busy: Callable[[], bool]) -> None:
        """Embed turns, newest first, except while `is_busy` or a search runs. Free the memory when idle."""
        try:
            await self._load()
            failures = 0
            while not self.trouble:
                self._wake.clear()
                await self._take_up()
                if not self._missing:
                    await self._wait(is_busy)
                elif is_busy() or self._searches:
                    await asyncio.sleep(PAUSE_SECONDS)
                elif await self._embed(self._missing[-1]):
                    failures = 0
                elif not self.trouble:
                    await asyncio.sleep(backoff(failures, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS))
                    failures += 1
        except Exception as error:
            # A full disk or a broken numpy must not end the sprite: search by words goes on.
            log.exception("search by meaning failed")
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            await self._calls.close()
            await self._embedder.release()

    async def _load(self) -> None:
        if importlib.util.find_spec("numpy") is None:
            self._fail("numpy is not installed; install the extra `meaning`")
            return
        known = await self._vectors.load(f"{self._embedder.model}; {store.PIECE_RULE}")
        times = dict(await self._transcript.ask(lambda look: look.times(0)))
        # Ids and times never change: vectors of another log, or of a newer copy of this one, have other times.
        if strange := {turn for turn, at in known.items() if times.get(turn) != at}:
            await self._vectors.delete(strange)
        self._missing = sorted(times.keys() - (known.keys() - strange))
        self._seen = max(times, default=0)
        self._is_loaded = True

    async def _take_up(self) -> None:
        """Queue the turns that have no vector yet."""
        seen = self._seen
        new = await self._transcript.ask(lambda look: look.times(seen))
        if new and seen == self._seen:  # else a forget came between
            self._missing += [turn for turn, _ in new]
            self._seen = self._missing[-1]

    async def _wait(self, is_busy: Callable[[], bool]) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), IDLE_SECONDS)
        except TimeoutError:
            if not is_busy() and time.monotonic() - self._used_at >= IDLE_SECONDS:
                await self._embedder.release()

    async def _embed(self, turn: int) -> bool:
        """Embed one turn. Return whether the next turn may follow at once."""
        forgets = self._forgets
        outlines, openings = await self._transcript.ask(
            lambda look: (look.outlines([turn], Filters()), look.openings([turn], store.PIECE_CHARS + 1))
        )
        sides = []
        for text in (openings[0].user_message, openings[0].agent_response) if turn in outlines else ():
            if len(text.strip().encode(errors="replace")) < store.LEAST_BYTES:
                sides.append(b"")
                continue
            vector = await self._call(partial(self._embedder.embed, store.piece(text)))
            if vector is None:
                return False
            sides.append(store.packed(vector))
        if forgets == self._forgets:
            # Only a forget and this loop change the list.
            self._missing.pop()
            if sides:  # not of a turn that is off the record
                await self._vectors.add(turn, outlines[turn].at, sides)
        return True

    async def _call(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the value of a call to the embedder, or None if it failed; a dead process switches the search off."""
        self._used_at = time.monotonic()
        try:
            return await call()
        except EmbedderDiedError as error:
            self._fail(f"the embedding process failed ({error})")
        except EndpointError as error:
            log.warning("the embeddings endpoint failed: %s", error)
        return None

    def _fail(self, reason: str) -> None:
        if not self.trouble:
            self.trouble = reason
            log.error("search by meaning is off until the next start: %s", reason)
            with suppress(OSError):
                self._note.write_text(f"{reason}\n", encoding="utf-8")


@asynccontextmanager
async def open_meaning(settings: Settings, transcript: TranscriptDB) -> AsyncIterator[Meaning | None]:
    """Open vectors.db if the settings ask for search by meaning; delete it if they do not."""
    (settings.run / NOTE).unlink(missing_ok=True)
    if (embedder := embedder_of(settings)) is None:
        # It would fall behind the log.
        sqlite.delete(settings.vectors_db)
        yield None
        return
    async with store.open_vectors(settings.vectors_db) as vectors:
        yield Meaning(transcript, vectors, embedder, settings.run / NOTE)


def state(settings: Settings) -> str:
    """Return whether search by meaning works, as text for `status` and `doctor`."""
    if settings.embeddings == "off":
        return "off"
    if (settings.run / NOTE).is_file():
        return f"off: {(settings.run / NOTE).read_text(encoding='utf-8', errors='replace').strip()}"
    try:
        with plain_reader(settings.vectors_db, store.SCHEMA) as connection:
            number = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
    except SpriteError:
        number = 0
    return f"vectors of {counted(number, 'turn')}"
