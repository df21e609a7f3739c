"""Random model answers that are cut at a random moment: the received part, and the true output."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from bridge.proxy.usage_meter import Reading, SseMeter
from sprite.common.prices import Usage
from tests import api_wire as wire

MODEL = "claude-opus-5-5"
#: The tokens around a tool call, which no event shows.
_AROUND_CALL = 25


@dataclass
class CutAnswer:
    """The events for the meter, and the API's true charge.

    `has_begun`: the stream had reported the input tokens. `hidden`: the share of output tokens without an event.
    """

    reading: Reading
    truth: Usage
    request_bytes: int
    has_begun: bool
    hidden: float


class _Model:
    """Writes an answer token by token; `events` are (arrival time, bytes), `written` (time, tokens so far)."""

    def __init__(self, rng: Random, prompt: Usage, speed: float, token_bytes: tuple[int, int]) -> None:
        self.events: list[tuple[float, bytes]] = []
        self.written: list[tuple[float, int, int]] = [(0.0, 0, 0)]
        self._rng = rng
        self._speed = speed
        self._token_bytes = token_bytes
        self._now = rng.uniform(0.2, 4.0)
        said = {
            "input_tokens": prompt.input,
            "output_tokens": 1,
            "cache_read_input_tokens": prompt.cache_read,
            "cache_creation_input_tokens": prompt.cache_write,
        }
        self._send(wire.event("message_start", message={"model": MODEL, "usage": said}))

    def block(self, index: int, kind: str, tokens: int) -> None:
        """Write a block: `text`, `tool_use`, `summary` (thinking, of which a tenth is shown) or `hidden`."""
        start: dict[str, Any] = {"type": kind if kind in {"text", "tool_use"} else "thinking"}
        if kind == "tool_use":
            start |= {"id": "toolu_1", "name": "Bash", "input": {}}
        self._send(wire.event("content_block_start", index=index, content_block=start))
        if kind == "tool_use":
            self._write(_AROUND_CALL, is_hidden=True)
        while tokens > 0:
            together = min(tokens, self._rng.randint(1, 30))
            text = "x" * sum(self._rng.randint(*self._token_bytes) for _ in range(together))
            self._write(together, is_hidden=kind in {"summary", "hidden"})
            tokens -= together
            delta = {
                "text": {"type": "text_delta", "text": text},
                "tool_use": {"type": "input_json_delta", "partial_json": text},
                "summary": {"type": "thinking_delta", "thinking": text[: len(text) // 10]},
            }.get(kind)
            if delta is not None:
                self._send(wire.event("content_block_delta", index=index, delta=delta))
        self._send(wire.event("content_block_stop", index=index))

    def end(self) -> float:
        """Report the usage; return the time."""
        usage = {"output_tokens": self.written[-1][1]}
        self._send(wire.event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage))
        return self.events[-1][0]

    def _write(self, tokens: int, *, is_hidden: bool) -> None:
        self._now += tokens / (self._speed * self._rng.uniform(0.7, 1.3))
        _, written, hidden = self.written[-1]
        self.written.append((self._now, written + tokens, hidden + tokens * is_hidden))

    def _send(self, event: bytes) -> None:
        arrives = self._now + self._rng.uniform(0.01, 0.3)
        self.events.append((max(arrives, self.events[-1][0] if self.events else 0.0), event))


def cut_answer(
    seed: int, *, speed: tuple[float, float] = (25.0, 110.0), token_bytes: tuple[int, int] = (1, 7)
) -> CutAnswer:
    """Return a random answer cut at a random moment; `speed` is in tokens per second, `token_bytes` in bytes."""
    rng = Random(seed)  # noqa: S311 - the same in each run
    read = rng.randrange(5_000, 120_000)
    prompt = Usage(input=rng.randrange(1, 3_000), cache_read=read, cache_write=rng.randrange(0, 8_000))
    model = _Model(rng, prompt, rng.uniform(*speed), token_bytes)
    for index in range(rng.randint(1, 5)):
        kind = rng.choice(["text", "tool_use", "summary", "hidden"])
        model.block(index, kind, round(10 ** rng.uniform(1, 3.4)))
    cut_at = rng.uniform(0.0, model.end())
    now = [0.0]
    meter = SseMeter(0.0, lambda: now[0])
    for now[0], event in model.events:
        if now[0] > cut_at:
            break
        meter.feed(event)
    now[0] = cut_at
    written, hidden = max((tokens, hidden) for at, tokens, hidden in model.written if at <= cut_at)
    truth = Usage(prompt.input, written, prompt.cache_read, prompt.cache_write)
    has_begun = model.events[0][0] <= cut_at
    return CutAnswer(meter.read(), truth, 4 * prompt.prompt_tokens, has_begun, hidden / max(written, 1))
