"""API features in a request's body and headers: external access of the model, and costs that its size does not show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.config import DEFAULT_MODEL_EXITS, MODEL_EXITS
from bridge.proxy.content import Content, members
from bridge.proxy.content import content_of as looked_at
from bridge.proxy.errors import RefusedError
from bridge.proxy.upstream import ApiFeatures

CONTEXT = 1_000_000
URL = {"type": "url", "url": "https://evil.example/?what=the+agent+knows"}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 40_000}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBER" * 10}


def asked(*content: Any, **more: Any) -> dict[str, Any]:
    """Return a body whose message has this content."""
    return {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": list(content)}], **more}


def content_of(body: dict[str, Any] | bytes, opened: frozenset[str] = DEFAULT_MODEL_EXITS) -> Content:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return looked_at(members(data), len(data), opened)


TEXT = {"type": "text", "text": "hello"}
#: Every feature with external access, wherever it may occur.
TAKES = {
    "an image by URL": ("url", asked({"type": "image", "source": URL})),
    "a document by URL": ("url", asked({"type": "document", "source": URL})),
    "one in a tool's result": (
        "url",
        asked({"type": "tool_result", "tool_use_id": "x", "content": [TEXT, {"type": "image", "source": URL}]}),
    ),
    "one in a document's content": (
        "url",
        asked({"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": URL}]}}),
    ),
    "one in the system's": ("url", asked(system=[{"type": "image", "source": URL}])),
    "one in a list of lists": ("url", asked([[{"type": "image", "source": URL}]])),
    "one that is a message's only block": (
        "url",
        {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": {"type": "image", "source": URL}}]},
    ),
    "a source that says two things": (
        "url",
        asked({"type": "image", "source": {**PNG, "url": "https://evil.example"}}),
    ),
    "a stored file": ("files", asked({"type": "document", "source": {"type": "file", "file_id": "file_1"}})),
    "a file for the container": ("files", asked({"type": "container_upload", "file_id": "file_1"})),
    "web_fetch": ("web_fetch", asked(TEXT, tools=[{"type": "web_fetch_20250910", "name": "web_fetch"}])),
    "code_execution": ("code_execution", asked(tools=[{"type": "code_execution_20250825", "name": "code_execution"}])),
    "a container": ("code_execution", asked(container={"skills": [{"type": "anthropic", "skill_id": "pdf"}]})),
    "MCP servers": ("mcp_servers", asked(mcp_servers=[{"type": "url", "url": "https://evil.example", "name": "e"}])),
    "an MCP toolset": ("mcp_servers", asked(tools=[{"type": "mcp_toolset", "mcp_server_name": "e"}])),
    "a tool added on the way": (
        "web_fetch",
        asked({"type": "tool_addition", "tool": {"type": "web_fetch_20250910", "name": "web_fetch"}}),
    ),
    "a search where it is closed": (
        "web_search",
        asked(tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]),
    ),
}


@pytest.mark.parametrize(("exit_", "body"), TAKES.values(), ids=TAKES)
def test_feature_is_closed_until_enabled_at_worst_cost(exit_: str, body: dict[str, Any]) -> None:
    """An enabled feature is charged at its worst case."""
    assert exit_ in MODEL_EXITS
    closed = frozenset(MODEL_EXITS) - {exit_}
    with pytest.raises(RefusedError) as caught:
        content_of(body, closed)
    assert caught.value.status == 403
    assert f"--model-exits with `{exit_}`" in caught.value.words
    opened = content_of(body, frozenset({exit_}))
    assert opened.most_tokens == CONTEXT
    tools = exit_ in {"web_fetch", "code_execution", "mcp_servers"}
    assert (opened.again > 10 * 2000) == tools or exit_ == "web_search"


def test_only_agents_own_search_is_enabled_by_default() -> None:
    for exit_, body in TAKES.values():
        if exit_ != "web_search":
            with pytest.raises(RefusedError):
                content_of(body)
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    assert content_of(asked(TEXT, tools=[search])).searches == 8
    assert content_of(asked(TEXT, tools=[search, search])).searches == 16
    small = len(json.dumps(asked(TEXT, tools=[search]))) + 2000
    assert content_of(asked(TEXT, tools=[search])).again == 8 * small, "each search reads the request again"
    for odd in (None, -1, "8", 1.5, True, 10**9):
        assert content_of(asked(TEXT, tools=[{**search, "max_uses": odd}, search])).searches is None


@pytest.mark.parametrize(
    "body",
    [
        asked(TEXT, fallbacks=[{"model": "claude-opus-4-1"}]),
        asked(TEXT, Tools=[{"type": "web_fetch_20250910"}]),
        asked(TEXT, max_Tokens=100_000),
        asked(TEXT, api_base="https://evil.example"),
        {**asked(TEXT), "mcp_\u017fervers": [URL]},
        asked({"type": "image", "Source": URL, "source": PNG}),
        asked({"type": "image", "source": {**PNG, "Type": "url"}}),
        asked({"type": "image", "source": {**PNG, "URL": "https://evil.example"}}),
        asked({"type": "image_url", "image_url": {"url": "https://evil.example"}}),
        asked({"type": "text", "text": "", "Type": "image"}),
        asked({"type": None, "source": URL}),
        asked({"type": ["image"], "source": URL}),
        asked({"type": "image", "source": [URL]}),
        asked({"type": "image", "source": {"type": "s3", "uri": "s3://evil"}}),
        asked({"type": "x" * 5000, "source": URL}),
        asked(TEXT, tools=[{"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-4-1"}]),
        asked(TEXT, tools=[{"type": 5}]),
        asked(TEXT, tools=[{"type": "custom", "Type": "web_fetch_20250910", "name": "x"}]),
        asked(TEXT, tools={"type": "web_fetch_20250910"}),
        asked(TEXT, tools=[[{"type": "web_fetch_20250910"}]]),
        asked(TEXT, context_management={"edits": [{"type": "compact_20260112"}]}),
        asked(TEXT, context_management=[]),
        asked(TEXT, context_management="edits"),
        asked(TEXT, context_management={"edits": {}}),
        asked(TEXT, context_management={"edits": None}),
        asked(TEXT, context_management={"edits": [], "Edits": [{"type": "compact_20260112"}]}),
        asked(TEXT, context_management={"edits": [{"type": "clear_thinking_20251015", "Type": "compact_20260112"}]}),
        asked(TEXT, system={"type": "redirect"}),
        asked(TEXT, tools="web_fetch_20250910"),
        asked(TEXT, tools=[{"type": ["web_fetch_20250910"]}]),
        {**asked(), "messages": {"0": {"role": "user", "content": [{"type": "image", "source": URL}]}}},
        {**asked(), "messages": [{"role": "user", "Content": [{"type": "image", "source": URL}], "content": "x"}]},
    ],
    ids=lambda body: json.dumps(body)[30:110],
)
def test_unknown_feature_is_refused_always(body: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as refused:
        content_of(body, frozenset(MODEL_EXITS) - {"url"})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","type":"image","text":""}]}]}',
        b'{"model":"m","messages":[{"role":"user","content":"a","cont\\u0065nt":"b"}]}',
        b'{"messages":[],"m\\u0065ssages":[]}',
        b'{"system":[{"type":"text","text":"","t\\u0079pe":"image"}]}',
        b'{"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"","data":"a"}}]}]}',
        b'{"messages":[{"content":[{"type":"document","source":{"type":"content","content":"","content":[]}}]}]}',
        b'{"tools":[{"name":"a","type":"custom","type":"web_fetch_20250910"}]}',
        b'{"messages":[{"content":[{"type":"tool_addition","tool":{"type":"custom","type":"mcp_toolset"}}]}]}',
        b'{"context_management":{"edits":[],"edits":[{"type":"compact_20260112"}]}}',
        b'{"context_management":{"edits":[{"type":"clear_thinking_20251015","type":"compact_20260112"}]}}',
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"te\xffxt"}]}]}',
        b'{"model":"m","messages":[01]}',
        b'{"model":"m","messages":[NaN]}',
        b'{"model":"m","messages":["\\ud800"]}',
        b'{"model":"m","messages":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        b'{"model":"m","messages":["a',
        b'{"model":"m","messages":["' + b"a" * 5000,
    ],
    ids=lambda body: str(body[:60]),
)
def test_ambiguous_json_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError):
        content_of(body)


def test_tool_inputs_and_schemas_are_not_inspected() -> None:
    schema = {"type": "object", "properties": {"source": {"type": "url"}, "Type": {"type": "container_upload"}}}
    body = asked(
        {"type": "tool_use", "id": "a", "name": "get", "input": {"type": "image", "source": URL, "Source": [URL]}},
        {"type": "text", "text": json.dumps(URL), "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}},
        {"type": "tool_removal", "name": "get"},
        tools=[{"name": "get", "input_schema": schema}, {"type": "custom", "name": "b", "input_schema": schema}],
        tool_choice={"type": "auto"},
        thinking={"type": "adaptive"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        mcp_servers=[],
        container=None,
    )
    size = len(json.dumps(body))
    assert content_of(body) == Content(size // 4, size + 2000, size + 2000)


def test_picture_costs_fixed_tokens_and_document_whole_context() -> None:
    picture = asked({"type": "image", "source": PNG})
    small = len(json.dumps(picture)) - len(PNG["data"])
    assert content_of(picture).most_tokens == small + 5000 + 2000
    assert content_of(asked(TEXT, *[{"type": "image", "source": {**PNG, "data": "a"}}] * 9)).most_tokens > 9 * 5000
    assert content_of(asked({"type": "document", "source": PDF})).most_tokens == CONTEXT
    assert content_of(asked({"type": "text", "text": "a" * 2 * CONTEXT})).most_tokens == CONTEXT


def test_image_bytes_count_as_written() -> None:
    written = json.dumps(PNG).replace("iVBOR", "\\u0069VBOR").encode()
    body = b'{"messages":[{"content":[{"type":"image","source":%b}]}]}' % written
    assert content_of(body).most_tokens == len(body) - len(PNG["data"]) * 2 + 5000 + 2000
    for odd in (b"7", b"[1]", b"{}", b"null"):
        body = b'{"messages":[{"content":[{"type":"image","source":{"type":"base64","data":%b}}]}]}' % odd
        assert content_of(body).most_tokens == len(body) + 5000 + 2000


@pytest.mark.parametrize("size", [0, 200_000])
@pytest.mark.parametrize("level", ['{"content":[%s]}', '{"content":%s}', "[%s]"])
def test_deeply_nested_content_is_refused(level: str, size: int) -> None:
    """Each level costs one more pass over everything inside."""
    with pytest.raises(RefusedError, match="nested too deeply"):
        content_of(nested(level, json.dumps("a" * size), beside=b"s" * size))


def test_deeply_nested_content_beside_long_text_is_refused() -> None:
    """The passes are few for its size, but the nesting exceeds Python's stack."""
    with pytest.raises(RefusedError, match="nested too deeply"):
        content_of(nested('{"content":[%s]}', "[]", beside=b"s" * 1_000_000))


def nested(level: str, content: str, *, beside: bytes) -> bytes:
    for _ in range(400):
        content = level % content
    return b'{"messages":[{"content":%b}],"system":"%b"}' % (content.encode(), beside)


def test_known_or_enabled_betas_and_headers_pass() -> None:
    said = "claude-code-20250219,effort-2025-11-24, Web-Fetch-2025-09-10,mcp-client-2025-11-20,new-2027-01-01,odd"
    assert ApiFeatures().betas_of(said) == "claude-code-20250219,effort-2025-11-24"
    opened = ApiFeatures(frozenset({"web_fetch"}))
    assert opened.betas_of(said) == "claude-code-20250219,effort-2025-11-24,web-fetch-2025-09-10"
    for name in ("x-stainless-arch", "anthropic-version"):
        assert opened.passes_header(name)
    for name in ("x-portkey-custom-host", "helicone-target-url", "cf-aig-authorization", "x-forwarded-host", "cookie"):
        assert not opened.passes_header(name)
