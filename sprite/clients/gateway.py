"""Message -> runtime or store. No SQL, no sockets: each kind of message has one short handler here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sprite.agent.permissions import PermissionDesk
from sprite.agent.runtime import AgentRuntime
from sprite.clients.connection import Connection
from sprite.clients.state_sync import (
    shown,
    state_sync,
)
from sprite.clients.uploads import Uploads
from sprite.config import Settings
from sprite.database.connection import LARGEST_ROW_ID
from sprite.database.workspace import WorkspaceDB
from sprite.errors import PeerError
from sprite.feed import Feed
from sprite.memory.forgetting.forget import Forgetter
from sprite.memory.forgetting.plan import Target
from sprite.memory.processor import ObservationProcessor
from sprite.memory.projection.fold import Change
from sprite.memory.projection.projection import Projection
from sprite.memory.recall.search import DEFAULT_LIMIT
from sprite.memory.recall.view import MemoryView
from sprite.privacy.redaction import discreet
from sprite.protocol.frames import (
    ClientMessage,
    encode,
)
from sprite.protocol.messages import (
    CHAT_LIMIT,
    MAX_FRAME_BYTES,
    MAX_MISSION_CHARS,
    Ack,
    CanvasCommand,
    CanvasInteraction,
    CanvasUpdate,
    FileUpload,
    Heartbeat,
    Interrupt,
    MemoryRequest,
    MemoryResult,
    Mission,
    Permission,
    Ping,
    StackUpdate,
    StateSync,
    Status,
    System,
)

#: A person who asks for a flush waits for one call to a model.
FLUSH_SECONDS = 120.0
MAX_NAME_CHARS = 200
#: Rows of a list where a client names no limit.
PAGE_ROWS = 100
_T = TypeVar("_T")


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
        self._on_change = on_change

    async def snapshot(self) -> StateSync:
        """What a client gets that is not brought up to date by replay."""
        return await state_sync(self._workspace, self._view, self._feed, self._desk, self._runtime)

    async def handle(self, connection: Connection, message: ClientMessage) -> None:
        """Answers one message. PeerError for one that makes no sense; whoever called tells the client."""
        match message.payload:
            case Mission() as mission:
                await self._mission(connection, message.id, mission)
            case Heartbeat():
                await self._runtime.heartbeat()
                connection.send(Ack("done"), reply_to=message.id)
            case Interrupt(mission_id):
                connection.send(Ack("done", mission_id=self._runtime.interrupt(mission_id)), reply_to=message.id)
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
        if system.action == "new_session":
            await self._runtime.new_session()
        elif system.action == "flush":
            await self._processor.flush_within(FLUSH_SECONDS)
        return Status(
            action=system.action,
            session=self._runtime.session_state(),
            memory=await self._view.state(),
            last_error=self._processor.last_error,
            permissions=self._settings.permissions,
            model=self._runtime.model,
        )

    async def _upload(self, chunk: FileUpload) -> Ack:
        path = await self._uploads.take(chunk)
        return Ack("done" if chunk.last else "accepted", path=path, upload_id=chunk.upload_id, index=chunk.index)

    # --- canvas ---

    async def _canvas(self, interaction: CanvasInteraction) -> Ack:
        stack_id, card_id = interaction.stack_id or "", interaction.card_id or ""
        match interaction.action:
            case "create_stack":
                stack_id = await self._workspace.create_stack(_name(interaction.name))
                done = True
            case "rename_stack":
                done = await self._workspace.change_stack(stack_id, name=_name(interaction.name))
            case "archive_stack" | "restore_stack":
                archived = interaction.action == "archive_stack"
                done = await self._workspace.change_stack(stack_id, archived=archived)
            case "archive_card" | "restore_card" | "move_card":
                done = await self._change_card(card_id, interaction)
        if not done:
            raise PeerError(f"There is no such {'card' if card_id else 'stack'}.", code="not_found")
        if "stack" in interaction.action and (stack := await self._workspace.stack(stack_id)) is not None:
            # Other people's screens follow.
            self._feed.publish(StackUpdate(stack_id, stack.name, stack.archived))
        return Ack("done", stack_id=stack_id or None, card_id=card_id or None)

    async def _change_card(self, card_id: str, interaction: CanvasInteraction) -> bool:
        card = await self._workspace.card(card_id)
        if card is None:
            return False
        command: CanvasCommand = "update_card"
        if interaction.action == "move_card":
            await self._workspace.move_card(card_id, interaction.position, interaction.size)
            card.position = interaction.position or card.position
            card.size = interaction.size or card.size
        else:
            card.archived = interaction.action == "archive_card"
            command = "close_card" if card.archived else "create_card"
            await self._workspace.archive_card(card_id, archived=card.archived)
        # Other people's screens follow.
        self._feed.publish(CanvasUpdate.of(command, card))
        return True

    # --- memory ---

    async def _memory(self, request: MemoryRequest) -> MemoryResult:
        operations: dict[str, Callable[[MemoryRequest], Awaitable[MemoryResult]]] = {
            "files": self._files,
            "file": self._file,
            "history": self._history,
            "search": self._search,
            "learnings": self._learnings,
            "turn": self._turn,
            "actions": self._actions,
            "edit": self._edit,
            "resolve_action": self._resolve_action,
            "forget": self._forget,
            "curations": self._curations,
            "observations": self._observations,
            "chat": self._chat,
            "health": self._health,
        }
        return await operations[request.op](request)

    async def _files(self, request: MemoryRequest) -> MemoryResult:
        return MemoryResult(request.op, files=self._view.files())

    async def _file(self, request: MemoryRequest) -> MemoryResult:
        name = _given(request.name, "name")
        if request.version is not None:
            version = await self._view.file_version(name, _row_id(request.version))
            return MemoryResult(request.op, name=name, content=version.content, version=version.version)
        content, number = await self._view.file(name)
        return MemoryResult(request.op, name=name, content=content, version=number)

    async def _history(self, request: MemoryRequest) -> MemoryResult:
        name = _given(request.name, "name")
        return MemoryResult(request.op, name=name, history=await self._view.history(name))

    async def _search(self, request: MemoryRequest) -> MemoryResult:
        found = await self._view.search(_given(request.query, "query"), request.limit or DEFAULT_LIMIT)
        return MemoryResult(
            request.op,
            hits=[hit.row() for hit in found.hits],
            indexed_through=found.indexed_through,
            waiting=found.waiting,
        )

    async def _learnings(self, request: MemoryRequest) -> MemoryResult:
        limit = request.limit or PAGE_ROWS
        if request.newest or request.before is not None:
            rows = await self._view.newest_learnings(_below(request), limit)
        else:
            rows = await self._view.learnings(_row_id(request.after or 0), limit)
        return MemoryResult(request.op, learnings=rows)

    async def _curations(self, request: MemoryRequest) -> MemoryResult:
        rows = await self._view.curations(_below(request), request.limit or PAGE_ROWS)
        return MemoryResult(request.op, curations=rows)

    async def _observations(self, request: MemoryRequest) -> MemoryResult:
        rows = await self._view.observations(_below(request), request.limit or PAGE_ROWS)
        return MemoryResult(request.op, observations=rows)

    async def _chat(self, request: MemoryRequest) -> MemoryResult:
        limit = max(1, min(request.limit or PAGE_ROWS, CHAT_LIMIT))
        result = MemoryResult(request.op, chat=shown(await self._workspace.chat(limit, _below(request))))
        while isinstance(result.chat, list) and len(result.chat) > 1 and len(encode(result)) > MAX_FRAME_BYTES:
            # The older half is asked for again.
            result.chat = result.chat[len(result.chat) // 2 :]
        return result

    async def _health(self, request: MemoryRequest) -> MemoryResult:
        facts = await self._view.health()
        facts |= {"daily_cap_usd": self._settings.daily_usd, "last_error": self._processor.last_error}
        return MemoryResult(request.op, health=facts)

    async def _turn(self, request: MemoryRequest) -> MemoryResult:
        return MemoryResult(request.op, turn=await self._view.turn(_row_id(_given(request.id, "id"))))

    async def _actions(self, request: MemoryRequest) -> MemoryResult:
        return MemoryResult(request.op, actions=await self._view.actions())

    async def _edit(self, request: MemoryRequest) -> MemoryResult:
        name = _given(request.name, "name")
        self._publish(await self._projection.edit(name, _given(request.content, "content"), request.version))
        content, number = await self._view.file(name)
        return MemoryResult(request.op, name=name, content=content, version=number)

    async def _resolve_action(self, request: MemoryRequest) -> MemoryResult:
        action_id, status = _row_id(_given(request.id, "id")), _given(request.status, "status")
        self._publish(await self._projection.resolve_action(action_id, status))
        return MemoryResult(request.op, actions=await self._view.actions())

    async def _forget(self, request: MemoryRequest) -> MemoryResult:
        learning = None if request.learning is None else _row_id(request.learning)
        turn = None if request.turn is None else _row_id(request.turn)
        target = Target(text=request.text, turn=turn, session=request.session, learning=learning)
        if request.preview:
            return MemoryResult(request.op, forgotten=await self._forgetter.preview(target), done=False)

        async def forget() -> dict[str, Any]:
            # What happened before has to be written by now, or its events would be written after they were dropped.
            await self._feed.drain()
            async with self._feed.rewritten():
                return await self._forgetter.forget(target, sure=bool(request.yes))

        summary = await self._runtime.at_rest(forget)
        # What is on people's screens still has the words: everyone gets the state as it now is.
        self._feed.publish(await self.snapshot(), durable=False)
        return MemoryResult(request.op, forgotten=summary, done=True)

    def _publish(self, changes: list[Change]) -> None:
        for change in changes:
            self._on_change(change)


def _given(value: _T | None, name: str) -> _T:
    if value is None:
        raise PeerError(f"{name!r} is missing.", code="bad_payload")
    return value


def _below(request: MemoryRequest) -> int | None:
    return None if request.before is None else _row_id(request.before)


def _row_id(value: int) -> int:
    """An id that SQLite can hold: a larger one is nobody's."""
    if not 0 <= value <= LARGEST_ROW_ID:
        raise PeerError(f"There is no number {value}.", code="not_found")
    return value


def _name(value: str | None) -> str:
    name = discreet(" ".join((value or "").split()))[:MAX_NAME_CHARS]
    if not name:
        raise PeerError("A stack needs a name.")
    return name
