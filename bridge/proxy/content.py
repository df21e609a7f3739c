"""Allow-list for the content of requests, and bounds for its cost.

A VM that may reach only the bridge must not reach other hosts through the API, which fetches, connects and runs code
as a request demands. An unknown field could also choose another model or, at a gateway, another address. So only known
content and features that the operator enabled pass.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from bridge.config import MODEL_EXITS
from bridge.proxy.errors import RefusedError

#: The API has no longer number, type or model name.
_LONGEST_SCALAR = 1 << 14
_MOST_SHOWN = 64
_OBJECT, _LIST, _STRING = b'{["'
_CONTAINERS = (_OBJECT, _LIST)


class _Name:
    """A member name that equals no other name, so that a dict with such keys keeps repeated members apart."""

    __slots__ = ("text",)

    def __init__(self, _kind: type, text: str) -> None:
        self.text = text


_MEMBERS = msgspec.json.Decoder(dict[_Name, Raw], dec_hook=_Name)
_ITEMS = msgspec.json.Decoder(list[Raw])
_SCALARS = msgspec.json.Decoder()


def members(raw: Raw | bytes | bytearray) -> dict[str, Raw]:
    """Return the members of an object. RefusedError for anything else, and for a repeated name."""
    pairs = _decoded(_MEMBERS, raw)
    found = {name.text: value for name, value in pairs.items()}
    if len(found) != len(pairs):
        twice, _ = Counter(name.text for name in pairs).most_common(1)[0]
        raise RefusedError(400, f"The body contains `{twice[:_MOST_SHOWN]}` twice in one object.")
    return found


def items(raw: Raw) -> list[Raw]:
    """Return the items of a list. RefusedError for anything else."""
    found: list[Raw] = _decoded(_ITEMS, raw)
    return found


def scalar(raw: Raw) -> Any:
    """Return a string, number, boolean or None. RefusedError for a very long one."""
    if len(memoryview(raw)) > _LONGEST_SCALAR:
        raise RefusedError(400, "The body has a name or a number that is too long.")
    return _decoded(_SCALARS, raw)


def is_object(raw: Raw) -> bool:
    """Return whether the value is an object."""
    return memoryview(raw)[0] == _OBJECT


def is_list(raw: Raw) -> bool:
    """Return whether the value is a list."""
    return memoryview(raw)[0] == _LIST


def is_container(raw: Raw) -> bool:
    """Return whether the value is an object or a list."""
    return memoryview(raw)[0] in _CONTAINERS


def string_bytes(raw: Raw) -> int:
    """Return the number of bytes between a string's quotes as written; 0 for any other value."""
    written = memoryview(raw)
    return len(written) - 2 if written[0] == _STRING else 0


def encoded(found: Mapping[str, Raw]) -> bytes:
    """Return the JSON of an object with these members, each value as it was written."""
    return msgspec.json.encode(found)


def _decoded(decoder: msgspec.json.Decoder[Any], raw: Raw | bytes | bytearray) -> Any:
    try:
        return decoder.decode(raw)
    except RecursionError as error:
        raise _too_deep() from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(400, f"The body is not a valid JSON object ({error}).") from error


def _too_deep() -> RefusedError:
    return RefusedError(400, "The body's JSON is nested too deeply.")


#: Images are scaled down to at most this, however large the file is.
_IMAGE_TOKENS = 5000
#: Tokens that the API adds to a prompt itself, for example instructions for tools.
_ADDED_TOKENS = 2000
#: The largest context; a prompt has no more tokens, whatever its size in bytes.
_CONTEXT_TOKENS = 1_000_000
_BYTES_PER_TOKEN = 4
_MAX_SEARCHES = 1000
#: The API calls the model at most this often while its own tools run; then it ends the turn.
_MAX_ROUNDS = 10

FIELDS = frozenset(
    "model messages max_tokens system tools tool_choice metadata stop_sequences stream temperature top_k top_p "
    "thinking service_tier speed inference_geo cache_control context_management output_config output_format".split()
)
#: Top-level fields that enable a feature of the API.
EXIT_FIELDS = {"mcp_servers": "mcp_servers", "container": "code_execution"}
_EDITS = ("clear_thinking_", "clear_tool_uses_")
_BLOCKS = frozenset(
    "text image document search_result thinking redacted_thinking tool_use tool_result tool_reference server_tool_use "
    "web_search_tool_result web_search_result web_search_tool_result_error tool_search_tool_result "
    "tool_search_tool_search_result tool_search_tool_result_error tool_addition tool_removal".split()
)
#: Prefixes of content types.
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
#: Tools that the client executes, and the search among the request's own tools.
_TOOLS = ("bash_2", "text_editor_", "computer_", "memory_", "tool_search_tool_")
_EXIT_TOOLS = {
    "web_search_": "web_search",
    "web_fetch_": "web_fetch",
    "code_execution_": "code_execution",
    "mcp_toolset": "mcp_servers",
}
#: Features whose tools the API may use any number of times; a web search declares its maximum.
_EXITS_WITH_ROUNDS = frozenset({"web_fetch", "code_execution", "mcp_servers"})
#: Names that must not occur in another spelling (`Source`, `\u017fource`): a reader that folds case would accept it.
_NAMES = frozenset({"type", "source", "content", "url", "file_id", "tool", "tools", "input", "name", "data", "edits"})
#: Members with the client's own data, or that reach nothing.
_NOT_LOOKED_INTO = frozenset({"input", "input_schema", "cache_control", "citations", "caller"})
#: Each level of a body is one pass over its bytes. The API's deepest content has ten levels.
_MOST_PASSES = 16


@dataclass(frozen=True, slots=True)
class Content:
    """Limits for the cost of a request's content, without its answer.

    The prompt has at least `least_tokens` and at most `most_tokens`. Without results of the API's own tools it has
    at most `first_tokens`; with them the model reads up to `again` tokens a second time. The API charges for each of up
    to `searches` web searches (None: without limit).
    """

    least_tokens: int
    most_tokens: int
    first_tokens: int
    searches: int | None = 0
    again: int = 0


def content_of(body: Mapping[str, Raw], size: int, opened: frozenset[str]) -> Content:
    """Check a request's body of `size` bytes and return limits for its cost; `opened` are the enabled features.

    Raise RefusedError for content that may not pass, and for ambiguous JSON.
    """
    try:
        return _Look(opened, size).at(body)
    except RecursionError as error:
        raise _too_deep() from error


class _Look:
    """Check the content of one request body of `size` bytes."""

    def __init__(self, opened: frozenset[str], size: int) -> None:
        self._opened = opened
        self._size = size
        self._bytes_decoded = 0
        self._image_bytes = 0
        self._images = 0
        self._is_size_known = True
        self._is_first_known = True
        self._searches: int | None = 0
        self._rounds = 0

    def at(self, body: Mapping[str, Raw]) -> Content:
        self._fields(body)
        if "system" in body:
            self._blocks(body["system"])
        for message in self._listed(body.get("messages"), "messages"):
            self._inside(message)
        self._tools(body.get("tools"))
        self._edits(body.get("context_management"))
        bytes_read = self._size - self._image_bytes
        pictures = self._images * _IMAGE_TOKENS
        least = min(bytes_read // _BYTES_PER_TOKEN, _CONTEXT_TOKENS)
        # A token has at least one byte.
        said = min(bytes_read + pictures + _ADDED_TOKENS, _CONTEXT_TOKENS)
        most = said if self._is_size_known else _CONTEXT_TOKENS
        first = said if self._is_first_known else _CONTEXT_TOKENS
        return Content(least, most, first, self._searches, said * min(self._rounds, _MAX_ROUNDS))

    def _fields(self, body: Mapping[str, Raw]) -> None:
        for name, value in body.items():
            exit_ = EXIT_FIELDS.get(name)
            if exit_ is not None:
                if not self._is_empty(value):
                    self._takes(exit_)
            elif name not in FIELDS:
                raise RefusedError(400, f"This bridge does not forward the field {name[:64]!r}.")

    def _is_empty(self, value: Raw) -> bool:
        if is_object(value):
            return not self._members(value)
        return not (self._items(value) if is_list(value) else scalar(value))

    def _blocks(self, content: Raw) -> None:
        """Check a message's content: a text, a block, or a list of blocks."""
        if is_object(content):
            self._block(self._members(content))
        elif is_list(content):
            for block in self._items(content):
                self._blocks(block)

    def _block(self, block: dict[str, Raw]) -> None:
        kind = _type_of(block)
        if "type" in block:
            self._kind(kind)
        if kind == "image":
            self._images += 1
        self._inside(block, is_image=kind == "image")

    def _inside(self, found: dict[str, Raw], *, is_image: bool = False) -> None:
        """Check the members of a message or block: nested blocks, sources and tools."""
        _refuse_other_spellings(found)
        for name, value in found.items():
            if name in _NOT_LOOKED_INTO or not is_container(value):
                continue
            if name == "source":
                self._source(value, is_image=is_image)
            elif name in {"tool", "tools", "definition"}:
                if is_list(value):
                    self._tools(value)
                else:
                    self._tool(self._members(value))
            else:
                self._blocks(value)

    def _kind(self, kind: Any) -> None:
        exit_ = _by_prefix(_EXIT_BLOCKS, kind)
        if exit_ is not None:
            self._takes(exit_)
        elif not isinstance(kind, str) or kind not in _BLOCKS:
            raise RefusedError(400, f"This bridge does not forward content of the type {_named(kind)}.")

    def _source(self, value: Raw, *, is_image: bool) -> None:
        source = self._members(value) if is_object(value) else {}
        kind = _type_of(source)
        if not isinstance(kind, str):
            raise RefusedError(400, "The `source` of an image or document is no object with a `type`.")
        _refuse_other_spellings(source)
        if kind in _EXIT_SOURCES:
            self._takes(_EXIT_SOURCES[kind])
        elif kind not in _SOURCES:
            raise RefusedError(400, f"This bridge does not forward a source of the type {_named(kind)}.")
        for name, exit_ in (("url", "url"), ("file_id", "files")):
            if name in source:  # whatever its type says
                self._takes(exit_)
        if kind == "base64" and is_image:
            self._image_bytes += string_bytes(source["data"]) if "data" in source else 0
        elif kind == "base64":
            # A document may be compressed: its bytes do not bound its text.
            self._is_size_known = self._is_first_known = False
        if "content" in source:
            self._blocks(source["content"])

    def _tools(self, tools: Raw | None) -> None:
        for tool in self._listed(tools, "tools"):
            self._tool(tool)

    def _tool(self, tool: dict[str, Raw]) -> None:
        _refuse_other_spellings(tool)
        kind = _type_of(tool)
        if kind is None:
            return
        if not isinstance(kind, str):
            raise RefusedError(400, "tools: one has no type.")
        if kind in {"custom", "tool_reference"}:
            return
        exit_ = _by_prefix(_EXIT_TOOLS, kind)
        if exit_ is not None:
            # The model reads the results of these tools only after it has used them.
            self._takes(exit_, adds_at_once=exit_ not in {"web_search", "web_fetch"})
        elif not kind.startswith(_TOOLS):
            raise RefusedError(400, f"This bridge does not forward a tool of the type {_named(kind)}.")
        elif kind.startswith("tool_search_"):
            self._is_size_known = False
            self._rounds = _MAX_ROUNDS
        if exit_ == "web_search":
            uses = tool.get("max_uses")
            self._count_searches(None if uses is None or is_container(uses) else scalar(uses))

    def _count_searches(self, uses: Any) -> None:
        if type(uses) is not int or not 0 <= uses <= _MAX_SEARCHES:
            self._searches = None
            self._rounds = _MAX_ROUNDS
            return
        self._rounds += uses
        if self._searches is not None:
            self._searches += uses

    def _edits(self, management: Raw | None) -> None:
        if management is None or _is_null(management):
            return
        words = "context_management: not an object with a list of edits."
        if not is_object(management):
            raise RefusedError(400, words)
        found = self._members(management)
        _refuse_other_spellings(found)
        if "edits" not in found:
            return
        if not is_list(found["edits"]):
            raise RefusedError(400, words)
        for each in self._items(found["edits"]):
            edit = self._members(each) if is_object(each) else {}
            _refuse_other_spellings(edit)
            kind = _type_of(edit)
            if not isinstance(kind, str) or not kind.startswith(_EDITS):
                raise RefusedError(400, f"This bridge does not forward an edit of the type {_named(kind)}.")

    def _listed(self, value: Raw | None, name: str) -> Iterator[dict[str, Raw]]:
        """Yield the objects of a JSON list; the API rejects other items. Raise RefusedError for anything but a list."""
        if value is None or _is_null(value):
            return
        found = self._items(value) if is_list(value) else None
        if found is None or any(is_list(one) for one in found):
            raise RefusedError(400, f"{name}: not a list of objects.")
        for one in found:
            if is_object(one):
                yield self._members(one)

    def _members(self, value: Raw) -> dict[str, Raw]:
        self._count_pass(value)
        return members(value)

    def _items(self, value: Raw) -> list[Raw]:
        self._count_pass(value)
        return items(value)

    def _count_pass(self, value: Raw) -> None:
        self._bytes_decoded += len(memoryview(value))
        if self._bytes_decoded > _MOST_PASSES * self._size:
            raise _too_deep()

    def _takes(self, exit_: str, *, adds_at_once: bool = True) -> None:
        if exit_ not in self._opened:
            words = f"This bridge does not allow {MODEL_EXITS[exit_]}."
            raise RefusedError(403, f"{words} Its operator can allow it: --model-exits with `{exit_}`.", retry=False)
        self._is_size_known = False
        self._is_first_known = self._is_first_known and not adds_at_once
        if exit_ in _EXITS_WITH_ROUNDS:
            self._rounds = _MAX_ROUNDS


def _refuse_other_spellings(found: dict[str, Raw]) -> None:
    for name in found:
        if name not in _NAMES and (folded := name.casefold()) in _NAMES:
            raise RefusedError(400, f"The body contains `{name}`. Write it as `{folded}`.")


def _type_of(found: dict[str, Raw]) -> Any:
    """Return a block's `type`: None if it is missing, and a list if it is not a scalar."""
    value = found.get("type")
    if value is None:
        return None
    return [] if is_container(value) else scalar(value)


def _is_null(value: Raw) -> bool:
    return bytes(memoryview(value)[:4]) == b"null"


def _by_prefix(kinds: dict[str, str], kind: Any) -> str | None:
    if not isinstance(kind, str):
        return None
    return next((exit_ for prefix, exit_ in kinds.items() if kind.startswith(prefix)), None)


def _named(kind: Any) -> str:
    return repr(kind[:64]) if isinstance(kind, str) else "that it has"
