"""Meter the usage of a call while its answer passes: server-sent events, or one JSON object. Skips unreadable parts.

A stream reports the prompt at its start (`message_start`) and all output at its end (`message_delta` with a stop
reason). If it ends in between, its output is bounded from above, never below the amount that the API will charge: a
token of shown text or arguments has at least one byte, and a model writes at most TOP_TOKENS_PER_SECOND, which bounds
hidden thinking. Before `message_start` only the last second counts: the beginning may be on its way. A search by the
API has the prompt read again, with the results.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from sprite.common.prices import ApiUsage, Usage

#: Faster than any model in the price list: the fastest write about 200 a second.
TOP_TOKENS_PER_SECOND = 300.0
#: A line with usage has a few hundred bytes. A longer one is a tool's result, and is not buffered.
_MAX_LINE_BYTES = 1 << 16
#: Largest message that is buffered for decoding, as large as the curator accepts; 16 MiB would take 50 ms.
_MAX_MESSAGE_BYTES = 8 << 20
#: Longest delay between the start of a stream and its arrival here.
_ON_ITS_WAY_SECONDS = 1.0
#: The next prompt may have fewer bytes a token than the last, for example in numbers and other scripts.
_MARGIN = 1.25
_MAX_SHARES = 10_000
#: Small prompts vary more and cost little.
_SMALL_TOKENS = 16_000
#: Blocks whose whole charged content is shown.
_SHOWN_BLOCKS = frozenset({"text", "tool_use", "server_tool_use", "mcp_tool_use"})


@dataclass(slots=True)
class Reading:
    """Tokens that the model's answer used, as far as known.

    `is_final`: all numbers are the API's own; otherwise `usage.output` is an upper bound. `has_prompt`: the API
    reported the prompt; otherwise the usage does not include it. `is_refused`: an error came instead of an answer,
    which costs nothing. `prompt_tokens`: tokens read before the API's own tools found anything; 0 if not known.
    """

    usage: Usage
    model: str | None = None
    is_final: bool = False
    has_prompt: bool = False
    is_refused: bool = False
    prompt_tokens: int = field(default=0, compare=False)


def written_within(seconds: float) -> int:
    """Return the maximum number of tokens that a model writes in that time."""
    return math.ceil(max(seconds, 0.0) * TOP_TOKENS_PER_SECOND)


def unanswered(seconds: float, *, is_streamed: bool) -> Reading:
    """Return the possible token usage of a call whose answer has not begun after this many seconds."""
    return Reading(Usage(output=written_within(min(seconds, _ON_ITS_WAY_SECONDS) if is_streamed else seconds)))


class PromptSizes:
    """Learn the ratio of real tokens to the bridge's upper estimate: the next prompt of a conversation is similar."""

    def __init__(self) -> None:
        self._shares: dict[tuple[str, str], float] = {}  # by sprite and model

    def note(self, sprite: str, model: str, thought: int, found: int) -> None:
        """Store the ratio of the counted tokens (`found`) to the estimate (`thought`), unless the prompt is small."""
        if thought < _SMALL_TOKENS or not found:
            return
        if len(self._shares) >= _MAX_SHARES:
            self._shares.clear()
        self._shares[sprite, model] = found / thought

    def most(self, sprite: str, model: str, thought: int) -> int:
        """Return the highest number of tokens to expect for a prompt; `thought` is the bridge's upper estimate."""
        share = 1.0 if thought < _SMALL_TOKENS else self._shares.get((sprite, model), 1.0)
        return math.ceil(thought * min(share * _MARGIN, 1.0))


class _Message(msgspec.Struct):
    type: str = ""
    model: str | None = None
    usage: ApiUsage | None = None


class _Block(msgspec.Struct):
    type: str = ""
    name: str = ""


class _Delta(msgspec.Struct):
    stop_reason: str | None = None
    text: str = ""
    partial_json: str = ""
    thinking: str = ""


class _Event(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    usage: ApiUsage | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None


_EVENTS = msgspec.json.Decoder(_Event)
_MESSAGES = msgspec.json.Decoder(_Message)


class SseMeter:
    """Count the tokens of an answer that comes as server-sent events, requested at `since` by the clock."""

    def __init__(self, since: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        #: Whether the bytes so far end where another event could follow.
        self.at_boundary = True
        self._clock = clock
        self._usage: Usage | None = None
        self._model: str | None = None
        self._is_counted = False  # to its end
        self._has_prompt = False
        self._prompt_tokens = 0
        self._is_refused = False
        self._has_begun = False  # or, without a beginning, gone on
        self._since = clock() if since is None else since
        self._counted = 0  # output tokens, at the end of an answer
        self._shown_at: float | None = None  # time of the last event of an open block that is shown
        self._shown_seconds = 0.0
        self._shown_bytes = 0
        self._thought_bytes = 0
        self._searches = 0
        self._rounds = 0
        self._found_bytes = 0
        self._parts: list[bytes] = []  # of the incomplete line
        self._part_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Read the next chunk of the answer."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            if self._part_bytes:
                self._line(self._joined(ended[0]))
                del ended[0]
            for line in ended:
                self._line(line)
        if rest:
            self._part_bytes += len(rest)
            self.at_boundary = False
            if self._part_bytes <= _MAX_LINE_BYTES:
                self._parts.append(rest)
            else:
                self._parts.clear()

    def read(self) -> Reading:
        """Return the tokens that the answer has used so far."""
        known = self._usage or Usage()
        if self._is_counted and not self._shown_bytes:
            return Reading(known, self._model, is_final=True, has_prompt=True, prompt_tokens=self._prompt_tokens)
        usage = msgspec.structs.replace(
            known,
            input=known.input + self._rounds * (known.prompt_tokens + self._found_bytes),
            output=max(known.output, self._counted + self._uncounted()),
            web_searches=max(known.web_searches, self._searches),
        )
        return Reading(
            usage,
            self._model,
            has_prompt=self._has_prompt,
            is_refused=self._is_refused,
            prompt_tokens=self._prompt_tokens,
        )

    def _uncounted(self) -> int:
        """Return the maximum number of output tokens beyond those that the API has reported."""
        hidden = self._clock() - self._since - self._shown_seconds
        if not (self._has_begun or self._shown_bytes or self._part_bytes):
            hidden = min(hidden, _ON_ITS_WAY_SECONDS)
        return self._shown_bytes + self._part_bytes + max(self._thought_bytes, written_within(hidden))

    def _joined(self, end: bytes) -> bytes:
        """Return the current line, or a placeholder if it was too long; `end` are its last bytes."""
        if self._part_bytes > _MAX_LINE_BYTES:
            # Only results of the API's own tools are that long.
            self._found(self._part_bytes + len(end))
            line = b"-"
        else:
            line = b"".join((*self._parts, end))
        self._parts.clear()
        self._part_bytes = 0
        return line

    def _line(self, line: bytes) -> None:
        # An empty line ends an event.
        self.at_boundary = not line or line == b"\r"
        if not line.startswith(b"data:"):
            return
        if len(line) > _MAX_LINE_BYTES:
            self._found(len(line))
            return
        try:
            event = _EVENTS.decode(line[len(b"data:") :])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._show(len(line))
            return
        self._event(event, len(line))

    def _event(self, event: _Event, size: int) -> None:
        self._has_begun = self._has_begun or event.type != "ping"
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._thought_bytes += len(event.delta.thinking.encode())
                self._show(len(event.delta.text.encode()) + len(event.delta.partial_json.encode()))
            case "content_block_start" if event.content_block is not None:
                self._begin_block(event.content_block, size)
            case "content_block_stop":
                self._show(0)
                self._shown_at = None
            case "message_start" if event.message is not None and event.message.usage is not None:
                self._model = event.message.model
                self._usage = event.message.usage.upon(self._usage or Usage())
                self._has_prompt = event.message.usage.input_tokens is not None
                self._prompt_tokens = self._usage.prompt_tokens
                # Before this event the prompt was read, and no output was written.
                self._since = max(self._since, self._clock() - _ON_ITS_WAY_SECONDS)
            case "message_delta" if event.usage is not None:
                self._count(event.usage, is_over=event.delta is not None and event.delta.stop_reason is not None)
            case "error":
                self._is_refused = self._usage is None and not self._shown_bytes

    def _begin_block(self, block: _Block, size: int) -> None:
        if block.type.endswith("_tool_result"):
            self._found(size)
        elif block.type in _SHOWN_BLOCKS:
            # The block's name, and the tokens around it.
            self._shown_bytes += size
            self._shown_at = self._clock()
            self._searches += block.type == "server_tool_use" and block.name == "web_search"

    def _show(self, size: int) -> None:
        """Count the bytes of visible output in a block; its time then does not count as hidden output."""
        self._shown_bytes += size
        if self._shown_at is not None:
            now = self._clock()
            self._shown_seconds += now - self._shown_at
            self._shown_at = now

    def _found(self, size: int) -> None:
        """Count a result of the API's own tools; the model reads the prompt again after it."""
        self._rounds += 1
        self._found_bytes += size

    def _count(self, said: ApiUsage, *, is_over: bool) -> None:
        self._usage = said.upon(self._usage or Usage())
        self._has_prompt = self._has_prompt or said.input_tokens is not None
        if is_over and said.output_tokens is not None:
            self._is_counted = self._has_prompt
            self._counted = said.output_tokens
            self._since, self._shown_at, self._shown_seconds = self._clock(), None, 0.0
            self._shown_bytes = self._thought_bytes = self._searches = self._rounds = self._found_bytes = 0


class JsonMeter:
    """Count the tokens of an answer in one JSON object, requested at `since`. Objects over 8 MiB are not decoded."""

    at_boundary = False

    def __init__(self, since: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock() if since is None else since
        self._body = bytearray()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> None:
        """Read the next chunk of the answer."""
        if len(self._body) + len(chunk) > _MAX_MESSAGE_BYTES:
            self._is_too_long = True
            self._body.clear()
        if not self._is_too_long:
            self._body += chunk

    def read(self) -> Reading:
        """Return the tokens that the answer has used so far."""
        written = max(len(self._body), written_within(self._clock() - self._since))
        try:
            message = _MESSAGES.decode(self._body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Reading(Usage(output=written))
        said = message.usage or ApiUsage()
        usage = said.upon(Usage(output=written))
        has_prompt = said.input_tokens is not None
        is_whole = has_prompt and said.output_tokens is not None
        is_error = message.type == "error"
        return Reading(usage, message.model, is_final=is_whole, has_prompt=has_prompt, is_refused=is_error)


Meter = SseMeter | JsonMeter


def meter_of(content_type: str, since: float) -> Meter:
    """Return the token counter for an answer of this content type (without parameters), requested at `since`."""
    return SseMeter(since) if content_type == "text/event-stream" else JsonMeter(since)
