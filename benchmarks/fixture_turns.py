"""Turns of fixtures, written into the real log by the real recorder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sprite.capture.recorder import TurnRecorder
from tests.memory_stores import Stores

FIXTURES = Path(__file__).parent / "fixtures"
_PROSE = "The delivery went out in the morning and the weather was fair, so nobody had to wait long at the counter. "
_FILLER = "{filler:"
_LIST = "{list:"


def filled(value: Any) -> Any:
    """Return a value with `{filler:N}` written out as N characters of prose and `{list:N}` as N entries."""
    if isinstance(value, str):
        start = value.find(_FILLER)
        if start < 0:
            return value
        end = value.index("}", start)
        chars = int(value[start + len(_FILLER) : end])
        prose = (_PROSE * (chars // len(_PROSE) + 1))[:chars]
        return filled(value[:start] + prose + value[end + 1 :])
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [entry for item in value for entry in _entries(item)]
    return value


def _entries(item: Any) -> Iterator[Any]:
    if isinstance(item, str) and item.startswith(_LIST):
        yield from ({"entry": number, "state": "in order"} for number in range(int(item[len(_LIST) : -1])))
    else:
        yield filled(item)


async def happened(stores: Stores, turns: list[dict[str, Any]]) -> list[int]:
    """Record a fixture's turns. Return their numbers."""
    complaints: list[str] = []
    recorder = TurnRecorder(stores.transcript, complaints.append)
    session = ""
    for number, turn in enumerate(turns):
        wanted = f"{turn.get('session', 1):08d}-0000-4000-8000-000000000000"
        if wanted != session:
            session = wanted
            await stores.transcript.start_session(session)
            recorder.session_id = session
        for step in range(turn.get("gap", 0)):
            await _turn(recorder, f"{number}.{step}", {"user": f"And number {step}?", "reply": f"That is {step}."})
        await _turn(recorder, str(number), turn)
    assert not complaints, complaints
    said = {(turn.mission_id or ""): turn.id for turn in await stores.observations()}
    return [said[str(number)] for number in range(len(turns))]


async def _turn(recorder: TurnRecorder, mission: str, turn: dict[str, Any]) -> None:
    user, pasted = _marked(filled(turn["user"]))
    recorder.open_mission(mission, user, pasted=pasted)
    await recorder.prompt_submitted(mission, user)
    for number, call in enumerate(turn.get("calls", ())):
        await recorder.tool_ended(
            mission,
            f"{mission}-{number}",
            call["name"],
            filled(call.get("input", {})),
            filled(call.get("result", "")),
            is_error=bool(call.get("is_error")),
            agent_id=None,
        )
    await recorder.stopped(mission, filled(turn["reply"]))
    await recorder.close_mission("complete")


def _marked(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a message without the marks around its pasted parts, and their spans."""
    spans: list[tuple[int, int]] = []
    while "⟦" in text:
        start = text.index("⟦")
        end = text.index("⟧", start)
        text = text[:start] + text[start + 1 : end] + text[end + 1 :]
        spans.append((start, end - 1))
    return text, tuple(spans)
