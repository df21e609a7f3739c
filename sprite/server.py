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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sprite.agent.background import Background
from sprite.agent.orphans import end_orphans, end_programs
from sprite.agent.permissions import PermissionDesk
from sprite.agent.runtime import AgentRuntime
from sprite.agent.session import Session
from sprite.agent.standing_rules import StandingRules
from sprite.awake import kept_awake
from sprite.boundary.sandbox import find_boundary
from sprite.clients.connection import Connection
from sprite.clients.gateway import Gateway
from sprite.clients.listening import Port, listening
from sprite.clients.uploads import Uploads
from sprite.config import Settings
from sprite.database.lock import workspace_lock
from sprite.database.memory import MemoryDB
from sprite.database.transcript import open_transcript
from sprite.database.workspace import open_workspace
from sprite.errors import AgentError, OperatorError, ShortageError, is_shortage
from sprite.feed import Feed
from sprite.folders import make_folders
from sprite.memory.actions import Actions
from sprite.memory.agent_watch import AgentWatch
from sprite.memory.capture.recorder import TurnRecorder
from sprite.memory.files import MemoryFiles
from sprite.memory.forgetting.forget import Forgetter
from sprite.memory.opening import open_own_memory
from sprite.memory.processor import ObservationProcessor
from sprite.memory.projection.fold import Change
from sprite.memory.projection.projection import Projection
from sprite.memory.recall.boot_prompt import BootPrompt
from sprite.memory.recall.view import MemoryView, action_row, learning_row
from sprite.privacy.confidences import Confidences
from sprite.privacy.redaction import prepare
from sprite.protocol.messages import (
    ActionUpdate,
    MemoryUpdate,
)
from sprite.schedules.allowance import Allowance
from sprite.schedules.scheduler import Scheduler
from sprite.tasks import owned_task

if TYPE_CHECKING:
    from sprite.agent.equipment import Agent

log = logging.getLogger(__name__)


async def serve(settings: Settings, on_listening: Callable[[str, int], None], stop: asyncio.Event) -> None:
    """Runs a sprite until `stop` is set. OperatorError if the workspace cannot be used.

    A task that dies sets `stop`, too; TaskDiedError then says which, after everything was closed in order.
    """
    async with AsyncExitStack() as stack:
        make_folders(settings)
        stack.enter_context(workspace_lock(settings.lock, settings.memory))
        end_orphans(settings.cli_state)
        stack.push_async_callback(end_programs, settings.cli_state)
        token = settings.token or _token(settings.token_file)
        transcript = await stack.enter_async_context(open_transcript(settings.transcript_db))
        memory = await stack.enter_async_context(open_own_memory(settings.memory_db, transcript))
        workspace = await stack.enter_async_context(open_workspace(settings.workspace_db))
        confidences = Confidences(token, settings.api_key, settings.auth_token)
        feed = Feed(workspace, await workspace.last_seq(), confidences.others)
        await stack.enter_async_context(feed.running(stop.set))

        files = MemoryFiles(settings.memory)
        files.ensure()
        projection = Projection(transcript, memory, files, lambda words: feed.warn("over_limit", words))
        # What an agent wrote whose sprite was killed is not for now to be taken for a person's.
        await projection.agent_rests()
        forgetter = Forgetter(settings, transcript, memory, workspace, projection)
        await forgetter.finish_interrupted()
        view = MemoryView(transcript, memory, files)
        announce = _Announcer(feed, memory, view)
        processor = ObservationProcessor(settings, transcript, memory, files, projection, announce)
        actions = Actions(projection, memory, announce)
        await stack.enter_async_context(announce.running(stop.set))
        await stack.enter_async_context(processor.running(stop.set))
        recorder = TurnRecorder(transcript, lambda words: feed.warn("storage", words), confidences)
        desk = PermissionDesk(feed, StandingRules(settings.workspace))
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
                confidences.others,
            ),
        )
        boot_prompt = BootPrompt(files, memory, transcript, settings.skills, settings.egress)
        background = Background(confidences.others)
        session = Session(settings, transcript, recorder, boot_prompt, agent.ready, background)
        runtime = AgentRuntime(
            *(transcript, workspace, feed, recorder, processor, session, desk, confidences),
            settings.unattended_seconds,
            settings.spare_seconds,
        )
        await runtime.restore()
        scheduler = Scheduler(
            *(actions, transcript.curations, workspace, feed, runtime, Allowance(settings, workspace))
        )
        announce.when_actions_change(scheduler.changed)
        gateway = Gateway(
            *(settings, workspace, feed, view, projection, processor, runtime, desk, uploads, forgetter),
            *(actions, scheduler, announce),
        )

        # Before anybody can say anything: no turn waits for the rules by which secrets are known, or finds no room for
        # reading them.
        await asyncio.to_thread(prepare)
        port = await stack.enter_async_context(
            _listening(settings, token, feed, gateway, runtime.expect_mission, stop.set)
        )
        host, number = port.address
        stack.enter_context(_address_file(settings.address_file, f"{host}:{number}"))
        on_listening(host, number)
        # Beside the listener: the SDKs take a second to import, and clients should not wait for that.
        await stack.enter_async_context(agent.loading(stop.set))
        await stack.enter_async_context(
            kept_awake(settings.vm_socket, lambda: runtime.needs_machine or processor.is_flushing, stop.set)
        )
        await stack.enter_async_context(_at_work(processor, runtime, scheduler, stop.set))
        await stop.wait()
        log.info("stopping: the turn is stored and memory is flushed")
        # No new clients; those connected still hear how it ends.
        await port.close()


def _token(path: Path) -> str:
    """The token that guards the port, made at first start, readable by the owner only.

    OperatorError if it is no text.
    """
    try:
        known = path.read_text().strip() if path.exists() else ""
    except UnicodeDecodeError as error:
        raise OperatorError(f"{path} holds no token. Delete it: the next start makes a new one.") from error
    if not known:
        temporary = path.with_name("token.new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(32) + "\n")
        temporary.replace(path)
    return path.read_text().strip()


class _LateAgent:
    """The agent's side, imported in a thread while the listener is already up.

    Where no agent is started ahead, nothing of it is loaded ahead either: it takes 40 MB and most of a second.
    """

    def __init__(self, settings: Settings, make: Callable[..., Agent]) -> None:
        self._settings = settings
        self._make = make
        self._wanted = asyncio.Event()
        self._attempt: asyncio.Future[Agent] = asyncio.get_running_loop().create_future()
        self._is_over = False

    @asynccontextmanager
    async def loading(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Imports in the block; when that ends, an import under way is waited for (a thread cannot be stopped)."""
        if self._settings.spare_seconds:
            self._wanted.set()
        async with owned_task(self._load(), name="agent import", on_death=on_death, finish=self._end, may_return=True):
            yield

    def _end(self) -> None:
        self._is_over = not self._wanted.is_set()
        self._wanted.set()

    async def ready(self) -> Agent:
        """The agent, once it is imported. AgentError if it cannot be: the sprite stops for that.

        ShortageError where the machine has no room for it now; the next wish tries again.
        """
        self._wanted.set()
        return await asyncio.shield(self._attempt)

    async def _load(self) -> None:
        try:
            while not self._attempt.done():
                await self._wanted.wait()
                if self._is_over:
                    return
                await self._try()
        finally:
            self._fail(AgentError("The agent cannot be loaded; the sprite's log says why."))

    async def _try(self) -> None:
        try:
            module = await asyncio.to_thread(importlib.import_module, "sprite.agent.equipment")
            boundary = await asyncio.to_thread(find_boundary, self._settings)
        except Exception as error:
            if not is_shortage(error):
                raise
            log.warning("the agent cannot be loaded now: %s", error)
            self._wanted.clear()
            failed, self._attempt = self._attempt, asyncio.get_running_loop().create_future()
            failed.set_exception(ShortageError())
            # Nobody may wait for it, where it was loaded ahead.
            failed.exception()
            return
        log.log(logging.INFO if boundary.holds else logging.WARNING, "the agent's sandbox: %s", boundary.words)
        self._attempt.set_result(self._make(module, boundary))

    def _fail(self, error: AgentError) -> None:
        if not self._attempt.done():
            self._attempt.set_exception(error)
            self._attempt.exception()


class _Announcer:
    """Tells everyone what a curation changed; the rows are read in its own task, not the caller's."""

    def __init__(self, feed: Feed, memory: MemoryDB, view: MemoryView) -> None:
        self._feed = feed
        self._memory = memory
        self._view = view
        self._tell_of_actions: Callable[[], None] = lambda: None
        #: None asks the task to end.
        self._changes: asyncio.Queue[Change | None] = asyncio.Queue()

    def __call__(self, change: Change) -> None:
        """Takes a change; returns at once."""
        self._changes.put_nowait(change)
        if change.actions:
            self._tell_of_actions()

    def when_actions_change(self, tell: Callable[[], None]) -> None:
        """Whom to tell, at once, of changes of actions."""
        self._tell_of_actions = tell

    @asynccontextmanager
    async def running(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Announces while the block runs, and what is left at its end."""
        try:
            async with owned_task(
                self._announce_for_ever(),
                name="announcer",
                on_death=on_death,
                finish=lambda: self._changes.put_nowait(None),
            ):
                yield
        finally:
            # What it had not announced before it died.
            while not self._changes.empty():
                if (change := self._changes.get_nowait()) is not None:
                    await self._announce(change)

    async def _announce_for_ever(self) -> None:
        while (change := await self._changes.get()) is not None:
            await self._announce(change)

    async def _announce(self, change: Change) -> None:
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
            for action_id in change.actions:
                if (action := await self._memory.action(action_id)) is not None:
                    self._feed.publish(ActionUpdate(action_row(action)))
        except Exception:
            # An announcement that fails must not stop the ones after it.
            log.exception("a change of memory could not be announced")


@asynccontextmanager
async def _at_work(
    processor: ObservationProcessor, runtime: AgentRuntime, scheduler: Scheduler, on_death: Callable[[], None]
) -> AsyncIterator[None]:
    """Curates what was left, runs missions, and fires what is due, while the block runs."""
    if await processor.leftovers():
        processor.request()
    runtime.expect_mission()
    # Before the queue runs: what somebody closed while the sprite was away is taken back first.
    await scheduler.try_look()
    async with (
        owned_task(runtime.run(), name="runtime", on_death=on_death, finish=runtime.stop),
        owned_task(scheduler.run(), name="scheduler", on_death=on_death, finish=scheduler.stop),
    ):
        yield


@asynccontextmanager
async def _listening(
    settings: Settings,
    token: str,
    feed: Feed,
    gateway: Gateway,
    on_welcome: Callable[[], None],
    on_death: Callable[[], None],
) -> AsyncIterator[Port]:
    def make(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_known: Callable[[], None]) -> Connection:
        return Connection(
            reader,
            writer,
            token=token,
            feed=feed,
            snapshot=gateway.snapshot,
            handle=gateway.handle,
            on_known=on_known,
            on_welcome=on_welcome,
        )

    async with listening(settings.host, settings.port, make, on_death) as port:
        try:
            yield port
        finally:
            await port.close()
            await feed.drain()


@contextlib.contextmanager
def _address_file(path: Path, address: str) -> Iterator[None]:
    """Says on disk where the sprite listens, for others on this machine, while it does."""
    path.write_text(f"{address}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def install_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT ask for a clean end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
