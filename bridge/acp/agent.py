"""The agent's side of the Agent Client Protocol: the requests of an editor and their effects."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from acp import schema
from acp.exceptions import RequestError
from acp.helpers import ContentBlock, SessionUpdate, update_available_commands
from acp.interfaces import Client
from acp.meta import PROTOCOL_VERSION
from acp.schema import PermissionOption, StopReason, ToolCallUpdate
from msgspec import ValidationError, convert

from bridge.acp import session as slash_commands
from bridge.acp.conversation import Conversation, unavailable
from bridge.acp.prompt import Attachment, PromptRefusedError, read_prompt
from bridge.acp.session import DEFAULT, Prompt, Session, config_options
from bridge.terminal.drawing import one_line
from sprite.common.tasks import Service, TaskSet
from sprite.protocol.events import Ending, Failed, Interrupted
from sprite.protocol.messages import MAX_PICTURES_BYTES, Ack, Status, System, upload_chunks

if TYPE_CHECKING:
    from bridge.acp.program import StdioTransport


class Editor:
    """The editor that started this program. Calls to a closed editor do nothing."""

    #: The library's end of the connection, which it sets before the first request.
    client: Client

    def __init__(self, transport: StdioTransport) -> None:
        self._transport = transport

    async def update(self, session_id: str, update: SessionUpdate) -> None:
        """Send the editor an update of a session."""
        with suppress(ConnectionError):
            await self.client.session_update(session_id, update)

    async def ask(self, session_id: str, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        """Ask the person about a tool call; return the chosen option or None. Raises RequestError if it cannot ask."""
        try:
            answer = await self.client.request_permission(session_id, call, options)
        except ConnectionError:
            return None
        finally:
            # An answered question cannot be withdrawn any more; `withdraw` has taken the id already.
            self._transport.question_id(call.tool_call_id)
        return answer.outcome.option_id if isinstance(answer.outcome, schema.AllowedOutcome) else None

    async def withdraw(self, tool_call_id: str) -> None:
        """Close a permission question in the editor: it was answered elsewhere, or needs no answer any more."""
        if (question_id := self._transport.question_id(tool_call_id)) is not None:
            cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": question_id}}
            with suppress(ConnectionError):
                await self._transport.send(cancel)


_CHUNK_SECONDS = 60.0
#: Version of this agent for editors; changes with visible behaviour.
_VERSION = "1"


class SpriteAgent(Service):
    """Answer the editor's requests: implement acp's `Agent`, whose methods the library calls by name."""

    def __init__(self, conversation: Conversation, editor: Editor) -> None:
        self._conversation = conversation
        self._editor = editor
        self._tasks = TaskSet()

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._tasks)

    def on_connect(self, client: Client) -> None:
        """Store the connection."""
        self._editor.client = client

    async def initialize(self, **_rest: Any) -> schema.InitializeResponse:
        """Connect to the bridge and tell the editor which features of the protocol this program has."""
        await self._conversation.open()
        prompts = schema.PromptCapabilities(image=True, embedded_context=True)
        # The protocol has one version so far; an editor with another one disconnects.
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(prompt_capabilities=prompts),
            agent_info=schema.Implementation(name="sprite", title="Sprite", version=_VERSION),
        )

    async def new_session(self, mcp_servers: Sequence[Any] | None = None, **_rest: Any) -> schema.NewSessionResponse:
        """Open another session of the editor for the same conversation. It shows no earlier messages."""
        session = Session(f"sprite-{uuid.uuid4()}", self._editor)
        await self._conversation.ready()
        self._conversation.join(session)
        # Sent after the answer, because the editor does not know the session before.
        self._tasks.start(self._greet(session, mcp_servers or ()), "acp-greet")
        options = config_options(*self._conversation.choice)
        return schema.NewSessionResponse(session_id=session.id, config_options=options)

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_rest: Any
    ) -> schema.SetSessionConfigOptionResponse:
        """Change the model or effort of the agent's session."""
        self._session(session_id)
        chosen = None if value == DEFAULT else str(value)
        try:
            system = convert({"action": "model", config_id: chosen}, System)
        except ValidationError:
            raise RequestError(-32602, f"{config_id} cannot be {value!r}.") from None
        state = (await self._conversation.ask(system, Status)).session
        return schema.SetSessionConfigOptionResponse(config_options=config_options(state.model, state.effort))

    async def prompt(self, session_id: str, prompt: list[ContentBlock], **_rest: Any) -> schema.PromptResponse:
        """Send the editor's message to the agent, wait for the end of its turn, and return how it ended."""
        session = self._session(session_id)
        self._conversation.touched(session)
        session.spoken()
        if (command := slash_commands.command_in(prompt)) is not None:
            await session.say(await slash_commands.answer(self._conversation, command))
            return schema.PromptResponse(stop_reason="end_turn")
        sent = Prompt()
        session.begin(sent)
        try:
            ending = await self._sent(session, sent, prompt)
        except PromptRefusedError as error:
            raise RequestError(-32602, str(error)) from None
        finally:
            sent.end(None)
            session.prompts.remove(sent)
        return schema.PromptResponse(stop_reason=self._reason(ending, is_cancelled=sent.is_cancelled))

    async def cancel(self, session_id: str, **_rest: Any) -> None:
        """Stop the agent's turns for the messages that were sent in this session."""
        if (session := self._conversation.sessions.get(session_id)) is not None:
            self._conversation.cancel(session)

    async def _sent(self, session: Session, sent: Prompt, prompt: list[ContentBlock]) -> Ending | None:
        draft = read_prompt(prompt)
        # Refuses a text that is too long before any file is uploaded.
        draft.message([file.name for file in draft.files])
        paths = [await self._uploaded(file) for file in draft.files if not sent.is_cancelled]
        if sent.is_cancelled:
            return None
        seen = [(file, path) for file, path in zip(draft.files, paths, strict=True) if file.is_picture]
        fits = sum(len(file.data) for file, _ in seen) <= MAX_PICTURES_BYTES
        self._conversation.send(session, sent, draft.message(paths), [path for _, path in seen] if fits else [])
        return await sent.ended

    async def _uploaded(self, file: Attachment) -> str:
        """Upload an attached file to the agent's workspace and return its path there."""
        path = None
        for part in upload_chunks(file.name, file.data):
            path = (await self._conversation.ask(part, Ack, _CHUNK_SECONDS)).path
        return path or f"documents/{file.name}"

    def _reason(self, ending: Ending | None, *, is_cancelled: bool) -> StopReason:
        if is_cancelled or isinstance(ending, Interrupted):
            return "cancelled"
        if isinstance(ending, Failed) and ending.code == "max_turns":
            return "max_turn_requests"
        if isinstance(ending, Failed):
            raise RequestError(-32603, ending.message, {"details": ending.details} if ending.details else None)
        if ending is None:
            raise unavailable(str(self._conversation.failure))
        return "end_turn"

    async def _greet(self, session: Session, mcp_servers: Sequence[Any]) -> None:
        await self._editor.update(session.id, update_available_commands(slash_commands.COMMANDS))
        if mcp_servers:
            names = ", ".join(one_line(getattr(server, "name", "?")) for server in mcp_servers)
            words = f"The editor's MCP servers ({names}) are not used here: the agent works on its own computer."
            await session.note(words)
        self._conversation.questions.go_on()

    def _session(self, session_id: str) -> Session:
        if (session := self._conversation.sessions.get(session_id)) is None:
            words = "This session is not open any more. Start a new one."
            raise RequestError(-32002, words, {"sessionId": session_id[:100]})
        return session
