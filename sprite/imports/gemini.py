"""Reader for Gemini CLI: `~/.gemini/tmp/<project>/chats/session-*.jsonl` (older: `*.json`), `logs.json`.

A chat is a list of messages: one document, or lines that add to it and change it. `logs.json` has only the person's
prompts, which are redundant for sessions with a chat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sprite.imports.claude_code_entries import MAX_LINE_BYTES
from sprite.imports.claude_code_turns import OVER_AFTER_SECONDS, SETTLED_AFTER_SECONDS
from sprite.imports.observed_turns import Conversation, Turn
from sprite.imports.reader import Surroundings, Tally, UnreadableError, decode, lines, moment, plain_text, word
from sprite.log.transcript import ImportedTurn

SOURCE = "gemini-cli"
#: File beside the chats that names the project's folder.
_ROOT = ".project_root"
_LONGEST_ROOT = 4096
_LOG = "logs.json"
_CHAT_HEAD = re.compile(rb'\A\s*\{\s*"sessionId"\s*:\s*"[^"\\]{1,128}"\s*,\s*"projectHash"\s*:')
_LOG_HEAD = re.compile(rb'\A\s*\[\s*\{\s*"sessionId"\s*:\s*"[^"\\]{1,128}"\s*,\s*"messageId"\s*:')
#: Text that the program adds under the user role.
_CONTEXTS = (
    "<session_context>",
    "<hook_context>",
    "This is the Gemini CLI. We are setting up the context for our chat.",
)
#: Start of the content that a person referred to, but did not write.
_REFERRED = "\n--- Content from referenced files ---"
_FAILED = frozenset({"error", "cancelled"})
_EXIT = re.compile(r"^Exit Code: [1-9]", re.MULTILINE)
#: The lines about the exit come at the end of an output.
_EXIT_WITHIN = 400
_SPEAKERS = frozenset({"user", "gemini", "info", "warning", "error"})


@dataclass(slots=True)
class _Chat:
    """The final state of a chat: messages by id in order, each with its first line number."""

    session: str = ""
    is_subagent: bool = False
    messages: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)


class GeminiReader:
    """Read chats, each one session, and the prompts of sessions without a chat."""

    kind = SOURCE
    name = "Gemini CLI session"

    def recognises(self, path: Path, opening: bytes) -> bool:
        """Return whether a file begins like a chat or a list of prompts."""
        return bool(_CHAT_HEAD.match(opening) or _LOG_HEAD.match(opening)) or (
            path.name == _LOG and path.with_name("chats").is_dir() and opening.strip() == b"[]"
        )

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
        """Yield the turns of each chat, then the prompts of other sessions."""
        seen: set[str] = set()
        logs = [path for path in paths if path.name == _LOG]
        for path in sorted(set(paths) - set(logs), key=lambda path: (path.name, path)):
            try:
                chat = _read_chat(path, around, tally)
            except OSError as error:
                tally.refuse(path, error)
                continue
            tally.files += 1
            if chat.session:
                seen.add(chat.session)
                yield from _turns(chat, path, around, tally)
            elif chat.messages:
                tally.refuse(path, "names no session")
        for path in logs:
            tally.files += 1
            yield from _prompts(path, seen | _chats_beside(path), around, tally)


def _read_chat(path: Path, around: Surroundings, tally: Tally) -> _Chat:
    chat = _Chat()
    if path.suffix == ".json":
        value = _document(path, around, tally)
        if isinstance(value, dict):
            _take(chat, 1, value, path, tally)
        return chat
    for line, value in lines(path, around.on_bytes, lambda number, why: tally.damage(path, number, why)):
        if isinstance(value, dict):
            _take(chat, line, value, path, tally)
        else:
            tally.damage(path, line, "wrong shape: no object")
    return chat


def _document(path: Path, around: Surroundings, tally: Tally) -> Any:
    """Return the value of a file with one document, or None with a note in the tally."""
    with path.open("rb") as stream:
        data = stream.read(MAX_LINE_BYTES + 1)
    around.on_bytes(len(data))
    try:
        # A truncated file would be reported as invalid JSON; this reports its length.
        return decode(data if len(data) > MAX_LINE_BYTES else plain_text(data).encode())
    except UnreadableError as error:
        tally.damage(path, 1, str(error))
        return None


def _take(chat: _Chat, line: int, value: dict[str, Any], path: Path, tally: Tally) -> None:
    changes = value.get("$set")
    if isinstance(value.get("$rewindTo"), str):
        # The program hides these messages after a rewind, but they were said.
        return
    if isinstance(value.get("id"), str):
        known = chat.messages.get(value["id"])
        # A repeated message has its tool calls added.
        chat.messages[value["id"]] = (line if known is None else known[0], {**(known[1] if known else {}), **value})
    elif isinstance(changes, dict) or isinstance(value.get("sessionId"), str):
        about = changes if isinstance(changes, dict) else value
        if not chat.session and isinstance(about.get("sessionId"), str):
            chat.session = about["sessionId"]
        chat.is_subagent = chat.is_subagent or about.get("kind") == "subagent"
        listed = about.get("messages")
        for message in listed if isinstance(listed, list) else []:
            if isinstance(message, dict) and isinstance(message.get("id"), str):
                # A resumed session lists all its messages again, with less content.
                chat.messages.setdefault(message["id"], (line, message))
            else:
                tally.damage(path, line, "wrong shape: a message without an id")
    else:
        tally.passed_over("Gemini CLI records of a kind that is not known")


def _turns(chat: _Chat, path: Path, around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
    conversation = Conversation(SOURCE, chat.session, path, around.now, tally)
    project = around.project_of(_root(path.parent.parent))
    turn: Turn | None = None
    for line, message in sorted(chat.messages.values(), key=lambda said: said[0]):
        at, kind = moment(message.get("timestamp")), word(message.get("type"))
        if kind not in _SPEAKERS:
            tally.passed_over(f"Gemini CLI messages of type {kind[:60]!r}")
        elif kind == "user":
            own, referred = _persons(message)
            if own is None:
                continue
            if at is None:
                tally.damage(path, line, "no time at which this was said")
                continue
            if turn is not None and (finished := conversation.finished(turn)) is not None:
                yield finished
            turn = Turn(f"{chat.session}.{message['id']}"[:200], line, at, at, project)
            (turn.notices if chat.is_subagent else turn.said).append(own)
            if referred:
                turn.calls("referred", "read_many_files", {})
                turn.answers("referred", referred, is_error=False)
        elif turn is not None:
            turn.touch(at)
            _answer(turn, kind, message)
    yield from _last(turn, conversation, around, tally)


def _last(turn: Turn | None, conversation: Conversation, around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
    if turn is None:
        return
    quiet = abs(around.now - turn.ended_at)
    if quiet < (OVER_AFTER_SECONDS if turn.waits and turn.outcome is None else SETTLED_AFTER_SECONDS):
        tally.open += 1
    elif (finished := conversation.finished(turn)) is not None:
        yield finished


def _answer(turn: Turn, kind: str, message: dict[str, Any]) -> None:
    """Add an agent's or the program's message to a turn."""
    if kind == "gemini":
        turn.outcome = None
        turn.says(_words(message.get("content")))
        listed = message.get("toolCalls")
        for call in listed if isinstance(listed, list) else []:
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                turn.calls(call["id"], str(call.get("name")), call.get("args"))
                result = _result(call.get("result"))
                is_error = word(call.get("status")) in _FAILED or _EXIT.search(str(result)[-_EXIT_WITHIN:]) is not None
                turn.answers(call["id"], result, is_error=is_error)
    elif kind == "error":
        turn.outcome = "error"
        turn.notices.append(_words(message.get("content")))
    elif "cancelled" in _words(message.get("content")).lower():
        turn.outcome = "interrupted"


def _persons(message: dict[str, Any]) -> tuple[str | None, str]:
    """Return (the person's words or None, the text of referenced files)."""
    parts = _parts(message.get("content"))
    if any("functionResponse" in part for part in parts):
        return None, ""
    whole = _words(parts)
    if not whole.strip() or whole.startswith(_CONTEXTS):
        return None, ""
    shown = _words(message.get("displayContent"))
    own, mark, referred = whole.partition(_REFERRED)
    return shown or own.rstrip(), (mark + referred).strip()


def _parts(content: Any) -> list[dict[str, Any]]:
    listed = content if isinstance(content, list) else [content]
    return [part if isinstance(part, dict) else {"text": str(part or "")} for part in listed]


def _words(content: Any) -> str:
    """Return the text of a message without the model's thoughts, with a mark for each picture."""
    said = []
    for part in _parts(content):
        if isinstance(part.get("text"), str) and not part.get("thought"):
            said.append(part["text"])
        elif "inlineData" in part or "fileData" in part:
            said.append("[image]")
    return "\n\n".join(text for text in said if text)


def _result(value: Any) -> Any:
    """Return the result of a call: the text shown to the model, if there is one."""
    outputs = []
    for part in value if isinstance(value, list) else []:
        shown = part.get("functionResponse") if isinstance(part, dict) else None
        response = shown.get("response") if isinstance(shown, dict) else None
        outputs.append(response.get("output", response.get("error", response)) if isinstance(response, dict) else part)
    return outputs[0] if len(outputs) == 1 else outputs or value


def _root(folder: Path) -> str | None:
    """Return the project's folder from its note beside the chats; older versions noted only a hash."""
    note = folder / _ROOT
    try:
        if not note.is_file() or note.stat().st_size > _LONGEST_ROOT:
            return None
        return plain_text(note.read_bytes()).strip() or None
    except OSError:
        return None


def _chats_beside(path: Path) -> set[str]:
    """Return the id prefixes, from file names, of sessions with a chat beside a list of prompts."""
    try:
        return {chat.stem.rpartition("-")[2] for chat in path.with_name("chats").glob("session-*.json*")}
    except OSError:
        return set()


def _prompts(path: Path, chats: Iterable[str], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
    told = tuple(chats)
    listed = _listed(path, around, tally)
    project = around.project_of(_root(path.parent))
    conversations: dict[str, Conversation] = {}
    for number, prompt in enumerate(listed, start=1):
        session, said = (prompt.get("sessionId"), prompt.get("message")) if isinstance(prompt, dict) else (None, None)
        if not isinstance(session, str) or not isinstance(said, str):
            tally.damage(path, number, "wrong shape: a prompt without its session or its words")
            continue
        if session.startswith(told) and told:
            continue
        at = moment(prompt.get("timestamp"))
        if said.startswith("/") or prompt.get("type") != "user":
            tally.passed_over("commands to Gemini CLI itself")
        elif at is None:
            tally.damage(path, number, "no time at which this was said")
        else:
            conversation = conversations.setdefault(session, Conversation(SOURCE, session, path, around.now, tally))
            turn = Turn(f"{session}.{prompt.get('messageId')}"[:200], number, at, at, project, [said])
            turn.outcome = "complete"
            turn.notices.append("Gemini CLI kept only the prompt of this turn.")
            if (finished := conversation.finished(turn)) is not None:
                yield finished


def _listed(path: Path, around: Surroundings, tally: Tally) -> list[Any]:
    try:
        listed = _document(path, around, tally)
    except OSError as error:
        tally.refuse(path, error)
        return []
    return listed if isinstance(listed, list) else []
