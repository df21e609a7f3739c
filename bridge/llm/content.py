"""What a request's body makes the model's API reach and read: an allow-list, and a bound for what it costs.

A VM that may reach the bridge alone must not reach the rest through the API, which fetches, runs and connects where a
body asks it to; nor may a field that is not known here choose another model or, at a gateway, another address. What an
operator has opened passes; what is not known does not. Knows no sockets.

While the content is looked at, what the body's size does not say of its cost is found, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.llm.errors import RefusedError
from bridge.llm.exit_names import MODEL_EXITS
from bridge.llm.skeleton import Skeleton

_SETTING = "BRIDGE_MODEL_EXITS"

#: A picture is scaled down to this or less, however large its file is.
_IMAGE_TOKENS = 5000
#: What the API adds to a prompt by itself: how tools are used, for one.
_ADDED_TOKENS = 2000
#: No prompt has more tokens, whatever its size in bytes.
_CONTEXT_TOKENS = 1_000_000
_BYTES_PER_TOKEN = 4
_MAX_SEARCHES = 1000
#: So often the API calls the model by itself while its tools are at work; then it gives the turn back.
_MAX_ROUNDS = 10

_FIELDS = frozenset(
    "model messages max_tokens system tools tool_choice metadata stop_sequences stream temperature top_k top_p "
    "thinking service_tier speed inference_geo cache_control context_management output_config output_format".split()
)
#: Top-level fields that are exits.
_EXIT_FIELDS = {"mcp_servers": "mcp_servers", "container": "code_execution"}
_EDITS = ("clear_thinking_", "clear_tool_uses_")
_BLOCKS = frozenset(
    "text image document search_result thinking redacted_thinking tool_use tool_result tool_reference server_tool_use "
    "web_search_tool_result web_search_result web_search_tool_result_error tool_search_tool_result "
    "tool_search_tool_search_result tool_search_tool_result_error tool_addition tool_removal".split()
)
#: Kinds of content, by how their names begin.
_EXIT_BLOCKS = {
    "web_fetch_": "web_fetch",
    "code_execution_": "code_execution",
    "bash_code_execution_": "code_execution",
    "text_editor_code_execution_": "code_execution",
    "mcp_": "mcp_servers",
    "container_upload": "files",
}
_SOURCES = frozenset({"base64", "text", "content"})
_EXIT_SOURCES = {"url": "url", "file": "files"}
#: Tools whose calls the client carries out, and the search among the request's own tools.
_TOOLS = ("bash_2", "text_editor_", "computer_", "memory_", "tool_search_tool_")
_EXIT_TOOLS = {
    "web_search_": "web_search",
    "web_fetch_": "web_fetch",
    "code_execution_": "code_execution",
    "mcp_toolset": "mcp_servers",
}
#: Exits whose tools the API uses as often as it likes; a search says how often at most.
_EXITS_WITH_ROUNDS = frozenset({"web_fetch", "code_execution", "mcp_servers"})
#: Names whose other spellings (`Source`, `\u017fource`) a reader that folds case takes for them.
_NAMES = frozenset({"type", "source", "content", "url", "file_id", "tool", "tools", "input", "name", "data"})
#: What holds the client's own data, or nothing that reaches anything.
_NOT_LOOKED_INTO = frozenset({"input", "input_schema", "cache_control", "citations", "caller"})


@dataclass(frozen=True, slots=True)
class Content:
    """What a body's content may cost besides its answer.

    `least_tokens` and `most_tokens` bound the prompt; `again` are read once more for the API's own tools;
    `searches` are charged each, None for as many as the API likes.
    """

    least_tokens: int
    most_tokens: int
    searches: int | None = 0
    again: int = 0


def content_of(body: Any, skeleton: Skeleton, size: int, opened: frozenset[str]) -> Content:
    """Looks at a whole parsed body of `size` bytes, with these exits open. RefusedError for what may not pass."""
    return _Look(opened, skeleton).at(body, size)


class _Look:
    """One look at one body."""

    def __init__(self, opened: frozenset[str], skeleton: Skeleton) -> None:
        self._opened = opened
        self._skeleton = skeleton
        self._image_bytes = 0
        self._images = 0
        self._is_size_known = True
        self._searches: int | None = 0
        self._rounds = 0

    def at(self, body: Any, size: int) -> Content:
        if not isinstance(body, dict):
            raise RefusedError(400, "The body is not a JSON object.")
        self._fields(body)
        self._blocks(body.get("system"))
        for message in _listed(body.get("messages"), "messages"):
            self._inside(message)
        self._tools(body.get("tools"))
        self._edits(body.get("context_management"))
        bytes_read = size - self._image_bytes
        pictures = self._images * _IMAGE_TOKENS
        least = min(bytes_read // _BYTES_PER_TOKEN, _CONTEXT_TOKENS)
        # A token has a byte at least.
        said = min(bytes_read + pictures + _ADDED_TOKENS, _CONTEXT_TOKENS)
        most = said if self._is_size_known else _CONTEXT_TOKENS
        return Content(least, most, self._searches, said * min(self._rounds, _MAX_ROUNDS))

    def _fields(self, body: dict[str, Any]) -> None:
        for name, value in body.items():
            exit_ = _EXIT_FIELDS.get(name)
            if exit_ is not None:
                if value:
                    self._takes(exit_)
            elif name not in _FIELDS:
                raise RefusedError(400, f"The field {name[:64]!r} is not one that this bridge passes on.")

    def _blocks(self, content: Any) -> None:
        """Content: a text, a block, or a list of them."""
        if isinstance(content, dict):
            self._block(content)
        elif isinstance(content, list):
            for block in content:
                self._blocks(block)

    def _block(self, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if "type" in block:
            self._kind(kind)
        if kind == "image":
            self._images += 1
        self._inside(block, is_image=kind == "image")

    def _inside(self, found: dict[str, Any], *, is_image: bool = False) -> None:
        """Everything in a message or a block that may reach something or hold a block."""
        _refuse_other_spellings(found)
        for name, value in found.items():
            if name in _NOT_LOOKED_INTO or not isinstance(value, dict | list):
                continue
            if name == "source":
                self._source(value, is_image=is_image)
            elif name in {"tool", "tools", "definition"}:
                self._tools(value if isinstance(value, list) else [value])
            else:
                self._blocks(value)

    def _kind(self, kind: Any) -> None:
        exit_ = _by_prefix(_EXIT_BLOCKS, kind)
        if exit_ is not None:
            self._takes(exit_)
        elif not isinstance(kind, str) or kind not in _BLOCKS:
            raise RefusedError(400, f"Content of the type {_named(kind)} is not what this bridge passes on.")

    def _source(self, source: Any, *, is_image: bool) -> None:
        if not isinstance(source, dict):
            raise RefusedError(400, "source: not an object.")
        kind = source.get("type")
        if not isinstance(kind, str):
            raise RefusedError(400, "source: it has no type.")
        _refuse_other_spellings(source)
        if kind in _EXIT_SOURCES:
            self._takes(_EXIT_SOURCES[kind])
        elif kind not in _SOURCES:
            raise RefusedError(400, f"A source of the type {_named(kind)} is not what this bridge passes on.")
        for name, exit_ in (("url", "url"), ("file_id", "files")):
            if name in source:  # whatever it says that it is
                self._takes(exit_)
        if kind == "base64" and is_image:
            data = source.get("data")
            self._image_bytes += self._skeleton.length(data) if isinstance(data, str) else 0
        elif kind == "base64":
            # A document is packed: how much text its bytes hold is not known.
            self._is_size_known = False
        self._blocks(source.get("content"))

    def _tools(self, tools: Any) -> None:
        for tool in _listed(tools, "tools"):
            _refuse_other_spellings(tool)
            self._tool(tool)

    def _tool(self, tool: dict[str, Any]) -> None:
        kind = tool.get("type")
        if kind is None:
            return
        if not isinstance(kind, str):
            raise RefusedError(400, "tools: one has no type.")
        if kind in {"custom", "tool_reference"}:
            return
        exit_ = _by_prefix(_EXIT_TOOLS, kind)
        if exit_ is not None:
            self._takes(exit_)
        elif not kind.startswith(_TOOLS):
            raise RefusedError(400, f"A tool of the type {_named(kind)} is not what this bridge passes on.")
        elif kind.startswith("tool_search_"):
            self._is_size_known = False
            self._rounds = _MAX_ROUNDS
        if exit_ == "web_search":
            self._count_searches(tool.get("max_uses"))

    def _count_searches(self, uses: Any) -> None:
        if type(uses) is not int or not 0 <= uses <= _MAX_SEARCHES:
            self._searches = None
            self._rounds = _MAX_ROUNDS
            return
        self._rounds += uses
        if self._searches is not None:
            self._searches += uses

    def _edits(self, management: Any) -> None:
        if management is None:
            return
        edits = management.get("edits", []) if isinstance(management, dict) else None
        if not isinstance(edits, list):
            raise RefusedError(400, "context_management: not an object with a list of edits.")
        for edit in edits:
            kind = edit.get("type") if isinstance(edit, dict) else None
            if not isinstance(kind, str) or not kind.startswith(_EDITS):
                raise RefusedError(400, f"An edit of the type {_named(kind)} is not what this bridge passes on.")

    def _takes(self, exit_: str) -> None:
        if exit_ not in self._opened:
            raise RefusedError(
                403,
                f"This bridge is closed to {MODEL_EXITS[exit_]}. Its operator can open it: {_SETTING} with `{exit_}`.",
                retry=False,
            )
        self._is_size_known = False
        if exit_ in _EXITS_WITH_ROUNDS:
            self._rounds = _MAX_ROUNDS


def _refuse_other_spellings(found: dict[str, Any]) -> None:
    for name in found:
        if name not in _NAMES and (folded := name.casefold()) in _NAMES:
            raise RefusedError(400, f"The body says `{name}` where `{folded}` is meant.")


def _listed(value: Any, name: str) -> list[dict[str, Any]]:
    """The objects of a list; what else stands in it reaches nothing, and is the API's to refuse."""
    if not isinstance(value, list | None) or any(isinstance(one, list) for one in value or ()):
        raise RefusedError(400, f"{name}: not a list of objects.")
    return [one for one in value or () if isinstance(one, dict)]


def _by_prefix(kinds: dict[str, str], kind: Any) -> str | None:
    if not isinstance(kind, str):
        return None
    return next((exit_ for prefix, exit_ in kinds.items() if kind.startswith(prefix)), None)


def _named(kind: Any) -> str:
    return repr(kind[:64]) if isinstance(kind, str) else "that it has"
