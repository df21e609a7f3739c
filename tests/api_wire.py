"""Wire format of the Messages API: the message object, its server-sent events, its errors.

Pure: builds bytes and dictionaries. https://platform.claude.com/docs/en/build-with-claude/streaming
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
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TEXTS_PER_DELTA = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}
#: Blocks with streamed arguments; all others except text and thinking arrive whole at their start.
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


def new_id(prefix: str) -> str:
    """Return an id such as `toolu_01f3...`: random, because a restarted model must not repeat one."""
    return f"{prefix}_{secrets.token_hex(12)}"


def tokens(size: int) -> int:
    """Estimate the tokens in `size` characters."""
    return max(1, size // CHARACTERS_PER_TOKEN)


def message(model: str, blocks: Iterable[dict[str, Any]], request_size: int) -> dict[str, Any]:
    """Build the complete message of an answer."""
    content = [_block(block) for block in blocks]
    calls_tool = any(block["type"] == "tool_use" for block in content)
    written = sum(
        len(block.get("text", block.get("thinking", ""))) or len(msgspec.json.encode(block.get("input")))
        for block in content
    )
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if calls_tool else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens(request_size),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": tokens(written),
            "service_tier": "standard",
        },
    }


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] not in _CALLS:
        return block
    return {"id": new_id("toolu" if block["type"] == "tool_use" else "srvtoolu"), "input": {}, **block}


def events(full: dict[str, Any]) -> Iterator[bytes]:
    """Yield the server-sent events of the message `full`."""
    usage = full["usage"]
    opening = full | {"content": [], "stop_reason": None, "stop_sequence": None}
    opening.pop("stop_details", None)
    yield event("message_start", message=opening | {"usage": usage | {"output_tokens": 1}})
    yield event("ping")
    for index, block in enumerate(full["content"]):
        empty, deltas = _spelled_out(block)
        yield event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ending = {name: full[name] for name in ("stop_reason", "stop_sequence", "stop_details") if name in full}
    yield event("message_delta", delta=ending, usage=usage)
    yield event("message_stop")


def _spelled_out(block: dict[str, Any]) -> tuple[dict[str, Any], Iterable[dict[str, str]]]:
    """Return the block for the event that starts it, still without content, and the deltas with its content."""
    kind = block["type"]
    if kind in _CALLS:
        return block | {"input": {}}, _json_deltas(block["input"])
    if kind not in _TEXTS_PER_DELTA:
        return block, ()
    name, delta = _TEXTS_PER_DELTA[kind]
    deltas = [{"type": delta, name: group} for group in _WORD_GROUP.findall(block[name])]
    if kind == "text":
        return block | {"text": ""}, deltas
    signature = {"type": "signature_delta", "signature": block.get("signature", "")}
    return block | {"thinking": "", "signature": ""}, [*deltas, signature]


def _json_deltas(value: Any) -> Iterator[dict[str, str]]:
    yield {"type": "input_json_delta", "partial_json": ""}
    encoded = msgspec.json.encode(value).decode()
    for start in range(0, len(encoded), _JSON_PER_DELTA):
        yield {"type": "input_json_delta", "partial_json": encoded[start : start + _JSON_PER_DELTA]}


def event(kind: str, **fields: Any) -> bytes:
    """Build one server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def error(status: int, text: str, kind: str | None = None) -> bytes:
    """Build an error body; `kind` defaults to the API's own name for `status`."""
    named = kind or _ERROR_TYPES.get(status, "api_error")
    return msgspec.json.encode(
        {"type": "error", "error": {"type": named, "message": text}, "request_id": new_id("req")}
    )
