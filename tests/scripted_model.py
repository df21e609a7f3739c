"""The offline model with scripted answers and a record of its requests.

Steps are used in order, before the built-in rules. Two rules are added: "use a subagent to ..." starts one, and a
notification is reported with its result.

A step is a JSON object. Its parts combine freely; the built-in rules supply missing parts, so `{"delay": 1}` is the
usual answer, a second late.

    {"text": "Hello."}                                        one text block
    {"tool": "Bash", "input": {"command": "ls"}}              one tool call
    {"blocks": [{"type": "text", ...}, {"type": "tool_use", "name": ..., "input": {...}}]}
    {"raw_text": "FACT [t1] ..."}                             the same as text; reads better for the curator
    {"error": 429, "type": "rate_limit_error", "message": "...", "retry_after": 1}
    {"usage": {"input_tokens": 990000}}                       merged into the usage
    {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "cyber"}}
    {"delay": 0.5, "chunk_delay": 0.05}                       seconds before the answer, and between deltas
    {"hang": true}            holds the connection until the client leaves; with a text, after half of it
    {"cut": true}             drops the connection in mid-stream
    {"at": "in_block"}        ends the stream there: "before_start", "after_start", "in_block", "between_blocks" or
                              "after_delta"; with "hang" or "cut" it hangs or is dropped there
    {"stream_error": "overloaded_error"}  the stream ends with that error, at its end or where "at" says
    {"refuse": "Lyon"}        for the verifier: "no" to each line with these words, "yes" to the others
    {"until": "/tmp/go-on"}   waits until there is such a file; with a text, after half of it

After steps for the curator, the verifier agrees to every line, unless it has steps of its own.

Conditions: `match` (a substring of the last real user text; for the curator and the verifier, of the whole request),
`for` ("main", the default, "notification", "subagent", "compaction", "side" or "any"), `on` ("prompt": a person has
just written; "result": a tool result has arrived; "any", the default). A step is used `times` times (default 1; -1 is
for ever). The CLI and the `anthropic` client retry most errors, and each try is a separate request: an error that shall
end a turn needs `"times": -1` (or enough uses).
"""

from __future__ import annotations

import asyncio
import html
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from aiohttp import web

from bridge.fake_model import curator as verifier
from bridge.fake_model import model as fake_model
from bridge.fake_model.request import Body, Request, TimelineEntry, understand
from tests import api_wire as wire

#: Places where a stream can break off.
Place = Literal["before_start", "after_start", "in_block", "between_blocks", "after_delta"]
Kind = Literal["main", "notification", "subagent", "compaction", "side", "curator", "verifier"]
Audience = Literal["main", "notification", "subagent", "compaction", "side", "any"]


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """One scripted answer; the module docstring explains each field."""

    text: str | None = None
    raw_text: str | None = None
    tool: str | None = None
    input: dict[str, Any] = {}
    blocks: list[dict[str, Any]] | None = None
    error: int | None = None
    type: str = "api_error"
    message: str = "scripted error"
    retry_after: float | None = None
    usage: dict[str, int] = {}
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    delay: float = 0.0
    chunk_delay: float = 0.0
    hang: bool = False
    cut: bool = False
    at: Place | None = None
    stream_error: str = ""
    until: str = ""
    refuse: str = ""
    match: str = ""
    for_: Audience = "main"
    on: Literal["any", "prompt", "result"] = "any"
    times: int = 1

    def content(self) -> list[dict[str, Any]] | None:
        """Return the step's blocks, or None if the built-in rules supply them."""
        if self.blocks is not None:
            return self.blocks
        said = self.text if self.text is not None else self.raw_text
        blocks: list[dict[str, Any]] = [] if said is None else [{"type": "text", "text": said}]
        if self.tool is not None:
            blocks.append({"type": "tool_use", "name": self.tool, "input": self.input})
        return blocks or None

    def applies(self, request: Request, kind: Kind) -> bool:
        """Return whether this step answers `request`."""
        if not _is_of_memory(request) and self.for_ not in {"any", kind}:
            return False
        if self.on != "any" and (self.on == "prompt") is not request.has_new_text:
            return False
        return self.match in ("\n".join(request.user_texts) if _is_of_memory(request) else request.user_text)


Rule = Callable[[dict[str, Any]], "dict[str, Any] | Step | None"]


class _ScriptedStep:
    """A step with its remaining uses, or a rule, which is never used up."""

    def __init__(self, source: dict[str, Any] | Step | Rule, audience: Audience) -> None:
        self.rule = source if callable(source) else None
        self.audience = audience
        self.step = None if callable(source) else _step(source)
        self.uses_left = self.step.times if self.step else -1

    def take(self, request: Request, kind: Kind, body: Callable[[], dict[str, Any]]) -> Step | None:
        step = self.step
        if self.rule is not None:
            if not _is_of_memory(request) and self.audience not in {"any", kind}:
                return None
            made = self.rule(body())
            step = None if made is None else _step(made)
        if step is None or not step.applies(request, kind):
            return None
        self.uses_left -= 1
        return step


#: A refusal in the words of the bridge's proxy.
USED_UP = (
    "The day's budget of $5.00 is used up ($5.01 spent). It resets on 2026-11-24 at 00:00 UTC; "
    "you can raise it for today."
)


class Script:
    """Three lists of steps: for requests of the agent, the curator and the verifier.

    `has_curator` says whether the curator ever had steps.
    """

    def __init__(
        self,
        agent: list[dict[str, Any] | Step] | None = None,
        curator: list[dict[str, Any] | Step] | None = None,
        verifier: list[dict[str, Any] | Step] | None = None,
    ) -> None:
        self._agent: list[_ScriptedStep] = []
        self._curator: list[_ScriptedStep] = []
        self._verifier: list[_ScriptedStep] = []
        self.has_curator = False
        self.agent(*(agent or ()))
        self.curator(*(curator or ()))
        self.verifier(*(verifier or ()))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read `{"agent": [step, ...], "curator": [...], "verifier": [...]}`. Raise `MsgspecError` or `OSError`."""
        lists = msgspec.json.decode(path.read_bytes(), type=dict[Literal["agent", "curator", "verifier"], list[Step]])
        return cls([*lists.get("agent", ())], [*lists.get("curator", ())], [*lists.get("verifier", ())])

    def agent(self, *steps: dict[str, Any] | Step | Rule, audience: Audience = "main") -> Self:
        """Append steps, or functions `body -> step | None`, which see all requests of `audience`."""
        self._agent += [_ScriptedStep(step, audience) for step in steps]
        return self

    def curator(self, *steps: dict[str, Any] | Step | Rule) -> Self:
        """Append steps for the curator's requests."""
        self._curator += [_ScriptedStep(step, "any") for step in steps]
        self.has_curator |= bool(steps)
        return self

    def verifier(self, *steps: dict[str, Any] | Step | Rule) -> Self:
        """Append steps for the verifier's requests."""
        self._verifier += [_ScriptedStep(step, "any") for step in steps]
        return self

    @property
    def remaining(self) -> int:
        """Return the number of steps that are not used up, without functions and endless steps."""
        return sum(entry.uses_left > 0 for entry in self._agent + self._curator + self._verifier)

    def take(self, request: Request, kind: Kind, body: Callable[[], dict[str, Any]]) -> Step | None:
        """Use up and return the first step that applies; `body` returns the raw request for functions."""
        entries = {"curator": self._curator, "verifier": self._verifier}.get(request.kind, self._agent)
        for entry in entries:
            step = entry.take(request, kind, body)
            if step is not None:
                if entry.uses_left == 0:
                    entries.remove(entry)
                return step
        return None


def _step(source: dict[str, Any] | Step) -> Step:
    """Validate a step; raises `msgspec.ValidationError` with the name of a misspelt field."""
    return source if isinstance(source, Step) else msgspec.convert(source, Step)


def _is_of_memory(request: Request) -> bool:
    return request.kind in {"curator", "verifier"}


def _kind(request: Request, headers: dict[str, str]) -> Kind:
    """Return the sender of a request, as observed on CLI 2.1.329.

    A subagent sends the header `x-claude-code-agent-id`, and `cc_is_subagent=true` in the first system block. Side
    requests (titles, the CLI's own web search) offer no tool that the CLI itself would run.
    """
    if request.kind != "agent":
        return request.kind
    if "x-claude-code-agent-id" in headers or "cc_is_subagent=true" in request.system[:300]:
        return "subagent"
    if not request.tools:
        return "side"
    prompts = [entry.kind for entry in request.timeline if entry.kind in {"user", "notification"}]
    return "notification" if prompts[-1:] == ["notification"] else "main"


def agree(request: str, refused: str = "") -> str:
    """Answer yes to each line, but no to the lines that contain `refused`, if that is not empty."""
    return verifier.answer(
        (line, "scripted" if refused and refused in line.proposed else None)
        for line in verifier.proposed_lines(request)
    )


def error_event(kind: str, text: str) -> bytes:
    """Return the event with which a stream reports an error."""
    return wire.event("error", error={"type": kind, "message": text})


def beginning(events: list[bytes], place: Place) -> list[bytes]:
    """Return the events of a whole stream before a place; a place inside a block means the last block."""
    names = [each.partition(b"\n")[0].removeprefix(b"event: ").decode() for each in events]
    if place == "before_start":
        return []
    if place == "after_start":
        return events[: names.index("message_start") + 1]
    if place == "between_blocks":
        return events[: names.index("content_block_stop") + 1]
    if place == "after_delta":
        return events[: names.index("message_delta") + 1]
    begins = len(names) - 1 - names[::-1].index("content_block_start")
    deltas = names[begins:].count("content_block_delta")
    return events[: begins + 1 + (deltas + 1) // 2]


_KEPT_REQUESTS = 100
_KEPT_HEADERS = (
    *("user-agent", "anthropic-version", "anthropic-beta", "x-claude-code-agent-id", "x-app"),
    *("authorization", "x-api-key"),
)
_LOOK_SECONDS = 0.02
_USUAL = Step()


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A recorded request; `headers` is a subset, names in lower case. It holds the credentials that were sent."""

    path: str
    headers: dict[str, str]
    kind: Kind
    user_text: str
    raw: bytes = field(repr=False)

    @property
    def body(self) -> dict[str, Any]:
        """Return the decoded JSON body (decoded on demand, because bodies are large and rarely read)."""
        decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        return decoded


class OfflineModel(fake_model.OfflineModel):
    """`async with OfflineModel() as model:` serves at `model.url` until the block ends.

    `requests` are the newest messages requests, oldest first; `script` may be given or filled later.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, script: Script | None = None) -> None:
        super().__init__(host, port)
        self.script = script or Script()
        self.requests: list[RecordedRequest] = []
        self._arrived = asyncio.Condition()
        self._closing = asyncio.Event()

    async def __aexit__(self, *error: object) -> None:
        self._closing.set()
        await super().__aexit__(*error)

    async def seen(self, wanted: Callable[[RecordedRequest], bool]) -> RecordedRequest:
        """Return the newest recorded request that is `wanted`; wait for it when there is none yet."""
        async with self._arrived:
            while True:
                for request in reversed(self.requests):
                    if wanted(request):
                        return request
                await self._arrived.wait()

    async def _messages(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        body = msgspec.json.decode(raw, type=Body)
        headers = {name.lower(): value for name, value in http.headers.items()}
        request = understand(body)
        kind = _kind(request, headers)
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        await self._record(RecordedRequest(http.path_qs, kept, kind, request.user_text, raw))
        step = self.script.take(request, kind, lambda: msgspec.json.decode(raw)) or _USUAL
        if step.delay:
            await asyncio.sleep(step.delay)
        if step.error is not None:
            after = {} if step.retry_after is None else {"retry-after": f"{step.retry_after:g}"}
            named = None if step.type == _USUAL.type else step.type
            return _json_response(step.error, wire.error(step.error, step.message, named), after)
        content = step.content()
        if step.until and (content is None or not body.stream):
            await self._until(step)
        if step.hang and content is None:
            return await self._hang(http)
        blocks = self._by_rule(request, kind, step) if content is None else content
        message = changed(wire.message(body.model, blocks, len(raw)), step)
        if body.stream:
            return await self._stream_step(http, message, step)
        if step.hang or step.cut:
            return await self._hang(http) if step.hang else _drop(http, web.StreamResponse())
        return _json_response(200, msgspec.json.encode(message))

    async def _stream_step(self, http: web.Request, message: dict[str, Any], step: Step) -> web.StreamResponse:
        response = web.StreamResponse(headers={"cache-control": "no-cache", "request-id": wire.new_id("req")})
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        await response.prepare(http)
        frames = list(wire.events(message))
        if step.at is not None:
            frames = beginning(frames, step.at)
        elif step.hang or step.cut:
            # The last three events end the block, the delta and the message; half of the others ends in mid-block.
            frames = frames[: max(3, (len(frames) - 3) // 2 + 1)]
        if step.stream_error:
            frames.append(error_event(step.stream_error, step.message))
        half = len(frames) // 2 if step.until else len(frames)
        await _write(response, frames[:half], step)
        if step.until:
            await self._until(step)
            await _write(response, frames[half:], step)
        if step.hang:
            return await self._hang(http, response)
        return _drop(http, response) if step.cut else response

    def _by_rule(self, request: Request, kind: Kind, step: Step) -> list[dict[str, Any]]:
        if kind == "verifier" and (step.refuse or self.script.has_curator):
            return [{"type": "text", "text": agree("\n".join(request.user_texts), step.refuse)}]
        if kind == "main" and request.has_new_text and (found := _DELEGATE.search(request.user_text)):
            return [{"type": "tool_use", "name": "Agent", "input": {**_SUBAGENT, "prompt": found[1]}}]
        if kind == "notification" and not request.has_new_text and not request.outcomes:
            return [{"type": "text", "text": _report(request.tail)}]
        return fake_model.answer(request)

    async def _until(self, step: Step) -> None:
        while not self._closing.is_set() and not Path(step.until).exists():  # noqa: ASYNC110 - another process may make it
            await asyncio.sleep(_LOOK_SECONDS)

    async def _hang(self, http: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
        await self._closing.wait()
        return _drop(http, response or web.StreamResponse())

    async def _record(self, recorded: RecordedRequest) -> None:
        async with self._arrived:
            self.requests.append(recorded)
            del self.requests[:-_KEPT_REQUESTS]
            self._arrived.notify_all()


_DELEGATE = re.compile(r"\buse a subagent to (.+)", re.DOTALL)
_SUBAGENT = {"description": "work on a part", "subagent_type": "general-purpose"}
_TASK_PART = re.compile(r"<(summary|result)>(.*?)</\1>", re.DOTALL)


def _report(entries: Iterable[TimelineEntry]) -> str:
    """Return what the last notification says of a finished background task."""
    notes = [entry.text for entry in entries if entry.kind == "notification"]
    parts = dict(_TASK_PART.findall(notes[-1])) if notes else {}
    return html.unescape(" ".join(parts.get(name, "").strip() for name in ("summary", "result"))) or "Go on."


def _json_response(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    named = {"request-id": wire.new_id("req"), **(headers or {})}
    return web.Response(status=status, body=body, content_type="application/json", headers=named)


async def _write(response: web.StreamResponse, frames: list[bytes], step: Step) -> None:
    if step.chunk_delay:
        for frame in frames:
            await response.write(frame)
            await asyncio.sleep(step.chunk_delay)
    else:
        # One write: the client still reads separate events, and a turn costs one system call.
        await response.write(b"".join(frames))


def _drop(http: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection under the response; bytes written before are still sent."""
    if http.transport is not None:
        http.transport.close()
    return response


def changed(message: dict[str, Any], step: Step) -> dict[str, Any]:
    """Return a message with what the step says of it."""
    stop = {"stop_reason": step.stop_reason} if step.stop_reason else {}
    if step.stop_reason == "stop_sequence":
        stop["stop_sequence"] = "STOP"
    details = {} if step.stop_details is None else {"stop_details": step.stop_details}
    return {**message, **stop, **details, "usage": {**message["usage"], **step.usage}}


async def _serve(script: Script) -> None:
    async with OfflineModel(script=script) as model:
        sys.stdout.write(f"offline model listening on {model.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Script.load(Path(sys.argv[1])) if sys.argv[1:] else Script()))
