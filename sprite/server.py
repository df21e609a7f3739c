"""The composition root: open everything in order, listen, and close in reverse order.

The order of entries is the order of start-up. Signals set an event, nothing more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from sprite.agent.background import Background
from sprite.agent.memory_events import MemoryEvents
from sprite.agent.permissions import PermissionBroker, StandingRules
from sprite.agent.processes import end_orphans, end_programs
from sprite.agent.rules import RuleDesk
from sprite.agent.runtime import AgentRuntime
from sprite.agent.session import LazyAgent, Session
from sprite.backup import restore as moving_in
from sprite.backup.replicator import Shipping
from sprite.boot.canvas import CanvasContext
from sprite.boot.project import BootFiles, ProjectBoot
from sprite.boot.prompt import BootPrompt
from sprite.capture.recorder import TurnRecorder
from sprite.common import own_secrets
from sprite.common.files import replace_file
from sprite.common.orphans import adopting
from sprite.common.settings import is_loopback
from sprite.common.settings import secrets as secrets_of
from sprite.common.tasks import owned_task
from sprite.config import Settings
from sprite.curation.processor import ObservationProcessor
from sprite.errors import OperatorError
from sprite.forget.forget import Forgetter
from sprite.gateway.canvas import PersonsCanvas
from sprite.gateway.connection import Leases, Port, Service, listening
from sprite.gateway.dispatch import Gateway, Memory, Work
from sprite.gateway.ingest import ObservationIngest
from sprite.gateway.uploads import Uploads
from sprite.labels.outside import OutsideFiles
from sprite.labels.session import SessionLabel
from sprite.log.transcript import TranscriptDB, open_transcript
from sprite.memory.actions import Actions
from sprite.memory.files import MemoryFiles
from sprite.memory.folders import UPLOADS, make_folders, workspace_lock
from sprite.memory.opening import open_own_memory
from sprite.memory.projection import AgentWatch, Projection
from sprite.privacy.private_text import PrivateText
from sprite.privacy.redaction import prepare
from sprite.sandbox.egress import EgressProxy
from sprite.sandbox.hosts import HostGate, Moment
from sprite.sandbox.model_door import model_door
from sprite.scheduler.keep_awake import kept_awake
from sprite.scheduler.scheduler import Scheduler
from sprite.search.meaning.meaning import Meaning, open_meaning
from sprite.search.view import MemoryView
from sprite.undo.undo import tracked
from sprite.workspace.database import WorkspaceDB, open_workspace
from sprite.workspace.feed import Feed
from sprite.workspace.user_files import UserFiles

log = logging.getLogger(__name__)


async def serve(settings: Settings, on_listening: Callable[[str, int], None], stop: asyncio.Event) -> None:
    """Run a sprite until `stop` is set. Raises OperatorError if the workspace cannot be used.

    A task that dies also sets `stop`: TaskDiedError names it, after everything was closed in order.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(_taken(settings))
        stack.push_async_callback(end_programs, settings.cli_state)
        token = _token(settings)
        transcript = await stack.enter_async_context(open_transcript(settings.transcript_db))
        memory = await stack.enter_async_context(open_own_memory(settings.memory_db, transcript))
        workspace = await stack.enter_async_context(open_workspace(settings.workspace_db))
        private_text = PrivateText()
        feed = Feed(workspace, await workspace.last_seq(), private_text.others)
        await stack.enter_async_context(feed.running(stop.set))

        (files := MemoryFiles(settings.memory)).ensure()
        projection = Projection(transcript, memory, files, lambda words: feed.warn("over_limit", words))
        # Changes by the agent of a killed sprite must not count as the person's.
        await projection.agent_rests()
        shipping = Shipping(settings, transcript, workspace)
        meaning = await stack.enter_async_context(open_meaning(settings, transcript))
        forgetter = Forgetter(settings, transcript, memory, workspace, projection, (meaning, shipping))
        await forgetter.finish_interrupted()
        view = MemoryView(transcript, memory, files, settings.own_project, meaning)
        boots = BootFiles(settings.boot_files, transcript, ProjectBoot(files, memory, transcript))
        announce = MemoryEvents(feed, memory, view, boots.changed)
        user_files = UserFiles(settings.workspace, transcript, private_text.others)
        tracker, undoing = await stack.enter_async_context(
            tracked(settings, workspace, transcript, user_files, stop.set)
        )
        processor = ObservationProcessor(
            settings,
            transcript,
            memory,
            projection,
            announce,
            is_left=lambda: feed.audience == 0,
            user_files=user_files,
            on_turn=partial(_turns_changed, boots, meaning),
        )
        actions = Actions(projection, memory, announce, discreet=private_text.others)
        await stack.enter_async_context(announce.running(stop.set))
        await stack.enter_async_context(processor.running(stop.set))
        recorder = TurnRecorder(transcript, lambda words: feed.warn("storage", words), private_text)
        desk = await _desk(settings, transcript, workspace, user_files, feed)
        await (rules := RuleDesk(transcript, memory, projection, feed, desk, announce)).load()
        (uploads := Uploads(settings.workspace, settings.run / UPLOADS)).prepare()

        sight = CanvasContext(workspace)
        agent = LazyAgent(
            settings,
            lambda module, boundary: module.Agent(
                settings,
                feed,
                recorder,
                boundary,
                AgentWatch(projection, announce, whole_session=not boundary.holds),
                rules,
                user_files,
                module.own_tools(
                    workspace,
                    feed,
                    view,
                    sight,
                    actions,
                    settings.workspace,
                    processor.read,
                    proxy.fetch,
                ),
            ),
        )
        session = Session(
            settings,
            transcript,
            recorder,
            BootPrompt(files, memory, transcript, settings.egress, sight.canvas, user_files),
            agent.ready,
            Background(private_text.others),
            sight,
        )
        runtime = AgentRuntime(transcript, workspace, feed, recorder, processor, session, desk, settings)
        proxy = await stack.enter_async_context(
            _egress(settings, workspace, desk, lambda: Moment(session.id, runtime.turn_id, desk.label.is_exposed))
        )
        await runtime.restore(tracker)
        scheduler = Scheduler(actions, transcript.curations, workspace, feed, runtime, settings)
        announce.on_actions = scheduler.changed
        gateway = Gateway(
            settings,
            workspace,
            feed,
            Work(runtime, rules, scheduler.run_due, actions, undoing, proxy, lambda: agent.boundary),
            Memory(
                view,
                projection,
                processor,
                forgetter,
                # Private words of other programs' conversations are tracked separately.
                ObservationIngest(transcript, processor.turn_ended, PrivateText, settings.own_project),
                boots,
                shipping,
                announce,
            ),
            PersonsCanvas(workspace, feed, private_text, sight),
            uploads,
            user_files,
        )

        # Load the redaction rules before any client can connect, so that no turn waits for them or fails for lack of
        # memory.
        await asyncio.to_thread(prepare)
        port = await stack.enter_async_context(
            _listening(
                settings,
                Service(
                    token,
                    feed,
                    gateway.snapshot,
                    gateway.handle,
                    runtime.expect_mission,
                    Leases(workspace, await workspace.lease()),
                ),
                stop.set,
                shipping,
            )
        )
        stack.enter_context(_address_file(settings.address_file, "{}:{}".format(*port.address)))
        on_listening(*port.address)
        # Parallel to the listener: importing the SDKs takes a second, and clients should not wait for it.
        await stack.enter_async_context(agent.loading(stop.set))
        await stack.enter_async_context(
            kept_awake(settings.vm_socket, lambda: runtime.needs_machine or processor.needs_machine, stop.set)
        )
        await stack.enter_async_context(_at_work(processor, runtime, scheduler, boots, meaning, stop.set))
        await stop.wait()
        log.info(
            "stopping: the turn is stored; %d waiting turns or more are curated now, fewer after the next start",
            settings.least_turns,
        )
        # Accept no new clients; connected ones still receive the end.
        await port.close()


@contextlib.contextmanager
def _taken(settings: Settings) -> Iterator[None]:
    """Own the workspace: create its folders, complete an interrupted import, end programs that a killed sprite left."""
    if settings.on_plan and (not is_loopback(settings.host) or settings.vm_socket.exists()):
        raise OperatorError(
            "CLAUDE_CODE_OAUTH_TOKEN is your own login, for a sprite on your own machine that listens on loopback. "
            "Set ANTHROPIC_API_KEY for this sprite instead."
        )
    make_folders(settings)
    with workspace_lock(settings):
        moving_in.finish(settings)
        end_orphans(settings.cli_state)
        yield


def _token(settings: Settings) -> str:
    """Return the port's token; from now on redact it and the other credentials."""
    token = settings.token or _kept_token(settings.token_file)
    own_secrets.hold(token, *secrets_of(settings), urlsplit(settings.connections or "").password)
    return token


def _kept_token(path: Path) -> str:
    """Return the token in a file; the first start creates it. Raises OperatorError if the file is not text."""
    try:
        known = path.read_text().strip() if path.exists() else ""
    except UnicodeDecodeError as error:
        raise OperatorError(f"{path} contains no valid token. Delete it: the next start creates a new one.") from error
    if not known:
        replace_file(path, f"{secrets.token_urlsafe(32)}\n".encode())
    return path.read_text().strip()


async def _desk(
    settings: Settings, transcript: TranscriptDB, workspace: WorkspaceDB, user_files: UserFiles, feed: Feed
) -> PermissionBroker:
    """Return the broker that asks the person for permissions, with the label of the current session."""
    outside = OutsideFiles(workspace.file_changes, settings.workspace)
    await outside.load()
    label = SessionLabel(settings, transcript, outside)
    user_files.on_upload = label.uploaded
    return PermissionBroker(feed, StandingRules(settings.workspace), label)


@asynccontextmanager
async def _egress(
    settings: Settings, workspace: WorkspaceDB, desk: PermissionBroker, now: Callable[[], Moment]
) -> AsyncIterator[EgressProxy]:
    """Run the proxy through which the agent reaches the network, but not an unencrypted model endpoint."""
    host, port, is_https = settings.model_endpoint
    proxy = EgressProxy(
        settings.egress_socket,
        HostGate(settings.egress, workspace.hosts, now, desk.ask_host),
        always=(host, port) if is_https else None,
        never=frozenset() if is_https else frozenset({host}),
        inside=settings.egress_inside,
    )
    desk.label.hosts_since = proxy.hosts_since
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


@asynccontextmanager
async def _at_work(
    processor: ObservationProcessor,
    runtime: AgentRuntime,
    scheduler: Scheduler,
    boots: BootFiles,
    meaning: Meaning | None,
    on_death: Callable[[], None],
) -> AsyncIterator[None]:
    """While the block runs: curate turns left over, run missions and schedules, write boot files, embed turns."""
    await processor.take_up()
    runtime.expect_mission()
    # Before the queue runs: withdraw missions of actions closed while the sprite was stopped.
    await scheduler.try_look()
    async with (
        # Ends last, so that it writes what the runtime's end has curated.
        boots.running(on_death),
        owned_task(runtime.run(), name="runtime", on_death=on_death, finish=runtime.stop),
        owned_task(scheduler.run(), name="scheduler", on_death=on_death, finish=scheduler.stop),
        owned_task(runtime.tell_slow_work(), name="slow work", on_death=on_death),
        owned_task(runtime.live_output.run(), name="live output", on_death=on_death),
        _embedding(processor, runtime, meaning, on_death),
    ):
        yield


def _turns_changed(boots: BootFiles, meaning: Meaning | None) -> None:
    boots.changed()
    if meaning:
        meaning.turns_changed()


@asynccontextmanager
async def _embedding(
    processor: ObservationProcessor, runtime: AgentRuntime, meaning: Meaning | None, on_death: Callable[[], None]
) -> AsyncIterator[None]:
    if meaning is None:
        yield
        return
    processor.on_turn_began = meaning.turn_began
    work = meaning.run(lambda: runtime.is_busy)
    async with owned_task(work, name="meaning", on_death=on_death, may_return=True):
        yield


@asynccontextmanager
async def _listening(
    settings: Settings, service: Service, on_death: Callable[[], None], shipping: Shipping
) -> AsyncIterator[Port]:
    # From the listener on, a lack of descriptors must not end the sprite: open all other sockets before it.
    async with model_door(settings), listening(settings.host, settings.port, service, on_death) as port:
        try:
            yield port
        finally:
            await port.close()
            await service.feed.drain()
            # The session's end has been curated by now.
            await shipping.finish()


@contextlib.contextmanager
def _address_file(path: Path, address: str) -> Iterator[None]:
    """Write the sprite's address to disk while it listens, for programs on this machine."""
    path.write_text(f"{address}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


async def serve_until_signal(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT requests a clean end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with adopting():
        await serve(settings, _say_address, stop)
    return 0


def _say_address(host: str, port: int) -> None:
    sys.stdout.write(f"sprite listening on {host}:{port}\n")
    sys.stdout.flush()
