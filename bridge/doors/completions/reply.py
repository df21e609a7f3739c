"""A turn of the agent as a chat completion: the growing text and its JSON (pure)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bridge.client.reader import Grew, Reader
from bridge.doors.asking import AskError
from bridge.doors.completions.asked import MODEL
from bridge.notify import wording
from sprite.protocol.events import Complete, Ending, Failed, Interrupted
from sprite.protocol.messages import PermissionRequest

if TYPE_CHECKING:
    from bridge.client.reader import News
    from bridge.client.turns import Turn

_BETWEEN = "\n\n"
_INTERRUPTED = "(This was stopped before it was done.)"


class GrowingText:
    """Merge the agent's texts into one growing text. `add` returns the text to append.

    The agent writes several texts in a turn, with tools between them: each becomes a paragraph. Sent text cannot be
    taken back. With `tells_questions`, permission requests appear in the text.
    """

    def __init__(self, *, tells_questions: bool) -> None:
        self._tells_questions = tells_questions
        self._reader = Reader()
        self._is_begun = False

    def add(self, turn: Turn) -> str:
        """Return what is new in a turn, often empty."""
        return "".join(map(self._piece, self._reader.news(turn)))

    def _piece(self, news: News) -> str:
        match news:
            case Grew(piece=piece, begins=begins) if piece:
                return self._apart(piece) if begins else piece
            case Interrupted():
                return self._apart(_INTERRUPTED)
            case PermissionRequest() if self._tells_questions:
                title, body = wording.of_question(news.tool, news.input)
                told = f" ({body})" if body else ""
                return self._apart(f"[{title}{told} Answer on Sprite's page; this goes on then.]")
        return ""

    def _apart(self, words: str) -> str:
        """Return the start of a paragraph."""
        between = _BETWEEN if self._is_begun else ""
        self._is_begun = True
        return between + words


class Completion:
    """JSON of one answer, streamed or whole."""

    def __init__(self, mission_id: str) -> None:
        self._head: dict[str, Any] = {"id": f"chatcmpl-{mission_id}", "created": int(time.time()), "model": MODEL}

    def whole(self, text: str, usage: dict[str, Any] | None) -> dict[str, Any]:
        """Return the whole answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {**self._head, "object": "chat.completion", "choices": [choice], **({"usage": usage} if usage else {})}

    def first(self) -> dict[str, Any]:
        """Return the first chunk of a stream."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> dict[str, Any]:
        """Return a chunk with a piece of the text."""
        return self._chunk({"content": text})

    def last(self, usage: dict[str, Any] | None, *, with_usage: bool) -> Iterator[dict[str, Any]]:
        """Yield the last chunks of a stream."""
        yield self._chunk({}, "stop")
        if with_usage:
            empty = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            yield {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage or empty}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


def usage_of(ending: Ending | None) -> dict[str, Any] | None:
    """Return the token usage in OpenAI's format, or None if it is unknown."""
    usage = ending.usage if isinstance(ending, Complete) else None
    if usage is None:
        return None

    def tokens(name: str) -> int:
        value = usage.get(name)
        return value if type(value) is int and 0 <= value < 2**53 else 0

    cached = tokens("cache_read_input_tokens")
    prompt = tokens("input_tokens") + cached + tokens("cache_creation_input_tokens")
    output = tokens("output_tokens")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def problem_of(fault: Failed | AskError) -> tuple[int, str, str, str]:
    """Return the HTTP status, OpenAI's error type, the code and the message of a failure."""
    code, words = fault.code, fault.message if isinstance(fault, Failed) else str(fault)
    status, kind = _PROBLEMS.get(code, (500, "server_error"))
    return status, kind, code, words


_PROBLEMS = {
    "budget_used_up": (429, "insufficient_quota"),
    "rate_limited": (429, "rate_limit_error"),
    "overloaded": (503, "server_error"),
    "bad_request": (400, "invalid_request_error"),
    "bad_payload": (400, "invalid_request_error"),
    "too_long": (400, "invalid_request_error"),
    # A retry would end the same way, and clients retry errors with status 500.
    "declined": (400, "invalid_request_error"),
    "answer_too_long": (400, "invalid_request_error"),
    "context_full": (400, "invalid_request_error"),
    "not_found": (400, "invalid_request_error"),
    "gone": (409, "invalid_request_error"),
    "queue_full": (503, "server_error"),
    "storage": (503, "server_error"),
    "shortage": (503, "server_error"),
    "stopping": (503, "server_error"),
}
