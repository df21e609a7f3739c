"""Split the entries of one session into turns (pure).

A turn begins with a person's message or a notice of the CLI, and ends where the next begins, or in a silent log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sprite.capture.turn_buffer import TurnBuffer
from sprite.imports.claude_code_entries import Attachment, Block, Entry, Voice, heard, is_persons, words
from sprite.log.transcript import ImportedTurn, Outcome, Trigger
from sprite.privacy.cutting import clean, cut, cut_value, result_text
from sprite.privacy.private_text import PrivateText
from sprite.protocol.observing import ObservedTool
from sprite.protocol.tools import ECHO_CALLS, from_elsewhere

#: Replaces answers from memory: repeated, they would confirm themselves.
MEMORY_ANSWERED = "[what memory answered is not kept a second time]"


def take_call(buffer: TurnBuffer, call: ObservedTool) -> None:
    """Add another program's tool call to a turn."""
    buffer.start_tool(buffer.call(call.tool_use_id, call.name, call.input, agent_id=call.agent_id))
    if call.result is not None:
        buffer.tool_answered(call.tool_use_id, call.result, is_error=call.is_error)


class SubagentLogs:
    """Collect the tool calls of one session's subagents, from their logs.

    Add all entries with `feed` before the session's turns; each turn then takes the calls made until its end.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        #: Calls that no turn has taken yet, by id, with their times.
        self._calls: dict[str, tuple[float, ObservedTool]] = {}
        #: Time of the last entry of any subagent.
        self.last_at = 0.0

    def feed(self, agent_id: str, entry: Entry) -> None:
        """Add an entry of an agent's log."""
        if entry.uuid in self._seen:
            return
        self._seen.add(entry.uuid)
        self.last_at = max(self.last_at, entry.at)
        for block in entry.blocks:
            if block.type == "tool_use" and block.id is not None:
                name = cut(from_elsewhere(block.name or ""))
                call = ObservedTool(name, block.id, cut_value(block.input), agent_id=agent_id)
                self._calls[block.id] = entry.at, call
            elif block.tool_use_id in self._calls:
                _, call = self._calls[block.tool_use_id]
                said = MEMORY_ANSWERED if call.name in ECHO_CALLS else result_text(block.content)
                call.result, call.is_error = cut(said), bool(block.is_error)

    def take(self, until: float) -> list[ObservedTool]:
        """Remove and return the calls made until the time `until`, oldest first."""
        calls = sorted(self._calls.items(), key=lambda item: item[1][0])
        return [self._calls.pop(key)[1] for key, (at, _) in calls if at <= until]


#: After this long without a new entry a session has ended, even with a running turn.
OVER_AFTER_SECONDS = 3600.0
#: The blocks of one message are written milliseconds apart.
SETTLED_AFTER_SECONDS = 1.0
#: Stop reasons after which the agent continues; logs of older versions have None.
_GOES_ON = frozenset({None, "tool_use", "pause_turn"})
#: The "model" of messages that the CLI writes itself.
_SYNTHETIC = "<synthetic>"
WENT_ON = "the agent went on by itself after this session's turn before"
PROMPT_MISSING = "the log does not hold the prompt of this turn"
#: The source of these turns.
CLAUDE_CODE = "claude-code"


class SessionTurns:
    """Split one session into turns: `feed` takes every entry in order, `end` returns the rest.

    A resumed session can repeat entries, which are skipped. `project_of` gets the first folder of each turn.
    """

    def __init__(self, session_id: str, agents: SubagentLogs, project_of: Callable[[Any], str | None]) -> None:
        self._session_id = session_id
        self._agents = agents
        self._project_of = project_of
        self._private_text = PrivateText()
        self._seen: set[str] = set()
        self._turn: _Turn | None = None
        self._last_at = 0.0
        self._gap = False
        #: Whether the last turn was treated as ended: later output becomes a separate turn.
        self._was_settled = False
        #: Number of turns left for a later import.
        self.open = 0
        #: Whether the turns that end are in the log already, so that none is returned.
        self.is_known = False

    def feed(self, entry: Entry) -> ImportedTurn | None:
        """Add an entry; return the turn that it ended, if any."""
        if entry.uuid in self._seen:
            return None
        self._seen.add(entry.uuid)
        self._last_at = max(self._last_at, entry.at)
        if entry.is_sidechain:
            # Versions of 2025 wrote subagents into the session's own file. The session has their results.
            return None
        if entry.type == "assistant":
            return self._assistant(entry)
        if entry.attachment is not None:
            self._attachment(entry, entry.attachment)
            return None
        return self._user(entry)

    def skip(self) -> None:
        """Record that a damaged line was skipped, which may have begun a turn."""
        self._gap = True

    @property
    def open_key(self) -> str | None:
        """Return the key (entry id) of the turn that is running, or None."""
        return None if self._turn is None else self._turn.key

    def cut(self) -> ImportedTurn | None:
        """End the running turn, even if unfinished, and return it; later output becomes a separate turn."""
        turn, self._turn = self._turn, None
        self._was_settled = self._was_settled or turn is not None
        return None if turn is None else self._finished(turn)

    def end(self, now: float, silence: float | None = None) -> Iterator[ImportedTurn]:
        """Yield the last turn at the end of the log, if the turn is over.

        If the log is not watched (`silence` is None), the time of its last entry tells how long it is silent.
        """
        # The log may come from a machine with a faster clock, so the absolute difference counts.
        quiet = abs(now - max(self._last_at, self._agents.last_at)) if silence is None else silence
        turn = self._turn
        is_over = quiet >= OVER_AFTER_SECONDS
        is_due = turn is not None and (is_over or (turn.has_ended and quiet >= SETTLED_AFTER_SECONDS))
        if is_due and (ended := self.cut()) is not None:
            yield ended
        turn = self._turn
        if turn is not None and (not turn.is_command or turn.answered):
            self.open += 1

    # --- entries ---

    def _user(self, entry: Entry) -> ImportedTurn | None:
        voice, text = heard(entry)
        if voice in {Voice.PERSON, Voice.NOTICE, Voice.COMMAND}:
            before, _ = self._begin(
                entry, "task" if voice is Voice.NOTICE else "user", text, command=voice is Voice.COMMAND
            )
            return before
        turn = self._turn
        if turn is None:
            return None
        if voice is Voice.TOOLS:
            turn.touch(entry)
            for block in entry.blocks:
                turn.answer(block)
            turn.ending = None
        elif voice is Voice.INTERRUPT:
            turn.touch(entry)
            turn.ending = "interrupted"
        return None

    def _begin(
        self, entry: Entry, trigger: Trigger, text: str, *, command: bool = False
    ) -> tuple[ImportedTurn | None, _Turn]:
        """Begin a turn with an entry; return (the previous turn, which this ends, or None; the new turn)."""
        turn = _Turn(entry, TurnBuffer(self._session_id, trigger, private_text=self._private_text), is_command=command)
        if trigger == "user":
            self._private_text.hear(text)
            turn.said.append(clean(text))
        else:
            turn.buffer.add_notice(text)
        before, self._turn = self._turn, turn
        self._gap = self._was_settled = False
        return (None if before is None else self._finished(before)), turn

    def _assistant(self, entry: Entry) -> ImportedTurn | None:
        body = entry.message
        if body is None or (body.model == _SYNTHETIC and not entry.is_api_error_message):
            return None
        before, turn = None, self._turn
        if turn is None or (self._gap and turn.has_ended):
            # The line with the prompt is damaged. The work is still worth a turn, without a person's words.
            before, turn = self._begin(
                entry, "task", WENT_ON if self._was_settled and not self._gap else PROMPT_MISSING
            )
        turn.touch(entry)
        if entry.is_api_error_message:
            turn.ending = "error"
            turn.buffer.add_notice(words(entry.blocks))
        else:
            turn.say(entry.blocks)
            cut_short = entry.is_aborted_mid_stream or body.stop_reason in _GOES_ON
            turn.ending = None if cut_short or turn.calling else "complete"
        return before

    def _attachment(self, entry: Entry, attachment: Attachment) -> None:
        is_persons_word = attachment.command_mode == "prompt" and is_persons(attachment.origin)
        text = words(attachment.prompt)
        turn = self._turn
        if turn is None:
            if attachment.type == "queued_command" and self._was_settled:
                # Sent while the agent worked, but logged after the turn seemed to have ended.
                self._begin(entry, "user" if is_persons_word else "task", text)
            return
        turn.touch(entry)
        if attachment.type == "max_turns_reached":
            turn.ending = "max_turns"
            return
        # Sent while the agent worked, so it belongs to this turn.
        if is_persons_word:
            self._private_text.hear(text)
            turn.said.append(clean(text))
        else:
            turn.buffer.add_notice(text)
        turn.ending = None

    # --- turns ---

    def _finished(self, turn: _Turn) -> ImportedTurn | None:
        if turn.is_command and not turn.answered:
            return None
        turn.buffer.user_message = "\n\n".join(text for text in turn.said if text)
        for call in self._agents.take(turn.ended_at):
            take_call(turn.buffer, call)
        if self.is_known:
            return None
        observation = turn.buffer.observation(turn.outcome)
        observation = replace(observation, project=self._project_of(turn.folder), source=CLAUDE_CODE)
        return ImportedTurn(turn.key, turn.started_at, turn.ended_at, observation)


class _Turn:
    """A turn while its entries are collected, with what is known about how it ends."""

    def __init__(self, entry: Entry, buffer: TurnBuffer, *, is_command: bool) -> None:
        self.key = entry.uuid
        #: The folder at its beginning, as logged.
        self.folder = entry.cwd
        self.buffer = buffer
        self.is_command = is_command
        self.started_at = self.ended_at = entry.at
        #: The ending by its last entry, or None while it is running.
        self.ending: Outcome | None = None
        #: Whether the agent said or did something.
        self.answered = False
        #: Whether the agent's last message called a tool.
        self.calling = False
        #: The calls to memory's tools.
        self.echoes: set[str] = set()
        #: The person's messages: the first one, and those sent while the agent worked.
        self.said: list[str] = []

    @property
    def has_ended(self) -> bool:
        return self.ending is not None

    @property
    def outcome(self) -> Outcome:
        """Return how the turn ended: as its last entry says, or else complete or crashed."""
        return self.ending or ("complete" if self.answered and not self.calling else "crashed")

    def touch(self, entry: Entry) -> None:
        self.ended_at = max(self.ended_at, entry.at)

    def say(self, blocks: Sequence[Block]) -> None:
        self.calling = False
        for block in blocks:
            if block.type == "text":
                self.buffer.add_text(block.text or "")
                self.answered = True
            elif block.type == "tool_use":
                self.answered = self.calling = True
                if block.id is not None:
                    name = from_elsewhere(block.name or "")
                    self.echoes |= {block.id} if name in ECHO_CALLS else set()
                    self.buffer.start_tool(self.buffer.call(block.id, name, block.input))

    def answer(self, block: Block) -> None:
        """Add a tool's result to its call; a fixed remark replaces an answer of the sprite's memory."""
        if block.tool_use_id is not None:
            said = MEMORY_ANSWERED if block.tool_use_id in self.echoes else block.content
            self.buffer.tool_answered(block.tool_use_id, said, is_error=bool(block.is_error))
