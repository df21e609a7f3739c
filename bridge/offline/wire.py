"""The Messages API's wire format: the message object, its server-sent events, its errors.

Pure: builds bytes and dictionaries, opens nothing.
"""

import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

CHARACTERS_PER_TOKEN = 4
_WORDS_PER_DELTA = 5
_JSON_PER_DELTA = 96
_WORD_GROUP = re.compile(rf"\s*(?:\S+\s*){{1,{_WORDS_PER_DELTA}}}|\s+")
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def new_id(prefix: str) -> str:
    """Returns an id such as `toolu_01f3...`: random, since a restarted model must not repeat one."""
    return f"{prefix}_{secrets.token_hex(12)}"


def tokens(size: int) -> int:
    """Estimate the tokens in `size` characters."""
    return max(1, size // CHARACTERS_PER_TOKEN)


def message(
    model: str,
    blocks: Iterable[dict[str, Any]],
    request_size: int,
    usage: dict[str, int],
    stop_reason: str | None,
) -> dict[str, Any]:
    """Builds the complete message; `usage` overrides the estimate, `stop_reason` what the blocks imply."""
    content = [_block(block) for block in blocks]
    calls_tool = any(block["type"] == "tool_use" for block in content)
    written = sum(len(block.get("text", "")) or len(msgspec.json.encode(block.get("input"))) for block in content)
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop_reason or ("tool_use" if calls_tool else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens(request_size),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": tokens(written),
            **usage,
        },
    }


def _block(block: dict[str, Any]) -> dict[str, Any]:
    return {"id": new_id("toolu"), "input": {}, **block} if block["type"] == "tool_use" else block


def events(full: dict[str, Any]) -> Iterator[bytes]:
    """Yields the server-sent events that spell out the message `full`."""
    usage = full["usage"]
    opening = full | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    yield _event("message_start", message=opening)
    yield _event("ping")
    for index, block in enumerate(full["content"]):
        is_text = block["type"] == "text"
        empty = {"type": "text", "text": ""} if is_text else block | {"input": {}}
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in _text_deltas(block["text"]) if is_text else _json_deltas(block["input"]):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": full["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage=usage)
    yield _event("message_stop")


def _text_deltas(text: str) -> Iterator[dict[str, str]]:
    for group in _WORD_GROUP.findall(text):
        yield {"type": "text_delta", "text": group}


def _json_deltas(value: Any) -> Iterator[dict[str, str]]:
    encoded = msgspec.json.encode(value).decode()
    for start in range(0, len(encoded), _JSON_PER_DELTA):
        yield {"type": "input_json_delta", "partial_json": encoded[start : start + _JSON_PER_DELTA]}


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def error(status: int, text: str, kind: str | None = None) -> bytes:
    """Builds an error body; `kind` defaults to the API's own name for `status`."""
    named = kind or _ERROR_TYPES.get(status, "api_error")
    return msgspec.json.encode(
        {"type": "error", "error": {"type": named, "message": text}, "request_id": new_id("req")}
    )
