"""One session of the editor: a view of the person's conversation with their agent.

Shows the missions sent from it. While none of them runs, it also shows other turns. Has no link: its data is passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakKeyDictionary, WeakSet

from acp import schema
from acp.helpers import (
    ContentBlock,
    SessionUpdate,
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_user_message_text,
)
from acp.schema import ToolCallStatus

from bridge.acp import tool_calls
from bridge.client.link import MODEL_SECONDS
from bridge.client.turns import Began, Call, Grew, News, Over, Reader, Turn
from bridge.terminal import drawing
from bridge.terminal.drawing import one_line
from sprite.common.prices import OFFLINE, PRICES
from sprite.protocol.events import Compacted, Compacting, Ending, Failed, Interrupted, ModelChanged
from sprite.protocol.messages import PermissionRequest, Status, System
from sprite.protocol.shapes import Effort, UsedTool, counted

if TYPE_CHECKING:
    from bridge.acp.agent import Editor
    from bridge.acp.conversation import Conversation


class Prompt:
    """A message from the editor. Await `ended` for the end of its turn: None if the program stopped waiting for it."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Ending | None] = asyncio.get_running_loop().create_future()
        #: Set once it was sent.
        self.mission_id: str | None = None
        self.is_cancelled = False

    def end(self, how: Ending | None) -> None:
        """Record how the message's turn ended, once."""
        if not self.ended.done():
            self.ended.set_result(how)


class Session:
    """Show the agent's turns in one session of the editor."""

    def __init__(self, session_id: str, editor: Editor) -> None:
        self.id = session_id
        #: Messages sent here that have not ended.
        self.prompts: list[Prompt] = []
        #: All missions ever sent here.
        self.missions: set[str] = set()
        self._editor = editor
        self._readers: WeakKeyDictionary[Turn, Reader] = WeakKeyDictionary()
        #: Turns from elsewhere that are not shown, because they ran while this session's own did.
        self._hidden: WeakSet[Turn] = WeakSet()
        #: The number of shown calls that were missed.
        self._past_calls = 0
        #: Start of the thought that was shown last, in monotonic seconds.
        self._thinks_since: float | None = None
        #: Whether the agent's text was shown last, to which an editor would append the next one.
        self._after_text = False

    @property
    def waits(self) -> bool:
        """Return whether a message that was sent in this session has not ended."""
        return any(not prompt.ended.done() for prompt in self.prompts)

    def spoken(self) -> None:
        """Note that the editor has just shown the person's message: the next text needs no blank line before it."""
        self._after_text = False

    def begin(self, prompt: Prompt) -> None:
        """Add a message that is being sent. The session hides other turns until this message's turn has ended."""
        self.prompts.append(prompt)
        self._hidden.update(turn for turn in self._readers if turn.attempt and turn.id not in self.missions)

    def prompt_of(self, mission_id: str | None) -> Prompt | None:
        """Return the message of this session with this mission id, or None."""
        return next((prompt for prompt in self.prompts if mission_id and prompt.mission_id == mission_id), None)

    async def say(self, text: str) -> None:
        """Show a text of this program, such as a command's result, as if the agent had written it."""
        await self._text(text, begins=True)

    async def note(self, text: str) -> None:
        """Show a remark that is not part of the agent's answer, in the editor's style for thoughts."""
        await self._update(update_agent_thought_text(text))

    async def configure(self, choice: tuple[str | None, Effort | None]) -> None:
        """Tell the editor the model and effort of the agent's session."""
        # The helpers' union of updates does not have it.
        update: Any = schema.ConfigOptionUpdate(
            session_update="config_option_update", config_options=config_options(*choice)
        )
        await self._editor.update(self.id, update)

    def skip(self, turns: Iterable[Turn]) -> None:
        """Treat everything in these turns as shown."""
        for turn in turns:
            self._readers.setdefault(turn, Reader()).skip(turn)

    async def show(self, turn: Turn) -> None:
        """Show in the editor the parts of a turn that it does not show yet, unless the turn is hidden."""
        if not turn.attempt and turn.ending is None:
            # A turn that waits may begin after this session's own has ended.
            return
        if turn not in self._readers and turn.id not in self.missions and self.waits:
            self._hidden.add(turn)
        if turn not in self._hidden:
            await self._show(turn)

    def call_of(self, request: PermissionRequest) -> str | None:
        """Return the id of the running tool call that a permission request is about, or None."""
        for turn in self._readers:
            for call in reversed(turn.calls) if turn.id == request.mission_id else ():
                use = call.use
                if not call.is_over and use.name == request.tool and use.input == request.input:
                    return use.tool_use_id
        return None

    async def _show(self, turn: Turn) -> None:
        for news in self._readers.setdefault(turn, Reader()).news(turn):
            if isinstance(news, Began):
                await self._begin(turn, news)
            elif isinstance(news, Ending):
                await self._end(turn, news)
            else:
                await self._show_part(turn, news)
        if turn.thinks_since not in {None, self._thinks_since}:
            self._thinks_since = turn.thinks_since
            await self.note("Thinking …")

    async def _begin(self, turn: Turn, began: Began) -> None:
        if began.is_again:
            await self.note(drawing.BEGUN_AGAIN)
        elif turn.id in self.missions:
            return
        elif turn.text is not None:
            who = "By schedule: " if turn.origin == "schedule" else ""
            if turn.asked_by is not None:
                who = f"{one_line(turn.asked_by)} asks: "
            await self._update(update_user_message_text(who + turn.text))
        elif turn.origin == "agent":
            await self.note("Sprite, by itself:")

    async def _end(self, turn: Turn, ending: Ending) -> None:
        prompt = self.prompt_of(turn.id)
        is_cancelled = prompt is not None and prompt.is_cancelled
        if isinstance(ending, Interrupted) and not is_cancelled:
            await self.note("Stopped from another page or program.")
        if prompt is not None:
            prompt.end(ending)
        elif isinstance(ending, Failed):
            await self.say(f"✗ {ending.message}")

    async def _show_part(self, turn: Turn, news: News) -> None:
        match news:
            case Grew(piece=piece, begins=begins):
                await self._text(piece, begins=begins)
            case Call(use=use):
                await self._update(tool_calls.started(use))
            case Over(call=call):
                await self._update(tool_calls.ended(call, is_stopped=turn.status != "complete"))
            case UsedTool():
                await self._used(news)
            case ModelChanged(text=text):
                await self.note(text)
            case Compacting():
                await self.note("Summing up the older part of the conversation to make room.")
            case Compacted():
                await self.note("Made room: the older part of the conversation was summed up.")

    async def _used(self, tool: UsedTool) -> None:
        self._past_calls += 1
        title = f"{drawing.tool_name(tool.name)}: {one_line(tool.title)}".rstrip(": ")
        status: ToolCallStatus = "failed" if tool.is_error else "completed"
        call_id, kind = f"past-{self._past_calls}", tool_calls.kind_of(tool.name)
        await self._update(start_tool_call(call_id, title, kind=kind, status=status))

    async def _text(self, text: str, *, begins: bool) -> None:
        if text:
            between = "\n\n" if begins and self._after_text else ""
            await self._update(update_agent_message_text(between + text), is_text=True)

    async def _update(self, update: SessionUpdate, *, is_text: bool = False) -> None:
        self._after_text = is_text
        await self._editor.update(self.id, update)


#: Stands for the configured model, and the model's own effort.
DEFAULT = "default"


def config_options(model: str | None, effort: Effort | None) -> list[Any]:
    """Return the model and effort of the agent's session as options of the editor's session."""
    models = dict.fromkeys([*([model] if model else []), *(name for name in PRICES if name != OFFLINE)])
    return [_option("model", "model", model, models), _option("effort", "thought_level", effort, get_args(Effort))]


def _option(
    name: str, category: Literal["model", "thought_level"], current: str | None, values: Iterable[str]
) -> schema.SessionConfigOptionSelect:
    return schema.SessionConfigOptionSelect(
        id=name,
        name=name.capitalize(),
        category=category,
        type="select",
        current_value=current or DEFAULT,
        options=[schema.SessionConfigSelectOption(value=each, name=each) for each in (DEFAULT, *values)],
    )


_HINTS = {
    "new": "ends this session; the agent remembers what was said",
    "go-on": "resumes a paused agent; if the budget is used up, raises today's limit, too",
}

COMMANDS = [schema.AvailableCommand(name=name, description=does) for name, does in _HINTS.items()]


def command_in(prompt: Sequence[ContentBlock]) -> str | None:
    """Return the command that a message consists of, or None."""
    if len(prompt) != 1 or not isinstance(prompt[0], schema.TextContentBlock):
        return None
    text = prompt[0].text.strip()
    return text[1:] if text[:1] == "/" and text[1:] in _HINTS else None


async def answer(conversation: Conversation, name: str) -> str:
    """Run a command and return its result as Markdown. Raises RequestError if the sprite does not answer."""
    if name == "new":
        ended = await conversation.ask(System(action="new_session"), Status, MODEL_SECONDS)
        stopped = f" Stopped in the background: {counted(len(ended.stopped), 'thing')}." if ended.stopped else ""
        return f"A new session begins with your next message. What was said is remembered.{stopped}"
    if (paused := conversation.paused) is None:
        return "Nothing is paused."
    await conversation.ask(System(action="go_on", raise_limit=paused.by == "budget"), Status)
    return "The agent continues."
