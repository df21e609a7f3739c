"""Message -> runtime or store. No SQL, no sockets: each kind of message has one short handler here."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sprite.agent.memory_events import MemoryEvents
from sprite.agent.rules import RuleDesk
from sprite.agent.runtime import AgentRuntime
from sprite.backup.replicator import Shipping
from sprite.boot.project import BootFiles
from sprite.common import own_secrets
from sprite.common.prices import OFFLINE, PRICES
from sprite.config import Settings
from sprite.curation.model import check_model
from sprite.curation.processor import ObservationProcessor
from sprite.errors import ModelError, PeerError
from sprite.forget.forget import Forgetter
from sprite.forget.plan import Plan, Target
from sprite.gateway.canvas import PersonsCanvas
from sprite.gateway.connection import Connection
from sprite.gateway.ingest import ObservationIngest
from sprite.gateway.queries import PAGE_ROWS, act, cut_to_fit, look, reach, shown
from sprite.gateway.uploads import Uploads
from sprite.log.curations import seconds_since_midnight
from sprite.memory.actions import Actions
from sprite.memory.decision import Change
from sprite.memory.projection import Projection
from sprite.protocol import memory as wire
from sprite.protocol import messages
from sprite.protocol.files import PICTURES
from sprite.protocol.frames import ClientMessage, encode
from sprite.protocol.observing import Observe
from sprite.protocol.pasted import problem_of, to_spans
from sprite.protocol.replication import Ship, ShipAck
from sprite.protocol.shapes import MemoryState, Place, Spend
from sprite.sandbox.egress import EgressProxy
from sprite.sandbox.sandbox import Boundary
from sprite.search.view import MemoryView
from sprite.undo.undo import Undoing
from sprite.workspace.database import WorkspaceDB
from sprite.workspace.feed import Feed
from sprite.workspace.user_files import UserFiles, picture_blocks

_Correction = wire.EditRequest | wire.AcceptRequest | wire.RejectRequest | wire.RetryRequest | wire.LearningRequest
#: A flush on request waits for one call to a model.
FLUSH_SECONDS = 120.0
#: The answer to a flush waits so long until clients were sent what was learned. A proposed rule reads the whole log.
ANNOUNCE_SECONDS = 10.0
#: The bridge's replica confirms a forget within moments unless its database is stalled.
CONFIRM_SECONDS = 10.0
#: Limit for the ids of a message and of its stack.
MAX_ID_CHARS = 200
#: Limit for a question, an action, or a text to forget. `_NAMELESS` stands for a program without a printable name.
MAX_WORDS_CHARS = 4000
_NAMELESS = "a program"


@dataclass(frozen=True, slots=True)
class Work:
    """The sprite's parts that run missions, and those that bound and undo what missions do."""

    runtime: AgentRuntime
    rules: RuleDesk
    #: Runs the actions that are due, and returns when they have ended.
    run_due: Callable[[], Awaitable[None]]
    actions: Actions
    undoing: Undoing
    network: EgressProxy
    #: Returns the detected sandbox, or None until the agent's first start.
    boundary: Callable[[], Boundary | None]


@dataclass(frozen=True, slots=True)
class Memory:
    """The view of memory, and the objects that change, curate, forget, import and replicate memory."""

    view: MemoryView
    projection: Projection
    processor: ObservationProcessor
    forgetter: Forgetter
    intake: ObservationIngest
    boots: BootFiles
    shipping: Shipping
    announce: MemoryEvents


class Gateway:
    """Handle every message of every client."""

    def __init__(
        self,
        settings: Settings,
        workspace: WorkspaceDB,
        feed: Feed,
        work: Work,
        memory: Memory,
        canvas: PersonsCanvas,
        uploads: Uploads,
        user_files: UserFiles,
    ) -> None:
        self._settings = settings
        self._workspace = workspace
        self._feed = feed
        self._work = work
        self._memory = memory
        self._canvas = canvas
        self._uploads = uploads
        self._user_files = user_files

    async def snapshot(self) -> messages.StateSync:
        """Return the state for a client that cannot be updated by replay."""
        memory, runtime, workspace = await self._memory_state(), self._work.runtime, self._workspace
        stacks, cards = await workspace.stacks(), await workspace.cards()
        chat = await workspace.chat(messages.CHAT_LIMIT)
        next_due, tz = await self._work.actions.next_due(), await self._work.actions.zone()
        # No await from here on, so that all parts are of one moment.
        session = runtime.session_state()
        sync = messages.StateSync(
            stacks=stacks,
            cards=cards,
            chat=shown(chat),
            session=session,
            memory=memory,
            permissions=self._work.rules.desk.questions(),
            running=self._feed.underway.shown(),
            queued=runtime.inbox.queued(),
            model=session.model,
            next_due=next_due,
            tz=tz,
        )
        return cut_to_fit(sync)

    async def handle(self, connection: Connection, message: ClientMessage) -> None:
        """Answer one message. Raises PeerError for an invalid one; the caller reports it to the client."""
        _check_lengths(message.payload)
        match message.payload:
            case messages.Mission() as mission:
                await self._mission(connection, message.id, mission)
            case messages.Ping():
                pass
            case Ship() as asked:
                await self._memory.shipping.ship(connection, asked, connection.send)
            case ShipAck(through):
                await self._memory.shipping.acknowledge(connection, through)
            case _:
                connection.send(await self._answer(message), reply_to=message.id)

    async def _answer(self, message: ClientMessage) -> messages.ServerPayload:
        answer: messages.ServerPayload = messages.Ack("done")
        match message.payload:
            case messages.Heartbeat():
                await self._work.run_due()
            case messages.Interrupt(mission_id):
                stopped = await self._work.runtime.interrupt(mission_id)
                first = stopped[0].id if stopped and stopped[0].kind in {"mission", "turn"} else None
                answer = messages.Ack("done", mission_id=first, stopped=stopped)
            case messages.CanvasInteraction() as interaction:
                answer = await self._canvas.take(interaction, message.id)
            case messages.FileUpload() as chunk:
                answer = await self._upload(chunk)
            case wire.MemoryRequest() as request:
                answer = await self._asked_of_memory(request)
            case Observe() as observed:
                answer = await self._memory.intake.take(observed)
            case messages.Permission() | messages.Rule() as word:
                await self._permit(word)
            case messages.System() as system:
                answer = await self._system(system)
            case messages.Reach(revoke):
                answer = await self._reach(revoke)
            case _:
                raise PeerError("This connection is authenticated already.", code="unexpected")
        return answer

    async def _permit(self, word: messages.Permission | messages.Rule) -> None:
        """Handle a person's answer to a permission question, or their word about a rule."""
        if isinstance(word, messages.Permission):
            self._work.rules.desk.answer(word.request_id, word.decision)
            self._work.undoing.permitted()
        elif word.action == "propose":
            await self._work.rules.propose(own_secrets.without(word.text[:MAX_WORDS_CHARS]), word.id)
        else:
            await self._work.rules.answer(word.id, word.action)

    async def _mission(self, connection: Connection, mission_id: str, mission: messages.Mission) -> None:
        if not 0 < len(mission_id) <= MAX_ID_CHARS:
            raise PeerError("A mission needs an id, by which a repeated message is recognised.")
        if not mission.text.strip():
            raise PeerError("The message is empty.")
        if len(mission.stack_id or "") > MAX_ID_CHARS:
            # It is stored while the mission waits; ids of former stacks are shorter.
            raise PeerError("There is no such stack.", code="not_found")
        if len(mission.text) > messages.MAX_MISSION_CHARS:
            raise PeerError(
                f"The message has {len(mission.text):,} characters; at most {messages.MAX_MISSION_CHARS:,} are "
                "allowed. Send a file.",
                code="too_long",
            )
        pasted = to_spans(mission.pasted)
        if (problem := problem_of(mission.text, pasted)) is not None:
            raise PeerError(problem)
        asked_by = None if mission.asked_by is None else _program(mission.asked_by)
        before = await self._work.runtime.submit(
            mission_id,
            mission.text,
            mission.stack_id,
            asked_by=asked_by,
            pasted=pasted,
            images=await self._pictures(mission.images),
        )
        if before is None:
            connection.send(messages.Ack("duplicate"), reply_to=mission_id)
        else:
            connection.send(messages.Ack("queued" if before else "accepted", position=before), reply_to=mission_id)

    async def _pictures(self, images: list[messages.Image]) -> list[str]:
        """Store a message's pictures as the person's files; return their paths. PeerError for an unfit one."""
        paths = []
        for image in images[: messages.MOST_PICTURES + 1]:
            path = image.path
            if image.data is None and not path:
                words = "A picture needs its `data` with a `media_type`, or the `path` of an uploaded file."
                raise PeerError(words, code="bad_picture")
            if image.data is not None:
                if image.media_type and image.media_type not in PICTURES.values():
                    kinds = ", ".join(PICTURES.values())
                    words = f"{image.media_type[:MAX_ID_CHARS]!r} is not a supported type of picture: {kinds}."
                    raise PeerError(words, code="bad_picture")
                name = f"picture.{image.media_type.rpartition('/')[2]}"
                path = (await self._upload(messages.FileUpload(str(uuid.uuid4()), name, 0, True, image.data))).path
            paths.append(path or "")
        await asyncio.to_thread(picture_blocks, self._settings.workspace, paths)
        return paths

    async def _system(self, system: messages.System) -> messages.Status:
        stopped = None
        if system.action == "new_session":
            stopped = await self._work.runtime.new_session()
        elif system.action == "resume_session":
            await self._work.runtime.resume_session(system.session_id or "")
        elif system.action == "flush":
            await self._memory.processor.flush_all_within(FLUSH_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._memory.announce.settled(), ANNOUNCE_SECONDS)
        elif system.action == "revoke":
            self._work.rules.desk.rules.revoke(system.rule_id)
        elif system.action == "model":
            await self._work.runtime.choose_model(system.model, system.effort)
        elif system.action == "go_on":
            await self._work.runtime.go_on()
        elif system.action == "zone":
            await self._work.actions.set_zone(system.tz or "")
            await self._work.rules.load()
        answers, words = await self._model_check() if system.action == "check_model" else (None, None)
        memory, spend = await self._memory_state(), await self._spend()
        next_due, tz = await self._work.actions.next_due(), await self._work.actions.zone()
        # No await from here on, so that later session changes are sent after this status.
        session = self._work.runtime.session_state()
        return messages.Status(
            action=system.action,
            session=session,
            memory=memory,
            last_error=self._memory.processor.last_error,
            permissions=self._settings.permissions,
            model=session.model,
            model_answers=answers,
            model_words=words,
            stopped=stopped,
            rules=self._work.rules.desk.rules.listed(),
            next_due=next_due,
            tz=tz,
            spend=spend,
            models=[name for name in PRICES if name != OFFLINE],
        )

    async def _reach(self, revoke: str | None) -> messages.ReachResult:
        work = self._work
        if revoke is not None and not await work.network.revoke(revoke):
            raise PeerError(f"{revoke[:MAX_ID_CHARS]} is not a host that you allowed.", code="not_found")
        return await reach(self._settings, self._workspace.hosts, work.network, work.boundary())

    async def _memory_state(self) -> MemoryState:
        state = await self._memory.view.state()
        state.unshipped_forgets = await self._workspace.ship_state.tombstones()
        return state

    async def _spend(self) -> Spend:
        midnight = time.time() - seconds_since_midnight()
        session = self._work.runtime.session_state()
        spend = await self._workspace.spend(midnight, session.session_id)
        spend.today.memory = await self._memory.view.spent(midnight)
        if session.started_at:
            spend.session.memory = await self._memory.view.spent(session.started_at)
        spend.plan = self._work.runtime.plan_limits if self._settings.on_plan else None
        return spend

    async def _model_check(self) -> tuple[bool, str]:
        try:
            return True, await check_model(self._settings)
        except ModelError as error:
            return False, str(error)

    async def _upload(self, chunk: messages.FileUpload) -> messages.Ack:
        path = await self._uploads.take(chunk)
        if path is not None:
            await self._user_files.uploaded(path)
        return messages.Ack(
            "done" if chunk.last else "accepted", path=path, upload_id=chunk.upload_id, index=chunk.index
        )

    async def _asked_of_memory(self, request: wire.MemoryRequest) -> wire.MemoryResult | messages.Error:
        if isinstance(request, _Correction):
            return await self._change(request)
        result: wire.MemoryResult | messages.Error
        match request:
            case wire.AddActionRequest() | wire.UpdateActionRequest() | wire.ResolveActionRequest():
                result = await act(self._work.actions, self._memory.view, request)
            case wire.ForgetRequest():
                result = await self._forget(request)
            case wire.SessionsRequest(before, limit):
                result = wire.SessionsResult(await self._workspace.sessions(limit or PAGE_ROWS, before))
            case wire.RenameSessionRequest(session_id, title):
                await self._workspace.rename_session(session_id, own_secrets.without(title))
                result = wire.RenameSessionResult(session_id)
            case wire.ChatRequest(before, limit):
                result = await self._chat(before, limit or PAGE_ROWS)
            case wire.HealthRequest():
                last_error = self._memory.processor.last_error
                health = await self._memory.view.health(daily_cap_usd=self._settings.daily_usd, last_error=last_error)
                health.spend = await self._spend()
                result = wire.HealthResult(health)
            case wire.UserFilesRequest() | wire.DeleteUserFileRequest() | wire.ChangesRequest() | wire.UndoRequest():
                result = await self._files(request)
            case wire.BootRequest(project):
                result = wire.BootResult(await self._memory.boots.boot.text(self._memory.view.project(project)))
            case _:
                result = await look(self._memory.view, request, self._settings.run)
        return result

    async def _change(self, request: _Correction) -> wire.MemoryResult:
        result: wire.MemoryResult
        match request:
            case (
                wire.EditRequest(version=int())
                | wire.AcceptRequest(curation_id=int())
                | wire.RejectRequest(curation_id=int())
            ):
                # A request based on an older version may be refused because the file changed on disk. Announce that
                # change to every client first.
                self._publish(await self._memory.projection.settle())
        match request:
            case wire.EditRequest(name, content, version):
                self._publish(await self._memory.projection.edit(name, own_secrets.without(content), version))
                result = wire.EditResult(name, *await self._memory.view.file(name))
            case wire.AcceptRequest(name, seen):
                self._publish(await self._memory.projection.accept(name, seen))
                result = wire.AcceptResult(name, *await self._memory.view.file(name))
            case wire.RejectRequest(name, seen):
                self._publish(await self._memory.projection.reject(name, seen))
                result = wire.RejectResult(name, *await self._memory.view.file(name))
            case wire.LearningRequest(learning_id, answer, content):
                self._publish(await self._memory.projection.answer(learning_id, answer, own_secrets.without(content)))
                learning = await self._memory.view.learning(learning_id)
                if answer == "edit" and learning.superseded_by:
                    learning = await self._memory.view.learning(learning.superseded_by)
                result = wire.LearningResult(learning)
            case wire.RetryRequest(turn_id):
                self._publish(await self._memory.projection.retry(turn_id))
                self._memory.processor.request(all_=True)
                result = wire.RetryResult(await self._memory.view.quarantined())
        return result

    async def _chat(self, before: int | None, limit: int) -> wire.ChatResult:
        limit = max(1, min(limit, messages.CHAT_LIMIT))
        result = wire.ChatResult(shown(await self._workspace.chat(limit, before)))
        while len(result.chat) > 1 and len(encode(result)) > messages.MAX_FRAME_BYTES:
            # The client asks for the older half again.
            result.chat = result.chat[len(result.chat) // 2 :]
        return result

    async def _files(
        self, request: wire.UserFilesRequest | wire.DeleteUserFileRequest | wire.ChangesRequest | wire.UndoRequest
    ) -> wire.MemoryResult:
        if isinstance(request, wire.UndoRequest):
            return await self._undo(request)
        if isinstance(request, wire.DeleteUserFileRequest):
            await self._user_files.delete(request.path)
            return wire.DeleteUserFileResult(request.path)
        result: wire.ChangesResult | wire.UserFilesResult
        if isinstance(request, wire.ChangesRequest):
            result = await self._work.undoing.changes(request.turn)
        else:
            result = wire.UserFilesResult(*await self._user_files.listed(request.folder))
        while len(result.files) > 1 and len(encode(result)) > messages.MAX_FRAME_BYTES:
            # Names may have 4,096 characters each.
            kept = len(result.files) // 2
            result.more += len(result.files) - kept
            del result.files[kept:]
        return result

    async def _undo(self, request: wire.UndoRequest) -> wire.UndoResult:
        if self._work.runtime.is_busy:
            raise PeerError("A turn is under way. Wait for its end, or stop it.", code="busy")

        undo = partial(self._work.undoing.undo, request.turn, request.paths, request.over)
        return await self._work.runtime.inbox.in_turn(undo)

    async def _forget(self, request: wire.ForgetRequest) -> wire.ForgetResult:
        target = Target(request.text, request.turn, request.session, request.learning)
        if request.preview:
            try:
                preview = await self._memory.forgetter.preview(target)
                if self._work.runtime.is_busy:
                    preview.gone.append(
                        Place("the turn under way", "is finished first; what it says about this is forgotten, too")
                    )
                return wire.ForgetResult(preview, done=False)
            except PeerError as error:
                if error.code != "not_found" or not self._work.runtime.is_busy:
                    raise
                # Clients see a running turn before it is in the log.
                words = f"{error} A turn is running, and memory gets its words when it ends. Try again then."
                raise PeerError(words, code="not_found") from error

        async def forget() -> Plan:
            # Earlier events must be written by now, or they would be written after they were deleted.
            await self._feed.drain()
            # The old state of memory must not be written after this.
            async with self._feed.rewritten(), self._memory.boots.writing:
                return await self._memory.forgetter.forget(target, sure=request.yes)

        made = await self._work.runtime.at_rest(forget)
        self._memory.boots.changed()
        await self._work.rules.load()
        # Clients still show the text, so send everyone the new state.
        self._feed.publish(await self.snapshot(), durable=False)
        # If the machine is lost now, it would be restored with the text from an old replica.
        is_done = await self._memory.shipping.has_forgotten(CONFIRM_SECONDS)
        return wire.ForgetResult(await self._memory.forgetter.search(made), done=is_done)

    def _publish(self, changes: list[Change]) -> None:
        for change in changes:
            self._memory.announce(change)


def _check_lengths(payload: messages.ClientPayload) -> None:
    """Raise PeerError if a text in a request, such as a query, is too long to be handled in a short time."""
    if isinstance(payload, wire.MemoryRequest) and not isinstance(payload, wire.EditRequest):
        for name in ("query", "text", "content", "title", "line"):
            value = getattr(payload, name, None)
            if isinstance(value, str) and len(value) > MAX_WORDS_CHARS:
                words = f"`{name}` has {len(value):,} characters, {MAX_WORDS_CHARS:,} are allowed."
                raise PeerError(words, code="too_long")


def _program(name: str) -> str:
    """Return a program's name in the form to store and show: one line, and never empty."""
    shown = "".join(sign if sign.isprintable() else " " for sign in name[: 4 * messages.MAX_ASKED_BY_CHARS])
    return " ".join(shown.split())[: messages.MAX_ASKED_BY_CHARS] or _NAMELESS
