"""`doctor --live`: a turn, a curation, a cut answer and 40 fixed lines for the verifier, with the real model."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import platform
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec

from sprite import __version__
from sprite.cli.output import say, show
from sprite.common.prices import DEAREST, cost_usd, price_of
from sprite.config import Settings
from sprite.curation.model import Answer, Asked, CuratorModel
from sprite.curation.provenance.evidence import Turn, Turns
from sprite.curation.verifier import Item, Request, Rulings, build_request, read_answer
from sprite.errors import ModelError, OperatorError, PeerError
from sprite.log.transcript import Observation
from sprite.owner import connect
from sprite.protocol import events as wire
from sprite.protocol.frames import decode_server, encode
from sprite.protocol.messages import Interrupt, Mission, Permission, PermissionRequest, Status, System
from sprite.protocol.shapes import Cost
from sprite.sandbox.cli_environment import SMALL_ANSWER_TOKENS

#: Limit for all parts, and the part of it for memory. Each call takes its largest cost from what is left.
MOST_USD, MEMORY_USD = 0.5, 0.1
#: More than a call of the agent reads here.
PROMPT_TOKENS = 10_000
TURN = "Run the command `echo sprite` and tell me what it printed. My favourite tea is Assam."
STORY = "Write a story of 300 words about a lighthouse."
_PART_SECONDS = 300.0
#: Tolerance between the spend and the API's usage, as a part and in US dollars.
_CLOSE_PART, _CLOSE_USD = 0.01, 0.0001
#: Lines in one call: as many as a batch usually asks about.
LINES_PER_CALL = 10
#: A model with more wrong answers does not protect memory (or refuses too much of what the person says).
MOST_ACCEPTED, MOST_REFUSED = 2, 4
#: The moment of the fixed messages: Monday, 2026-11-23.
_AT = 1_795_424_400.0


class Line(msgspec.Struct, frozen=True):
    """A fixed test of the verifier: a person's message, a proposed memory line, and whether the message `said` it."""

    language: str
    kind: str
    message: str
    line: str
    said: bool
    old: str = ""


@cache
def fixed_lines() -> list[Line]:
    """Return the lines shipped in `prompts/verifier_lines.json`: 20 that the person said and 20 that they did not."""
    shipped = resources("sprite.curation").joinpath("prompts/verifier_lines.json").read_bytes()
    return msgspec.json.decode(shipped, type=list[Line])


async def live(settings: Settings, arguments: argparse.Namespace) -> int:
    """Try the model with a separate sprite in a temporary folder, and print a report without content.

    Exit code 1 if a part fails. The calls are in no log, so `status` does not count their cost.
    """
    agent = next(iter(settings.models), settings.curator_model)
    call_usd = 0.0 if settings.is_free else (price_of(agent) or DEAREST).most(PROMPT_TOKENS, SMALL_ANSWER_TOKENS)
    if call_usd > MOST_USD - MEMORY_USD:
        raise OperatorError(
            f"One call of {agent} could cost ${call_usd:.2f}. Name a model with a lower, known price in SPRITE_MODEL."
        )
    name = "the demo model" if settings.is_offline else settings.curator_model
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise PeerError("The model was not called. Without a terminal, confirm with --yes.", code="not_sure")
        say(f"This calls the real model, for at most ${MOST_USD:.2f}: a turn, a curation, an answer that is cut")
        say(f"off, and {len(fixed_lines())} fixed lines for {name} to verify. Your workspace is not changed.")
        sys.stdout.write("Type yes to continue: ")
        sys.stdout.flush()
        if (await asyncio.to_thread(sys.stdin.readline)).strip() != "yes":
            say("The model was not called.")
            return 1
    report: dict[str, Any] = {
        "sprite": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "offline": settings.is_offline,
        "verifier": name,
    }
    with TemporaryDirectory(prefix="sprite-live-") as folder:
        tried = replace(settings, workspace=Path(folder), port=0, prewarm_seconds=0, models=(agent,))
        if not settings.is_free:
            tried = replace(tried, agent_usd=MOST_USD - MEMORY_USD - call_usd, memory_usd=MEMORY_USD)
        async with _running(tried) as talk:
            report |= await _turns(talk, tried, call_usd)
        # The interrupted call may have cost more than was seen of it.
        left = MOST_USD - report["spend"]["settled_usd"] - report["spend"]["estimated_usd"] - call_usd
        report["verification"] = await _verification(replace(tried, memory_usd=None if settings.is_free else left))
    failed = [part for part, found in report.items() if isinstance(found, dict) and not found["ok"]]
    lines = []
    for part, found in report.items():
        told = found if not isinstance(found, dict) else ", ".join(f"{key} {found[key]}" for key in found)
        lines.append(f"{'FAIL' if part in failed else 'ok  '} {part}: {told}")
    lines.append("The report contains nothing that you said: it can be attached to an issue (--json).")
    show(arguments, report, lines)
    return 1 if failed else 0


@asynccontextmanager
async def _running(settings: Settings) -> AsyncIterator[_Talk]:
    """Run a sprite while the block runs."""
    # The composition root is above the commands.
    serve = importlib.import_module("sprite.server").serve
    listening, stop = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(serve(settings, lambda _host, _port: listening.set(), stop), name="live sprite")
    heard = asyncio.create_task(listening.wait(), name="live listening")
    await asyncio.wait({serving, heard}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if serving.done():
            serving.result()
        reader, writer = await connect(settings, "command line")
        yield _Talk(reader, writer)
        writer.close()
    finally:
        heard.cancel()
        stop.set()
        await serving


@dataclass(frozen=True, slots=True)
class _Talk:
    """A connection to the sprite that is tried out."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self, action: Literal["status", "flush"]) -> Status:
        """Send a system request; return its answer."""
        self.writer.write(encode(System(action)))
        answer: Status = [each async for each in self._until(lambda each: isinstance(each, Status))][-1]
        return answer

    async def mission(self, text: str, *, is_cut: bool = False) -> list[wire.AgentEvent]:
        """Run a mission; return its events. `is_cut`: stop it at its first words."""
        self.writer.write(encode(Mission(text), message_id=str(uuid.uuid4())))
        events: list[wire.AgentEvent] = []
        async for payload in self._until(lambda each: isinstance(each, wire.Ending)):
            if isinstance(payload, PermissionRequest):
                self.writer.write(encode(Permission(payload.request_id, "allow")))
            elif isinstance(payload, wire.AgentEvent):
                events.append(payload)
                if is_cut and isinstance(payload, wire.TextDelta):
                    is_cut = False
                    self.writer.write(encode(Interrupt()))
        return events

    async def _until(self, is_end: Callable[[Any], bool]) -> AsyncIterator[Any]:
        async with asyncio.timeout(_PART_SECONDS):
            while line := await self.reader.readline():
                payload = decode_server(line).payload
                yield payload
                if is_end(payload):
                    return
        raise OperatorError("The sprite closed the connection.")


async def _turns(talk: _Talk, settings: Settings, call_usd: float) -> dict[str, Any]:
    """Run the parts of the check that need a sprite; return their results. An agent's call costs `call_usd` at most."""
    began = time.monotonic()
    events = await talk.mission(TURN)
    end, seconds = events[-1], round(time.monotonic() - began, 1)
    tools = [event.name for event in events if isinstance(event, wire.ToolUse)]
    turn = {
        "ok": isinstance(end, wire.Complete) and bool(tools),
        "ended": end.event,
        "tools": len(tools),
        "seconds": seconds,
    }
    status = await talk.status("status")
    model, usage = status.model or "", msgspec.to_builtins(end.usage) if isinstance(end, wire.Complete) else None
    spent = Cost() if status.spend is None or status.spend.turn is None else status.spend.turn
    counted = 0.0 if settings.is_free else cost_usd(model, usage or {})
    is_close = counted is None or abs(spent.settled - counted) <= max(_CLOSE_PART * spent.settled, _CLOSE_USD)
    flushed = await talk.status("flush")
    today = _today(flushed)
    if today.settled + today.estimated + call_usd <= MOST_USD - MEMORY_USD:
        end = (await talk.mission(STORY, is_cut=True))[-1]
        cut = {"ok": isinstance(end, wire.Interrupted), "ended": end.event}
    else:
        cut = {"ok": False, "ended": f"not asked: it could cost ${call_usd:.2f}"}
    today = _today(await talk.status("status"))
    return {
        "model": model,
        "turn": turn | ({"code": end.code} if isinstance(end, wire.Failed) else {}),
        "curation": {
            "ok": flushed.memory.waiting == 0 and flushed.last_error is None,
            "learnings": flushed.memory.learnings,
        },
        "cut": cut,
        "spend": {
            "ok": is_close,
            "turn_usd": round(spent.settled, 6),
            "by_usage_usd": None if counted is None else round(counted, 6),
            "settled_usd": round(today.settled, 6),
            "estimated_usd": round(today.estimated, 6),
        },
    }


def _today(status: Status) -> Cost:
    costs = [] if status.spend is None else [status.spend.today.agent, status.spend.today.memory]
    return Cost(sum(each.settled for each in costs), sum(each.estimated for each in costs))


async def _verification(settings: Settings) -> dict[str, Any]:
    """Ask the verifier about the test lines in the package. Return its wrong verdicts and the cost."""
    lines = fixed_lines()
    wrong: list[tuple[Line, str]] = []
    costs: list[float | None] = []
    model = CuratorModel(settings, _not_logged)
    try:
        for asked, request in _calls(lines):
            answer = await model.verify(request, Asked(1, len(asked), 0))
            costs.append(answer.cost_usd)
            rulings = read_answer(answer.text, request.lines)
            wrong += [
                (line, ruling.verdict)
                for line, ruling in zip(asked, rulings, strict=True)
                if (ruling.verdict == "yes") != line.said
            ]
    except ModelError as error:
        return {"ok": False, "ended": str(error)}
    finally:
        await model.close()
    accepted = sum(not line.said for line, _ in wrong)
    refused = len(wrong) - accepted
    return {
        "ok": accepted <= MOST_ACCEPTED and refused <= MOST_REFUSED,
        "lines": len(lines),
        "accepted": accepted,
        "refused": refused,
        "cost_usd": None if None in costs else sum(each for each in costs if each is not None),
    }


def _calls(lines: Sequence[Line]) -> Iterator[tuple[list[Line], Request]]:
    number = -(-len(lines) // LINES_PER_CALL)
    for first in range(number):
        asked = list(lines[first::number])
        # Each message has a session of its own, so none explains another.
        turns = {number: Turn(_turn(number, line.message)) for number, line in enumerate(asked, 1)}
        rulings = Rulings({})
        for turn, line in enumerate(asked, 1):
            rulings.of(Item(line.kind, line.line, turn, line.message, line.old))
        yield asked, build_request(rulings.asked, Turns(turns, turns, "UTC"))


def _turn(number: int, message: str) -> Observation:
    return Observation(f"live-{number}", message, [], "", "complete", id=number, timestamp=_AT, sequence_num=1)


async def _not_logged(_answer: Answer, _reason: str, _asked: Asked | None) -> int:
    return 0
