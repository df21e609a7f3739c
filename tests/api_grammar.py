"""Every possible answer of the Messages API as steps of the scripted model: stop reasons, errors and broken streams.

The blocks, events and texts are the documented ones: https://platform.claude.com/docs/en/build-with-claude/streaming,
/build-with-claude/handling-stop-reasons, /build-with-claude/refusals-and-fallback and /api/errors.
"""

from __future__ import annotations

from typing import Any

from tests import api_wire as wire
from tests.scripted_model import Place, Step, beginning, changed, error_event

MODEL = "claude-haiku-4-5"
THINKING = {
    "type": "thinking",
    "thinking": "They want a word. Any word will do here.",
    "signature": "EqQBCgIYAhIM1gbcDa9G",
}
#: As newer models send it: the thinking itself is hidden.
HIDDEN = {"type": "thinking", "thinking": "", "signature": "EosnCkYICxIMMb3LzNrMu"}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"}
TEXT = {"type": "text", "text": "Here is the first half of it, and here is the second half of it."}
TOOL = {"type": "tool_use", "name": "Bash", "input": {"command": "echo done", "description": "Say so"}}
SEARCH = {"type": "server_tool_use", "name": "web_search", "input": {"query": "tea"}, "id": "srvtoolu_01"}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_01",
    "content": [
        {
            "type": "web_search_result",
            "title": "Tea",
            "url": "https://example.org/tea",
            "encrypted_content": "EqgfCioIARgBIiQ3YTAwMjY1Mi1mZjM5LTQ1NGUtODgxNC1kNjNjNTk1ZWI3Y",
            "page_age": None,
        }
    ],
}
FALLBACK = {
    "type": "fallback",
    "from": {"model": "claude-fable-5"},
    "to": {"model": "claude-opus-4-8"},
    "trigger": {"type": "refusal", "category": "cyber"},
}
REFUSAL = {"type": "refusal", "category": "cyber", "explanation": "This request was declined."}

#: By stop reason.
STOPS: dict[str, dict[str, Any]] = {
    "end_turn": {"blocks": [THINKING, REDACTED, TEXT]},
    "max_tokens": {"blocks": [HIDDEN, TEXT], "stop_reason": "max_tokens"},
    "stop_sequence": {"blocks": [TEXT], "stop_reason": "stop_sequence"},
    "tool_use": {"blocks": [THINKING, TEXT, TOOL]},
    "pause_turn": {"blocks": [TEXT, SEARCH, FOUND], "stop_reason": "pause_turn"},
    "refusal": {"blocks": [TEXT], "stop_reason": "refusal", "stop_details": REFUSAL},
    "refusal at once": {"blocks": [], "stop_reason": "refusal", "stop_details": REFUSAL},
    "model_context_window_exceeded": {"blocks": [TEXT], "stop_reason": "model_context_window_exceeded"},
    "fallback": {"blocks": [FALLBACK, TEXT]},
    "empty": {"blocks": []},
    "thinking": {"blocks": [THINKING]},
}
#: By type, with its status.
ERRORS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
#: Errors after the start of a stream, whose status was already 200.
LATE_ERRORS = ("api_error", "overloaded_error", "rate_limit_error", "timeout_error")
_TWO_BLOCKS = [THINKING, TEXT]
PLACES: tuple[Place, ...] = ("before_start", "after_start", "in_block", "between_blocks", "after_delta")
#: By the stream's defect.
BREAKS: dict[str, dict[str, Any]] = {
    **{f"cut {place}": {"blocks": _TWO_BLOCKS, "cut": True, "at": place} for place in PLACES},
    **{f"ended {place}": {"blocks": _TWO_BLOCKS, "at": place} for place in PLACES},
    **{
        f"{place} {kind}": {"blocks": _TWO_BLOCKS, "stream_error": kind, "at": place}
        for kind in LATE_ERRORS[:2]
        for place in PLACES
    },
}


def message(step: dict[str, Any], **usage: int) -> dict[str, Any]:
    """Return the complete message of a step."""
    made = Step(**{"for_" if name == "for" else name: value for name, value in step.items()})
    whole = changed(wire.message(MODEL, made.content() or [], 4000), made)
    return {**whole, "usage": {**whole["usage"], **usage}}


def stream(step: dict[str, Any], **usage: int) -> bytes:
    """Return the bytes of a step's stream, up to its end or break."""
    events = list(wire.events(message(step, **usage)))
    if "at" in step:
        events = beginning(events, step["at"])
    if "stream_error" in step:
        events.append(error_event(step["stream_error"], "scripted error"))
    return b"".join(events)
