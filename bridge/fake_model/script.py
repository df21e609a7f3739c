"""Scripted answers for tests: steps that are used in order, before the built-in rules.

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

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from bridge.fake_model.request import Request
from bridge.fake_model.wire import Place

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

    def applies(self, request: Request) -> bool:
        """Return whether this step answers `request`."""
        if not _is_of_memory(request) and self.for_ not in {"any", request.kind}:
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

    def take(self, request: Request, body: Callable[[], dict[str, Any]]) -> Step | None:
        step = self.step
        if self.rule is not None:
            if not _is_of_memory(request) and self.audience not in {"any", request.kind}:
                return None
            made = self.rule(body())
            step = None if made is None else _step(made)
        if step is None or not step.applies(request):
            return None
        self.uses_left -= 1
        return step


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

    def take(self, request: Request, body: Callable[[], dict[str, Any]]) -> Step | None:
        """Use up and return the first step that applies; `body` returns the raw request for functions."""
        entries = {"curator": self._curator, "verifier": self._verifier}.get(request.kind, self._agent)
        for entry in entries:
            step = entry.take(request, body)
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
