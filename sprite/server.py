"""The composition root: opens everything in order, listens, and closes it in reverse.

Entry order reads as start-up. Signals set an event, nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import secrets
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sprite.agent.orphans import end_orphans
from sprite.agent.permissions import PermissionDesk
from sprite.agent.runtime import AgentRuntime
from sprite.agent.session import Session
from sprite.awake import kept_awake
from sprite.boundary.sandbox import find_boundary
from sprite.clients.connection import Connection
from sprite.clients.gateway import Gateway
from sprite.clients.uploads import Uploads
from sprite.config import Settings
from sprite.database.lock import workspace_lock
from sprite.database.memory import MemoryDB, open_memory
from sprite.database.transcript import open_transcript
from sprite.database.workspace import open_workspace
from sprite.errors import DatabaseUnusableError, OperatorError
from sprite.feed import Feed
from sprite.folders import make_folders
from sprite.memory.agent_watch import AgentWatch
from sprite.memory.capture.recorder import TurnRecorder
from sprite.memory.files import MemoryFiles
from sprite.memory.forgetting.forget import Forgetter
from sprite.memory.processor import ObservationProcessor
from sprite.memory.projection.fold import Change
from sprite.memory.projection.projection import Projection
from sprite.memory.recall.boot_prompt import BootPrompt
from sprite.memory.recall.view import MemoryView, learning_row
from sprite.privacy.confidences import Confidences
from sprite.privacy.redaction import prepare
from sprite.protocol.frames import encode
from sprite.protocol.messages import (
    Error,
    MemoryUpdate,
)

if TYPE_CHECKING:
    from sprite.agent.equipment import Agent

log = logging.getLogger(__name__)

#: Connections at once; a bridge needs one, a person's tools a few. Each may hold an outbox of some MiB.
MAX_CONNECTIONS = 256
#: A clean end takes at most this long: an interrupt, the CLI's end and a flush each have their own bound.
DRAIN_SECONDS = 60.0


async def serve(settings: Settings, on_listening: Callable[[str, int], None], stop: asyncio.Event) -> None:
    """Runs a sprite until `stop` is set. OperatorError if the workspace cannot be used."""
    async with AsyncExitStack() as stack:
        make_folders(settings)
        stack.enter_context(workspace_lock(settings.lock))
        end_orphans(settings.cli_state)
        token = settings.token or _token(settings.token_file)
        transcript = await stack.enter_async_context(open_transcript(settings.transcript_db))
        memory = await stack.enter_async_context(_open_memory(settings.memory_db))
        workspace = await stack.enter_async_context(open_workspace(settings.workspace_db))
        confidences = Confidences()
        feed = Feed(workspace, await workspace.last_seq(), confidences.text)
        await stack.enter_async_context(feed.running())

        files = MemoryFiles(settings.memory)
        files.ensure()
        projection = Projection(transcript, memory, files)
        # What an agent wrote whose sprite was killed is not for now to be taken for a person's.
        await projection.agent_rests()
        forgetter = Forgetter(settings, transcript, memory, workspace, projection)
        await forgetter.finish_interrupted()
        view = MemoryView(transcript, memory, files)
        announce = _Announcer(feed, memory, view)
        processor = ObservationProcessor(settings, transcript, memory, files, projection, announce)
        await stack.enter_async_context(announce.running())
        await stack.enter_async_context(processor.running())
        recorder = TurnRecorder(transcript, lambda words: feed.warn("storage", words), confidences.text)
        desk = PermissionDesk(feed, confidences.text)
        uploads = Uploads(settings.documents, settings.run / "uploads")
        uploads.prepare()

        agent = _LateAgent(
            settings,
            lambda module, boundary: module.Agent(
                settings,
                workspace,
                feed,
                recorder,
                view,
                boundary,
                AgentWatch(projection, announce, whole_session=not boundary.holds),
                desk,
                confidences.text,
            ),
        )
        session = Session(settings, transcript, recorder, BootPrompt(files, memory, transcript), agent.ready)
        runtime = AgentRuntime(transcript, workspace, feed, recorder, processor, session, desk, confidences)
        await runtime.restore()
        gateway = Gateway(
            settings, workspace, feed, view, projection, processor, runtime, desk, uploads, forgetter, announce
        )

        listener = await stack.enter_async_context(_listening(settings, token, feed, gateway))
        host, port = listener.sockets[0].getsockname()[:2]
        stack.enter_context(_address_file(settings.address_file, f"{host}:{port}"))
        on_listening(host, port)
        # Beside the listener: the SDKs take a second to import, and nobody should wait for that to be let in.
        await stack.enter_async_context(agent.loading())
        await stack.enter_async_context(
            kept_awake(settings.vm_socket, lambda: runtime.is_busy or processor.is_flushing)
        )
        await stack.enter_async_context(_running(runtime, processor))
        await stop.wait()
        log.info("stopping: the turn is stored and memory is flushed")
        # Nobody new is let in; who is connected still hears how it ends.
        listener.close()


def _token(path: Path) -> str:
    """The token that guards the port, made at first start, readable by the owner only."""
    if not path.exists() or not path.read_text().strip():
        temporary = path.with_name("token.new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(32) + "\n")
        temporary.replace(path)
    return path.read_text().strip()


@asynccontextmanager
async def _open_memory(path: Path) -> AsyncIterator[MemoryDB]:
    """The projection; a file that cannot be used is set aside, since the log brings everything back."""
    async with AsyncExitStack() as stack:
        try:
            memory = await stack.enter_async_context(open_memory(path))
        except (DatabaseUnusableError, sqlite3.DatabaseError) as error:
            aside = path.with_name(f"{path.name}.bad-{int(time.time())}")
            log.warning("%s It is kept as %s and memory is rebuilt from the log.", error, aside.name)
            path.replace(aside)
            for suffix in ("-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            memory = await stack.enter_async_context(open_memory(path))
        yield memory


class _LateAgent:
    """The agent's side, imported in a thread while the listener is already up."""

    def __init__(self, settings: Settings, make: Callable[..., Agent]) -> None:
        self._settings = settings
        self._make = make
        self._task: asyncio.Task[Agent] | None = None

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """Begins the import; when the block ends, it is waited for (a thread cannot be stopped)."""
        self._task = asyncio.create_task(self._load(), name="agent import")
        try:
            yield
        finally:
            await asyncio.gather(self._task, return_exceptions=True)

    async def ready(self) -> Agent:
        """The agent, once it is imported."""
        if self._task is None:
            self._task = asyncio.create_task(self._load(), name="agent import")
        return await asyncio.shield(self._task)

    async def _load(self) -> Agent:
        module = await asyncio.to_thread(importlib.import_module, "sprite.agent.equipment")
        # Nor should the first turn wait for the rules by which secrets are known.
        await asyncio.to_thread(prepare)
        boundary = await asyncio.to_thread(find_boundary, self._settings)
        log.log(logging.INFO if boundary.holds else logging.WARNING, "the agent's sandbox: %s", boundary.words)
        return self._make(module, boundary)


class _Announcer:
    """Tells everyone what a curation changed; the rows are read beside whoever reports the change."""

    def __init__(self, feed: Feed, memory: MemoryDB, view: MemoryView) -> None:
        self._feed = feed
        self._memory = memory
        self._view = view
        self._changes: asyncio.Queue[Change] = asyncio.Queue()

    def __call__(self, change: Change) -> None:
        """Takes a change; returns at once."""
        self._changes.put_nowait(change)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Announces while the block runs, and what is left at its end."""
        task = asyncio.create_task(self._announce_for_ever(), name="announcer")
        try:
            yield
        finally:
            await self._changes.join()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _announce_for_ever(self) -> None:
        while True:
            change = await self._changes.get()
            try:
                learnings = await self._memory.learnings_of(change.curation_id)
                self._feed.publish(
                    MemoryUpdate(
                        files=list(dict.fromkeys(change.files)),
                        learnings=[learning_row(learning) for learning in learnings],
                        curation_id=change.curation_id,
                        drift=list(await self._view.drift()),
                    )
                )
            except Exception:
                # An announcement that fails must not stop the ones after it.
                log.exception("a change of memory could not be announced")
            finally:
                self._changes.task_done()


@asynccontextmanager
async def _listening(settings: Settings, token: str, feed: Feed, gateway: Gateway) -> AsyncIterator[asyncio.Server]:
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= MAX_CONNECTIONS:
            writer.write(encode(Error("too_many_connections", "Too many clients are connected; try again later.")))
            writer.close()
            return
        task = asyncio.current_task()
        if task is not None:
            connections.add(task)
            task.add_done_callback(connections.discard)
        connection = Connection(
            reader, writer, token=token, feed=feed, snapshot=gateway.snapshot, handle=gateway.handle
        )
        # Cancelled only when the server closes, and asyncio would report that as an error of the callback's.
        with contextlib.suppress(asyncio.CancelledError):
            await connection.serve()

    try:
        server = await asyncio.start_server(accept, settings.host, settings.port, backlog=MAX_CONNECTIONS)
    except OSError as error:
        raise OperatorError(
            f"Cannot listen on {settings.host}:{settings.port} ({error.strerror}). "
            "Choose another --port; 0 takes a free one."
        ) from error
    try:
        yield server
    finally:
        server.close()
        await feed.drain()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


@contextlib.contextmanager
def _address_file(path: Path, address: str) -> Iterator[None]:
    """Says on disk where the sprite listens, for others on this machine, while it does."""
    path.write_text(f"{address}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@asynccontextmanager
async def _running(runtime: AgentRuntime, processor: ObservationProcessor) -> AsyncIterator[None]:
    """Runs the runtime; at the end it has DRAIN_SECONDS to interrupt, store and flush."""
    task = asyncio.create_task(runtime.run(), name="runtime")
    if await processor.leftovers():
        processor.request()
    try:
        yield
    finally:
        runtime.stop()
        done, _ = await asyncio.wait({task}, timeout=DRAIN_SECONDS)
        if not done:
            log.error("the runtime did not end in %.0f s; what is open is in the journal", DRAIN_SECONDS)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def install_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT ask for a clean end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
