"""Reader for Codex CLI's session logs: `~/.codex/sessions/**/rollout-*.jsonl`.

A rollout has each thing twice: as an item of the model's conversation, and as a display event. The person's words come
from events only, since the conversation also contains instructions under the user role.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sprite.imports.claude_code_turns import OVER_AFTER_SECONDS, SETTLED_AFTER_SECONDS
from sprite.imports.observed_turns import Conversation, Turn
from sprite.imports.reader import Surroundings, Tally, UnreadableError, decode, lines, moment, word
from sprite.log.transcript import ImportedTurn

SOURCE = "codex"
_RECORDS = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
#: The program's bookkeeping, and duplicates.
_PASSED_RECORDS = frozenset({"compacted", "world_state", "token_usage_record", "inter_agent_communication"})
_PASSED_EVENTS = frozenset(
    """agent_message agent_message_delta agent_reasoning agent_reasoning_raw_content agent_reasoning_section_break
    background_event context_compacted deprecation_notice entered_review_mode exited_review_mode item_started
    mcp_startup_complete mcp_startup_update plan_update session_configured skills_update_available
    stream_error thread_name_updated thread_rolled_back thread_settings_applied token_count turn_diff undo_completed
    undo_started warning web_search_begin web_search_end view_image_tool_call thread_goal_updated
    exec_command_begin exec_command_output_delta patch_apply_begin mcp_tool_call_begin
    """.split()
)
_PASSED_ITEMS = frozenset(
    """message reasoning ghost_snapshot compaction compaction_summary compaction_trigger context_compaction other
    tool_search_call tool_search_output
    """.split()
)
_PASSED_STEPS = frozenset(
    "AgentMessage Reasoning Plan WebSearch ImageView ImageGeneration ContextCompaction HookPrompt".split()
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "mcp_tool_call_output"})
#: Beginnings and ends of turns, under the names of all versions.
_STARTS, _ENDS = frozenset({"task_started", "turn_started"}), frozenset({"task_complete", "turn_complete"})
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,10})$", re.MULTILINE)
#: The lines about the exit come before the output.
_EXIT_WITHIN = 400


class CodexReader:
    """Read rollouts, each one session."""

    kind = SOURCE
    name = "Codex CLI session log"

    def recognises(self, path: Path, opening: bytes) -> bool:  # noqa: ARG002 - its name says nothing
        """Return whether the first line is a record of a rollout."""
        try:
            record = decode(opening.partition(b"\n")[0])
        except UnreadableError:
            # The instructions in the first line can be longer than the opening.
            return opening.startswith(b'{"timestamp":') and b'"type":"session_meta","payload":{' in opening[:200]
        return (
            isinstance(record, dict)
            and word(record.get("type")) in _RECORDS
            and isinstance(record.get("payload"), dict)
        )

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
        """Yield the turns of each rollout, in the order of file names, which begin with their time."""
        for path in sorted(paths, key=lambda path: (path.name, path)):
            rollout = _Rollout(path, around, tally)
            tally.files += 1
            try:
                for line, record in lines(path, around.on_bytes, rollout.damage):
                    yield from rollout.feed(line, record)
            except OSError as error:
                tally.refuse(path, error)
            yield from rollout.end()


class _Rollout:
    """Split one rollout into turns."""

    def __init__(self, path: Path, around: Surroundings, tally: Tally) -> None:
        self._path = path
        self._around = around
        self._tally = tally
        self._conversation: Conversation | None = None
        self._session = ""
        self._folder: Any = None
        #: The user role belongs to another agent.
        self._is_subagent = False
        self._turn: Turn | None = None
        self._turn_id: str | None = None
        self._begun = 0
        self._failed: set[str] = set()

    def damage(self, line: int, problem: str) -> None:
        """Record an unusable line."""
        self._tally.damage(self._path, line, problem)

    def feed(self, line: int, record: Any) -> Iterator[ImportedTurn]:
        """Add the value of a line; yield the turn that it ended, if any."""
        body = record.get("payload") if isinstance(record, dict) else None
        if not isinstance(body, dict):
            self._tally.damage(self._path, line, "wrong shape: no record with a payload")
            return
        at = moment(record.get("timestamp"))
        match word(record.get("type")):
            case "session_meta":
                self._meet(body)
            case "turn_context":
                self._folder = body.get("cwd", self._folder)
            case "event_msg":
                yield from self._event(line, at, body)
            case "response_item":
                self._item(body, at)
            case kind if kind not in _PASSED_RECORDS:
                self._tally.passed_over(f"Codex records of type {_named(kind)}")

    def end(self) -> Iterator[ImportedTurn]:
        """Yield the last turn if it is marked as ended, or silent for long enough."""
        if self._turn is None:
            return
        quiet = abs(self._around.now - self._turn.ended_at)
        if quiet >= (OVER_AFTER_SECONDS if self._turn.outcome is None else SETTLED_AFTER_SECONDS):
            yield from self._finish()
        else:
            self._tally.open += 1

    # --- records ---

    def _meet(self, body: dict[str, Any]) -> None:
        # A fork contains the heads of its parent sessions; the first head is its own.
        if self._conversation is None:
            self._session = body["id"] if isinstance(body.get("id"), str) else self._path.stem
            self._conversation = Conversation(SOURCE, self._session, self._path, self._around.now, self._tally)
            source = body.get("source")
            self._is_subagent = isinstance(source, dict) or body.get("thread_source") == "subagent"
        self._folder = body.get("cwd", self._folder)

    def _event(self, line: int, at: float | None, body: dict[str, Any]) -> Iterator[ImportedTurn]:
        kind = word(body.get("type"))
        if kind in _STARTS:
            self._turn_id = body["turn_id"] if isinstance(body.get("turn_id"), str) else None
        elif kind == "user_message":
            yield from self._heard(line, at, _text(body.get("message"), body.get("images")))
        elif kind == "item_completed":
            yield from self._step(line, at, body)
        elif kind in _ENDS or kind == "turn_aborted":
            if self._turn is not None:
                self._turn.touch(at)
                self._turn.outcome = "interrupted" if kind == "turn_aborted" else self._turn.outcome or "complete"
        elif kind == "error":
            if self._turn is not None:
                self._turn.touch(at)
                self._turn.outcome = "error"
                self._turn.notices.append(_text(body.get("message"), None))
        elif kind in {"exec_command_end", "patch_apply_end", "mcp_tool_call_end"}:
            self._note_failure(body.get("call_id"), body)
        elif kind not in _PASSED_EVENTS:
            self._tally.passed_over(f"Codex events of type {_named(kind)}")

    def _step(self, line: int, at: float | None, body: dict[str, Any]) -> Iterator[ImportedTurn]:
        item = body.get("item")
        kind = item.get("type") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(kind, str):
            self._tally.damage(self._path, line, "wrong shape: an item without a type")
        elif kind == "UserMessage":
            content = item.get("content")
            parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
            texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
            pictures = [part for part in parts if word(part.get("type")) in {"image", "local_image"}]
            self._turn_id = body["turn_id"] if isinstance(body.get("turn_id"), str) else self._turn_id
            yield from self._heard(line, at, _text("\n\n".join(texts), pictures))
        elif kind in {"CommandExecution", "FileChange", "McpToolCall", "DynamicToolCall"}:
            self._note_failure(item.get("id"), item)
        elif kind not in _PASSED_STEPS:
            self._tally.passed_over(f"Codex items of type {_named(kind)}")

    def _heard(self, line: int, at: float | None, text: str) -> Iterator[ImportedTurn]:
        turn = self._turn
        if turn is not None and turn.external_id == self._turn_id and turn.outcome is None:
            # Sent while the agent worked, so it belongs to this turn.
            turn.touch(at)
        else:
            yield from self._finish()
            self._begun += 1
            if at is None:
                self._tally.damage(self._path, line, "no time at which this was said")
                return
            key = self._turn_id or f"{self._session}.{self._begun}"
            turn = self._turn = Turn(key, line, at, at, self._around.project_of(self._folder))
            self._failed.clear()
        (turn.notices if self._is_subagent else turn.said).append(text)

    def _item(self, body: dict[str, Any], at: float | None) -> None:
        kind, turn = word(body.get("type")), self._turn
        if kind not in _CALLS | _OUTPUTS | _PASSED_ITEMS:
            self._tally.passed_over(f"Codex items of type {_named(kind)}")
        elif turn is not None and turn.outcome is None:
            turn.touch(at)
            key = body.get("call_id") or body.get("id")
            if kind == "message" and body.get("role") == "assistant":
                turn.says(_words(body.get("content")))
            elif kind in _CALLS and isinstance(key, str):
                turn.calls(key, *_call(body))
            elif kind in _OUTPUTS and isinstance(key, str):
                result, is_error = _output(body.get("output"))
                turn.answers(key, result, is_error=is_error or key in self._failed)

    def _note_failure(self, call: Any, ending: dict[str, Any]) -> None:
        code = ending.get("exit_code")
        if isinstance(call, str) and (word(ending.get("status")) in {"failed", "declined"} or code not in (None, 0)):
            self._failed.add(call)
            if self._turn is not None and call in self._turn.tools:
                self._turn.tools[call].is_error = True

    def _finish(self) -> Iterator[ImportedTurn]:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        if self._conversation is None:
            self._tally.damage(self._path, turn.line, "the head of its session is missing")
        elif (finished := self._conversation.finished(turn)) is not None:
            yield finished


def _call(body: dict[str, Any]) -> tuple[str, Any]:
    """Return the name and the input of a call."""
    if body.get("type") == "local_shell_call":
        return "local_shell", body.get("action")
    if body.get("type") == "web_search_call":
        return "web_search", body.get("action")
    given = body.get("arguments", body.get("input"))
    if body.get("type") == "function_call" and isinstance(given, str):
        # The model may have written invalid JSON, which is kept as text.
        with suppress(UnreadableError):
            given = decode(given.encode(errors="replace"))
    name = str(body.get("name"))
    # An MCP server's tools carry its name in the namespace, after `mcp__`.
    space = body.get("namespace")
    return (f"{space.rstrip('_')}__{name}" if isinstance(space, str) and space.startswith("mcp__") else name), given


def _output(value: Any) -> tuple[Any, bool]:
    """Return the result of a call, and whether it failed."""
    if isinstance(value, dict) and "content" in value:
        return value["content"], value.get("success") is False
    if isinstance(value, list):
        return "\n".join(_words([part]) or json.dumps(part, default=str)[:200] for part in value), False
    if not isinstance(value, str):
        return value, False
    if value.startswith('{"output":'):
        try:
            inner = decode(value.encode(errors="replace"))
        except UnreadableError:
            return value, False
        if isinstance(inner, dict) and isinstance(inner.get("output"), str):
            about = inner.get("metadata")
            return inner["output"], isinstance(about, dict) and about.get("exit_code") not in (None, 0)
    code = _EXIT.search(value[:_EXIT_WITHIN])
    return value, code is not None and int(code[1]) != 0


def _words(content: Any) -> str:
    parts = content if isinstance(content, list) else [content]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n\n".join(texts)


def _text(said: Any, pictures: Any) -> str:
    """Return the message, with a mark for each picture."""
    marks = ["[image]"] * (len(pictures) if isinstance(pictures, list) else 0)
    return "\n\n".join(text for text in [*marks, said if isinstance(said, str) else ""] if text)


def _named(kind: str) -> str:
    """Return a type name in a form safe to show, because the file is untrusted."""
    return repr(kind[:60]) if kind else "no name"
