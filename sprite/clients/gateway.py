"""Message -> runtime or store. No SQL, no sockets: each kind of message has one short handler here."""

from __future__ import annotations

from collections.abc import Callable

from sprite.agent.permissions import PermissionDesk
from sprite.agent.runtime import AgentRuntime
from sprite.clients.acting import act
from sprite.clients.connection import Connection
from sprite.clients.look import PAGE_ROWS, look
from sprite.clients.state_sync import (
    shown,
    state_sync,
)
from sprite.clients.uploads import Uploads
from sprite.config import Settings
from sprite.database.workspace import WorkspaceDB
from sprite.errors import ModelError, PeerError
from sprite.feed import Feed
from sprite.memory.actions import Actions
from sprite.memory.curation.model import check_model
from sprite.memory.forgetting.forget import Forgetter
from sprite.memory.forgetting.plan import Target
from sprite.memory.processor import ObservationProcessor
from sprite.memory.projection.fold import Change
from sprite.memory.projection.projection import Projection
from sprite.memory.recall.view import MemoryView
from sprite.privacy.redaction import discreet
from sprite.protocol.canvas import (
    AnyCanvasInteraction,
    ArchiveCard,
    ArchiveStack,
    CanvasInteraction,
    CreateStack,
    MoveCard,
    RenameStack,
    RestoreCard,
    RestoreStack,
)
from sprite.protocol.frames import (
    ClientMessage,
    encode,
)
from sprite.protocol.memory import (
    AcceptRequest,
    AcceptResult,
    AddActionRequest,
    AnyMemoryRequest,
    AnyMemoryResult,
    ChatRequest,
    ChatResult,
    DeleteUserFileRequest,
    EditRequest,
    EditResult,
    ForgetRequest,
    ForgetResult,
    HealthRequest,
    HealthResult,
    MemoryRequest,
    RejectRequest,
    RejectResult,
    ResolveActionRequest,
    RetryRequest,
    RetryResult,
    UpdateActionRequest,
    UserFilesRequest,
)
from sprite.protocol.messages import (
    CHAT_LIMIT,
    MAX_FRAME_BYTES,
    MAX_MISSION_CHARS,
    Ack,
    CanvasCommand,
    CanvasUpdate,
    FileUpload,
    Heartbeat,
    Interrupt,
    Mission,
    Permission,
    Ping,
    StackUpdate,
    StateSync,
    Status,
    System,
)
from sprite.protocol.rows import Forgotten
from sprite.protocol.shapes import Card, Point, Size
from sprite.schedules.scheduler import Scheduler

#: A person who asks for a flush waits for one call to a model.
FLUSH_SECONDS = 120.0
MAX_NAME_CHARS = 200


class Gateway:
    """Takes every message of every client."""

    def __init__(
        self,
        settings: Settings,
        workspace: WorkspaceDB,
        feed: Feed,
        view: MemoryView,
        projection: Projection,
        processor: ObservationProcessor,
        runtime: AgentRuntime,
        desk: PermissionDesk,
        uploads: Uploads,
        forgetter: Forgetter,
        actions: Actions,
        scheduler: Scheduler,
        on_change: Callable[[Change], None],
    ) -> None:
        self._settings = settings
        self._workspace = workspace
        self._feed = feed
        self._view = view
        self._projection = projection
        self._processor = processor
        self._runtime = runtime
        self._desk = desk
        self._uploads = uploads
        self._forgetter = forgetter
        self._actions = actions
        self._scheduler = scheduler
        self._on_change = on_change

    async def snapshot(self) -> StateSync:
        """What a client gets that is not brought up to date by replay."""
        return await state_sync(self._workspace, self._view, self._feed, self._desk, self._runtime, self._actions)

    async def handle(self, connection: Connection, message: ClientMessage) -> None:
        """Answers one message. PeerError for one that makes no sense; the caller tells the client."""
        match message.payload:
            case Mission() as mission:
                await self._mission(connection, message.id, mission)
            case Heartbeat():
                await self._scheduler.run_due()
                connection.send(Ack("done"), reply_to=message.id)
            case Interrupt(mission_id):
                stopped = await self._runtime.interrupt(mission_id)
                first = stopped[0].id if stopped and stopped[0].kind in {"mission", "turn"} else None
                connection.send(Ack("done", mission_id=first, stopped=stopped), reply_to=message.id)
            case CanvasInteraction() as interaction:
                connection.send(await self._canvas(interaction), reply_to=message.id)
            case FileUpload() as chunk:
                connection.send(await self._upload(chunk), reply_to=message.id)
            case MemoryRequest() as request:
                connection.send(await self._memory(request), reply_to=message.id)
            case Permission(request_id, decision):
                self._desk.answer(request_id, decision)
                connection.send(Ack("done"), reply_to=message.id)
            case System() as system:
                connection.send(await self._system(system), reply_to=message.id)
            case Ping():
                pass
            case _:
                raise PeerError("This connection is authenticated already.", code="unexpected")

    async def _mission(self, connection: Connection, mission_id: str, mission: Mission) -> None:
        if not 0 < len(mission_id) <= MAX_NAME_CHARS:
            raise PeerError("A mission needs an id, by which a resend is known.")
        if not mission.text.strip():
            raise PeerError("The message is empty.")
        if len(mission.stack_id or "") > MAX_NAME_CHARS:
            # It is kept as long as the mission waits; a stack that is gone has a shorter one.
            raise PeerError("There is no such stack.", code="not_found")
        if len(mission.text) > MAX_MISSION_CHARS:
            raise PeerError(
                f"The message has {len(mission.text):,} characters, {MAX_MISSION_CHARS:,} are allowed: send a file.",
                code="too_long",
            )
        before = await self._runtime.submit(mission_id, mission.text, mission.stack_id)
        if before is None:
            connection.send(Ack("duplicate"), reply_to=mission_id)
        else:
            connection.send(Ack("queued" if before else "accepted", position=before), reply_to=mission_id)

    async def _system(self, system: System) -> Status:
        stopped = None
        if system.action == "new_session":
            stopped = await self._runtime.new_session()
        elif system.action == "flush":
            await self._processor.flush_within(FLUSH_SECONDS)
        elif system.action == "revoke":
            self._desk.rules.revoke(system.rule_id)
        elif system.action == "zone":
            await self._actions.set_zone(system.tz or "")
        answers, words = await self._model_check() if system.action == "check_model" else (None, None)
        return Status(
            action=system.action,
            session=self._runtime.session_state(),
            memory=await self._view.state(),
            last_error=self._processor.last_error,
            permissions=self._settings.permissions,
            model=self._runtime.model,
            model_answers=answers,
            model_words=words,
            stopped=stopped,
            rules=self._desk.rules.listed(),
            next_due=await self._actions.next_due(),
            tz=await self._actions.zone(),
        )

    async def _model_check(self) -> tuple[bool, str]:
        try:
            return True, await check_model(self._settings)
        except ModelError as error:
            return False, str(error)

    async def _upload(self, chunk: FileUpload) -> Ack:
        path = await self._uploads.take(chunk)
        return Ack("done" if chunk.last else "accepted", path=path, upload_id=chunk.upload_id, index=chunk.index)

    # --- canvas ---

    async def _canvas(self, interaction: AnyCanvasInteraction) -> Ack:
        match interaction:
            case CreateStack(name):
                ack = await self._changed_stack(await self._workspace.create_stack(_name(name)), found=True)
            case RenameStack(name, stack_id):
                found = await self._workspace.change_stack(stack_id, name=_name(name))
                ack = await self._changed_stack(stack_id, found=found)
            case ArchiveStack(stack_id) | RestoreStack(stack_id):
                archived = isinstance(interaction, ArchiveStack)
                found = await self._workspace.change_stack(stack_id, archived=archived)
                ack = await self._changed_stack(stack_id, found=found)
            case ArchiveCard(card_id) | RestoreCard(card_id):
                ack = await self._archive_card(card_id, archived=isinstance(interaction, ArchiveCard))
            case MoveCard(card_id):
                ack = await self._move_card(await self._card(card_id), interaction)
        return ack

    async def _changed_stack(self, stack_id: str, *, found: bool) -> Ack:
        if not found:
            raise PeerError("There is no such stack.", code="not_found")
        if (stack := await self._workspace.stack(stack_id)) is not None:
            # Other people's screens follow.
            self._feed.publish(StackUpdate(stack_id, stack.name, stack.archived))
        return Ack("done", stack_id=stack_id)

    async def _move_card(self, card: Card, move: MoveCard) -> Ack:
        position = None if move.position is None else Point(move.position.x, move.position.y)
        size = None if move.size is None else Size(move.size.width, move.size.height)
        await self._workspace.move_card(card.card_id, position, size)
        card.position, card.size = position or card.position, size or card.size
        return self._changed_card("update_card", card)

    async def _archive_card(self, card_id: str, *, archived: bool) -> Ack:
        card = await self._card(card_id)
        card.archived = archived
        await self._workspace.archive_card(card_id, archived=archived)
        return self._changed_card("close_card" if archived else "create_card", card)

    async def _card(self, card_id: str) -> Card:
        card = await self._workspace.card(card_id)
        if card is None:
            raise PeerError("There is no such card.", code="not_found")
        return card

    def _changed_card(self, command: CanvasCommand, card: Card) -> Ack:
        # Other people's screens follow.
        self._feed.publish(CanvasUpdate.of(command, card))
        return Ack("done", card_id=card.card_id)

    # --- memory ---

    async def _memory(self, request: AnyMemoryRequest) -> AnyMemoryResult:
        match request:
            case EditRequest() | AcceptRequest() | RejectRequest() | RetryRequest():
                return await self._change(request)
            case AddActionRequest() | UpdateActionRequest() | ResolveActionRequest():
                return await act(self._actions, self._view, request)
            case ForgetRequest():
                return await self._forget(request)
            case ChatRequest(before, limit):
                return await self._chat(before, limit or PAGE_ROWS)
            case HealthRequest():
                last_error = self._processor.last_error
                return HealthResult(
                    await self._view.health(daily_cap_usd=self._settings.daily_usd, last_error=last_error)
                )
            case UserFilesRequest() | DeleteUserFileRequest():
                raise NotImplementedError
            case _:
                return await look(self._view, request)

    async def _change(self, request: EditRequest | AcceptRequest | RejectRequest | RetryRequest) -> AnyMemoryResult:
        result: AnyMemoryResult
        match request:
            case EditRequest(version=int()) | AcceptRequest(curation_id=int()) | RejectRequest(curation_id=int()):
                # Whoever says what they have seen may be refused for what a hand has written since: every page hears
                # of that all the same.
                self._publish(await self._projection.settle())
        match request:
            case EditRequest(name, content, version):
                self._publish(await self._projection.edit(name, content, version))
                result = EditResult(name, *await self._view.file(name))
            case AcceptRequest(name, seen):
                self._publish(await self._projection.accept(name, seen))
                result = AcceptResult(name, *await self._view.file(name))
            case RejectRequest(name, seen):
                self._publish(await self._projection.reject(name, seen))
                result = RejectResult(name, *await self._view.file(name))
            case RetryRequest(turn_id):
                self._publish(await self._projection.retry(turn_id))
                self._processor.request()
                result = RetryResult(await self._view.quarantined())
        return result

    async def _chat(self, before: int | None, limit: int) -> ChatResult:
        limit = max(1, min(limit, CHAT_LIMIT))
        result = ChatResult(shown(await self._workspace.chat(limit, before)))
        while len(result.chat) > 1 and len(encode(result)) > MAX_FRAME_BYTES:
            # The older half is asked for again.
            result.chat = result.chat[len(result.chat) // 2 :]
        return result

    async def _forget(self, request: ForgetRequest) -> ForgetResult:
        target = Target(request.text, request.turn, request.session, request.learning)
        if request.preview:
            try:
                return ForgetResult(await self._forgetter.preview(target), done=False)
            except PeerError as error:
                if error.code != "not_found" or not self._runtime.is_busy:
                    raise
                # What is being said is on the screens before it is in the log.
                words = f"{error} A turn is under way: what it says is in memory when it ends, so ask again then."
                raise PeerError(words, code="not_found") from error

        async def forget() -> Forgotten:
            # What happened before has to be written by now, or its events would be written after they were dropped.
            await self._feed.drain()
            async with self._feed.rewritten():
                return await self._forgetter.forget(target, sure=request.yes)

        forgotten = await self._runtime.at_rest(forget)
        # What is on people's screens still has the words: everyone gets the state as it now is.
        self._feed.publish(await self.snapshot(), durable=False)
        return ForgetResult(forgotten, done=True)

    def _publish(self, changes: list[Change]) -> None:
        for change in changes:
            self._on_change(change)


def _name(value: str) -> str:
    name = discreet(" ".join(value.split()))[:MAX_NAME_CHARS]
    if not name:
        raise PeerError("A stack needs a name.")
    return name
