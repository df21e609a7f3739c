"""A history replayed through the real memory: its turns into the log, the recorded answers through the processor.

Real are the databases, the files, the redaction, the prompts, the fold and the search; the model is a recording, and
the clock is the history's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.curation_score import Memory, Run
from benchmarks.history import LIVE, History, Turn
from benchmarks.recorded_model import RecordedModel
from benchmarks.recordings import Recordings
from sprite.agent.tools.memory import describe
from sprite.capture.turn_buffer import TurnBuffer
from sprite.config import Settings
from sprite.curation.processor import ObservationProcessor
from sprite.log.transcript import NewObservation, TranscriptDB, open_transcript
from sprite.memory.database import MemoryDB, open_memory
from sprite.memory.files import CURATED, MemoryFiles
from sprite.memory.folders import make_folders
from sprite.memory.projection import Projection
from sprite.privacy.private_text import PrivateText
from sprite.search.search import search

#: Number of search results that are read.
HITS = 10
_FLUSH_SECONDS = 60.0


class ReplayError(Exception):
    """A recorded answer came to nothing: the message says what the processor said."""


@dataclass(slots=True)
class Clock:
    """Return the time in the history, in Unix seconds."""

    now: float = 0.0

    @contextmanager
    def rules(self) -> Iterator[None]:
        """Everything that asks `time.time` gets the history's time, so that nothing hangs on the day of the run."""
        real, time.time = time.time, lambda: self.now
        try:
            yield
        finally:
            time.time = real


@dataclass(slots=True)
class Workspace:
    """The memory of the person in the history."""

    settings: Settings
    transcript: TranscriptDB
    memory: MemoryDB
    files: MemoryFiles
    processor: ObservationProcessor
    model: RecordedModel
    private_text: PrivateText = field(default_factory=PrivateText)

    async def write(self, turn: Turn) -> None:
        """Writes a turn into the log as the recorder would."""
        if turn.trigger == "user":
            self.private_text.hear(turn.user)
        buffer = TurnBuffer(turn.session, turn.trigger, None, turn.user, private_text=self.private_text)
        for place, call in enumerate(turn.tools):
            use = f"toolu_{turn.n}_{place}"
            buffer.start_tool(buffer.call(use, call.name, call.input))
            if call.result is not None:
                result = await self._live(call.input) if call.result == LIVE else call.result
                buffer.end_tool(buffer.call(use, call.name, call.input, result, is_error=call.is_error))
        buffer.add_text(turn.reply or "")
        observation: NewObservation = buffer.observation(turn.outcome, turn.notice or "")
        written = await self.transcript.add_observation(observation, at=turn.at.timestamp())
        assert written == turn.n, "a turn's number is its id"

    async def _live(self, given: dict[str, str]) -> str:
        return describe(await search(self.transcript, self.memory, given["query"], HITS))

    async def curate(self) -> None:
        """Curates what waits. ReplayError, or NotRecordedError, if that cannot be done."""
        if await self.transcript.waiting_count() and not await self.processor.flush_all_within(_FLUSH_SECONDS):
            raise self.model.missing or ReplayError(self.processor.last_error or "the flush took too long")

    async def finds(self, question: str) -> list[tuple[int | None, str]]:
        """The first hits for a question: the turn that each is or comes from, and its text."""
        found = await search(self.transcript, self.memory, question, HITS)
        return [(hit.turn_id, hit.text) for hit in found.hits]

    async def remembered(self) -> Memory:
        """Return the present memory."""
        learnings = await self.memory.learnings(limit=100_000)
        versions = [version for name in CURATED for version in await self.memory.versions(name)]
        return Memory(
            files={name: self.files.read(name) for name in CURATED},
            actions=[action.content for action in await self.memory.actions("open")],
            all_actions=[action.content for action in await self.memory.actions()],
            learnings=[known.content for known in learnings if known.superseded_by is None],
            superseded=sum(known.superseded_by is not None for known in learnings),
            versions=[(version.curation_id, version.name, version.content) for version in versions],
            reports=[
                (said.curation_id, said.kind, said.detail) for said in reversed(await self.memory.reports(10_000))
            ],
        )


@asynccontextmanager
async def _open(
    recordings: Recordings, clock: Clock, slip: Callable[[str, str], str] | None
) -> AsyncIterator[Workspace]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plain = Settings(workspace=folder)
        make_folders(plain)
        transcript = await stack.enter_async_context(open_transcript(plain.transcript_db))
        memory = await stack.enter_async_context(open_memory(plain.memory_db))
        files = MemoryFiles(plain.memory)
        files.ensure()

        async def about() -> str:
            waiting = await transcript.waiting(plain.batch_turns)
            return f"t{waiting[0].id}-t{waiting[-1].id}"

        model = await stack.enter_async_context(RecordedModel(recordings, about, lambda: clock.now, slip))
        settings = Settings(workspace=folder, api_key="recorded", base_url=model.url)
        projection = Projection(transcript, memory, files)
        await projection.settle()
        processor = ObservationProcessor(settings, transcript, memory, projection, lambda _: None, is_left=lambda: True)
        await stack.enter_async_context(processor.running(lambda: None))
        yield Workspace(settings, transcript, memory, files, processor, model)


async def _ignore(_workspace: Workspace, _turn: Turn) -> None:
    pass


async def replay(
    history: History,
    recordings: Recordings,
    slip: Callable[[str, str], str] | None,
    cuts: frozenset[int] = frozenset(),
    at_session: Callable[[Workspace, Turn], Awaitable[None]] = _ignore,
) -> Run:
    """Replays all of it, curating as the product does: at the batch size and at a session's end, and after `cuts`.

    `at_session` is called at the start of each session, before the turns of the one before it are curated and after.
    """
    clock = Clock(history.turns[0].at.timestamp())
    with clock.rules():
        async with _open(recordings, clock, slip) as workspace:
            session = ""
            for turn in history.turns:
                if turn.session != session:
                    await at_session(workspace, turn)
                    await workspace.curate()
                    clock.now = turn.at.timestamp()
                    await at_session(workspace, turn)
                    await workspace.transcript.end_sessions()
                    await workspace.transcript.start_session(turn.session)
                    session = turn.session
                clock.now = turn.at.timestamp()
                await workspace.write(turn)
                is_full = await workspace.transcript.waiting_count() >= workspace.settings.batch_turns
                if is_full or turn.n in cuts:
                    await workspace.curate()
            await workspace.curate()
            return Run(
                memory=await workspace.remembered(),
                found=[await workspace.finds(asked.question) for asked in history.questions],
                served=workspace.model.served,
                usd=await workspace.transcript.spending.total(),
            )
