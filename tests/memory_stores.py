"""The memory of one workspace, opened in-process: both databases, the files and the projection."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from sprite.backup.replicator import Shipping
from sprite.config import Settings
from sprite.curation.decide import Judge
from sprite.curation.extraction import Extractor, log_lost_call
from sprite.curation.model import CuratorModel
from sprite.curation.prompt import CuratorPrompt
from sprite.curation.rebuild import Regrowth
from sprite.curation.verifier import Verification, off_record, read_answer
from sprite.forget.forget import Forgetter, Store
from sprite.forget.plan import Plan, Target
from sprite.log.curations import OFF_RECORD, WAITING, Curation, append
from sprite.log.transcript import NewObservation, Observation, TranscriptDB, open_transcript
from sprite.memory.actions import Actions
from sprite.memory.database import MemoryDB, open_memory
from sprite.memory.files import CURATED, MemoryFiles, template
from sprite.memory.projection import Projection
from sprite.protocol.shapes import Forgotten, LearningRow, Place
from sprite.search.search import Found, search
from sprite.workspace.database import WorkspaceDB, open_workspace
from tests.looks import dump
from tests.new_databases import put_memory

SESSION = "11111111-1111-4111-8111-111111111111"


def agree(_line: str) -> str:
    """Return the verdict of a verifier that agrees to every line."""
    return "yes"


def object_to(line: str) -> str:
    """Return the verdict of a verifier that finds no line in the person's messages."""
    return "yes" if line.startswith("keep") else "no: they did not say it"


@dataclass(frozen=True, slots=True)
class Stores:
    """The memory components of `server.py`, without the server."""

    folder: Path
    transcript: TranscriptDB
    memory: MemoryDB
    files: MemoryFiles
    projection: Projection

    async def turn(
        self,
        user: str = "Hello",
        reply: str = "Hi",
        *,
        calls: Sequence[dict[str, Any]] = (),
        session: str = SESSION,
        at: float | None = None,
        **more: Any,
    ) -> int:
        """Write a turn into the log; return its id."""
        new = NewObservation(session, user, calls, reply, "complete")
        return await self.transcript.add_observation(replace(new, **more), at=at)

    async def batch(
        self, response: str, first: int, last: int | None = None, *, verify: Callable[[str], str] = agree, **more: Any
    ) -> int:
        """Log a curator's answer for a range of turns without applying it; return the curation's id.

        `verify` returns the verifier's verdict on a line, by default "yes".
        """
        await self.projection.settle()
        answer = Curation("batch", response, first, first if last is None else last, model="offline", **more)
        answer = await self.verified(answer, verify)
        return await self.log(await self.judge.decided(answer))

    async def log(self, decided: Curation) -> int:
        """Log a decided answer without applying it; return the curation's id."""
        return await self.transcript.transact(lambda tx: append(tx, decided, is_current=True))

    async def verified(
        self, answer: Curation, verify: Callable[[str], str] = agree, judge: Judge | None = None
    ) -> Curation:
        """Return an answer with a verdict on each of its lines that need one."""
        request = await (judge or self.judge).request(answer)
        if request is None:
            return answer
        text = "\n".join(f"{number} {verify(line)}" for number, line in enumerate(request.lines, start=1))
        rulings = read_answer(text, request.lines)
        logged = msgspec.json.encode(Verification(request.sha256, text, rulings)).decode()
        return replace(answer, verification_json=logged, off_record=tuple(off_record(rulings)))

    async def learn(
        self,
        response: str,
        user: str = "Hello",
        reply: str = "Hi",
        *,
        verify: Callable[[str], str] = agree,
        **more: Any,
    ) -> int:
        """Log and curate one turn with this answer (`[t]` stands for its citation); return the turn's id."""
        turn = await self.turn(user, reply, **more)
        await self.batch(response.replace("[t]", f"[t{turn}]"), turn, verify=verify)
        await self.projection.settle()
        return turn

    async def extract_again(
        self,
        generation: int,
        *answers: tuple[str, int, int],
        meanwhile: Awaitable[None] | None = None,
        verify: Callable[[str], str] = agree,
    ) -> None:
        """Log a re-extraction with these answers, each for a range of turns, without applying it."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder)))
            memory = await stack.enter_async_context(open_memory(folder / "memory.db"))
            judge = Judge(self.transcript, memory)
            grown = Regrowth(self.transcript, Projection(self.transcript, memory, MemoryFiles(folder)), judge)
            await grown.take_up(generation)
            for response, first, last in answers:
                turns = await self.turns_between(first, last)
                await grown.come_to(turns)
                answer = Curation("batch", response, first, last, model="offline", generation=generation)
                await grown.keep(await self.verified(answer, verify, judge), turns[-1])
            if meanwhile is not None:
                await meanwhile
            await grown.take_over(generation)

    @property
    def judge(self) -> Judge:
        return Judge(self.transcript, self.memory)

    @property
    def actions(self) -> Actions:
        return Actions(self.projection, self.memory)

    def actions_at(self, clock: Callable[[], float]) -> Actions:
        """Return the actions component with another clock."""
        return Actions(self.projection, self.memory, clock=clock)

    async def note(self, name: str, line: str) -> int:
        """Log and curate a turn of the person's that adds a line to a file; return the turn's id."""
        return await self.learn(added(name, line), line)

    async def prompt(self, *turns: int) -> CuratorPrompt:
        """Return the curator's prompt for these turns."""
        model = CuratorModel(Settings(self.folder), partial(log_lost_call, self.transcript))
        try:
            extractor = Extractor(self.transcript, self.memory, self.files, model, self.judge)
            return (await extractor.prompt(await self.turns_between(min(turns), max(turns))))[0]
        finally:
            await model.close()

    async def learnings(self) -> list[LearningRow]:
        return await self.memory.learnings(limit=10_000)

    async def reports(self) -> list[tuple[str, str]]:
        return [(report.kind, report.detail) for report in reversed(await self.memory.reports(1000))]

    async def turns_between(self, first: int, last: int) -> list[Observation]:
        return [turn for turn in await self.observations() if first <= turn.id <= last]

    async def observations(self) -> list[Observation]:
        return await self.transcript.observations_after(0, 2**62)

    def path(self, name: str) -> Path:
        return self.folder / name


@asynccontextmanager
async def open_stores(folder: Path) -> AsyncIterator[Stores]:
    """Open (or make) a memory folder with one session in its log, not settled yet."""
    put_memory(folder)
    async with AsyncExitStack() as stack:
        transcript = await stack.enter_async_context(open_transcript(folder / "transcript.db"))
        memory = await stack.enter_async_context(open_memory(folder / "memory.db"))
        files = MemoryFiles(folder)
        files.ensure()
        if await transcript.session_count() == 0:
            await transcript.start_session(SESSION)
        yield Stores(folder, transcript, memory, files, Projection(transcript, memory, files))


def added(name: str, *lines: str, turn: int | None = None, to: str = "Notes") -> str:
    """Return edits that add lines to a file. The quote of each is its own words, in the turn (by default `[t]`)."""
    cited = "[t]" if turn is None else f"[t{turn}]"
    header = f"{name.removesuffix('.md').upper()}_MD_EDIT:"
    return "\n".join([header, *(f'ADD {to} | {cited} - {line} | "{line}"' for line in lines)]) + "\n"


def noted(name: str, *lines: str) -> str:
    """Return the file's template with lines that `added` adds."""
    return f"{template(name)}\n## Notes\n" + "".join(f"- {line}\n" for line in lines)


async def seed_turns(workspace: Path, *said: str, off_record: bool = False) -> None:
    """Append a turn for each of these messages to a workspace's log; they await curation."""
    folder = workspace / ".os/memory"
    folder.mkdir(parents=True, exist_ok=True)
    async with open_stores(folder) as stores:
        session = await stores.transcript.start_session(str(uuid.uuid4()))
        for text in said:
            await stores.turn(text, "Noted.", session=session.id, processed=OFF_RECORD if off_record else WAITING)
        await stores.transcript.end_sessions()


async def rebuilt(folder: Path, *, without_files: bool) -> dict[str, list[tuple[Any, ...]]]:
    """Return all of memory.db after a rebuild from the log, with or without the curated files on disk."""
    for suffix in ("", "-wal", "-shm"):
        (folder / f"memory.db{suffix}").unlink(missing_ok=True)
    for name in CURATED if without_files else ():
        (folder / name).unlink()
    async with open_stores(folder) as stores:
        await stores.projection.settle()
    return dump(folder / "memory.db")


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """A store that a forget comes to when the log has changed; `removing` is called then."""

    removing: Callable[[], Awaitable[None]]
    name: ClassVar = "meanwhile"

    async def find(self, _: Plan) -> list[Place]:
        return []

    async def remove(self, _: Plan) -> None:
        await self.removing()


def forgetter_of(
    settings: Settings,
    stores: Stores,
    workspace: WorkspaceDB,
    *first: Store | None,
    step: Callable[[], object] = lambda: None,
) -> Forgetter:
    """Make the component that forgets in these stores. Of those that follow the log, these are the `first`."""
    shipping = Shipping(settings, stores.transcript, workspace)
    return Forgetter(
        settings,
        stores.transcript,
        stores.memory,
        workspace,
        stores.projection,
        (*first, shipping),
        step,
    )


async def forget_in(stores: Stores, *, preview: bool = False, sure: bool = True, **target: Any) -> Forgotten:
    """Forget in these stores and search them, or preview that, as a command does."""
    settings = Settings(stores.folder.parent.parent)
    async with open_workspace(settings.workspace_db) as seen:
        forgetter = forgetter_of(settings, stores, seen)
        if preview:
            return await forgetter.preview(Target(**target))
        return await forgetter.search(await forgetter.forget(Target(**target), sure=sure))


def call(name: str, result: Any, tool_input: Any = None, **more: Any) -> dict[str, Any]:
    """Return a tool call as the log stores it."""
    return {
        "tool_use_id": f"toolu_{uuid.uuid4().hex[:8]}",
        "name": name,
        "input": tool_input or {},
        "result": result,
        "is_error": False,
        **more,
    }


async def find(stores: Stores, query: str, limit: int = 10) -> Found:
    """Search the stores."""
    return await search(stores.transcript, stores.memory, query, limit)


def names(found: Found) -> list[str]:
    """Return hits by kind and number, best first: L3 is a learning, T5 a turn."""
    return [f"{'L' if hit.kind == 'learning' else 'T'}{hit.id}" for hit in found.hits]
