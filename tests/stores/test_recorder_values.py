"""Recording of large, deep and invalid values."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprite.capture.recorder import TurnRecorder
from sprite.privacy.cutting import MAX_STRING, cut, cut_value, result_text
from tests.looks import rows
from tests.recording import Recording, recording


def test_long_string_is_cut_and_reports_missing_length() -> None:
    text = "x" * 1_234_567
    kept = cut(text)
    assert len(kept) <= MAX_STRING == 2000
    beginning, said = kept.split(" [… ")
    assert int(said.removesuffix(" characters cut]").replace(",", "")) == len(text) - len(beginning)
    assert cut("x" * 2000) == "x" * 2000
    assert len(cut("x" * 2001)) <= 2000


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
JSON_VALUES = st.recursive(
    SCALARS | st.just("x" * 5000) | st.lists(SCALARS, min_size=1, max_size=1).map(lambda items: items * 201),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=4,
)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *(s for item in value.values() for s in strings(item))]
    return [s for item in value for s in strings(item)] if isinstance(value, list) else []


@settings(max_examples=settings().max_examples // 5)
@given(st.lists(st.tuples(JSON_VALUES, JSON_VALUES), min_size=5, max_size=5))
async def test_arbitrary_tool_values_are_valid_json(calls_made: list[tuple[Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with recording(Path(folder)) as rec:
            rec.recorder.open_mission("m-1", "Go")
            await rec.recorder.prompt_submitted("p", "Go")
            for number, (tool_input, result) in enumerate(calls_made):
                ended = f"ended{number}"
                await rec.recorder.tool_ended("p", ended, "T", tool_input, result, is_error=False, agent_id=None)
                await rec.recorder.tool_started(f"started{number}", "T", tool_input)
            await rec.recorder.close_mission("complete")
            assert len((await rec.turn()).tool_calls) == 2 * len(calls_made)
        (row,) = rows(Path(folder) / "transcript.db", "SELECT tool_calls_json FROM observations")

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is no JSON")

        calls = json.loads(row["tool_calls_json"], parse_constant=refuse)
        assert all(len(text) <= MAX_STRING for text in strings(calls))
        json.dumps(calls, ensure_ascii=False).encode()


def test_oversized_lists_objects_and_nesting_are_cut() -> None:
    deep: Any = "bottom"
    for _ in range(900):
        deep = [{"down": deep}]
    assert "nested too deeply" in json.dumps(cut_value(deep))
    assert "nested too deeply" in json.dumps(cut_value({"a": deep}))
    long = cut_value(list(range(1000)))
    assert (len(long), long[-1]) == (201, "[… 800 entries cut]")
    wide = cut_value({str(i): i for i in range(1000)})
    assert (len(wide), wide["…"]) == (201, "800 entries cut")


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 2**64, -(2**70), 10**40], ids=str)
def test_number_outside_json_becomes_text(number: float) -> None:
    kept = cut_value({"n": number})["n"]
    assert isinstance(kept, str)
    assert kept[:10] == str(number)[:10]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ({"stdout": "out", "stderr": "err", "interrupted": False}, "out\nerr"),
        ({"stdout": "out", "stderr": ""}, "out"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "image", "source": 1}], '{"type": "image", "source": 1}'),
        ({"filePath": "/x", "ok": True}, '{"filePath": "/x", "ok": true}'),
    ],
)
def test_tool_answers_of_every_shape_become_text(response: Any, text: str) -> None:
    assert result_text(response) == text


@pytest.mark.parametrize("half", ["\ud83d", "ok \udfff ok"])
async def test_lone_surrogate_is_kept_and_harmless(half: str, rec: Recording) -> None:
    rec.recorder.open_mission("m-1", half)
    await rec.recorder.prompt_submitted("p", half)
    await rec.recorder.text(half)
    await rec.recorder.tool_started("t1", half, {half: half})
    await rec.tool("p", "t2", half)
    await rec.recorder.prompt_submitted("p", f"a notice {half}")
    kept = half.encode("utf-8", "replace").decode()
    journaled = [entry.event for entry in await rec.transcript.journal.entries()]
    assert [event for event in journaled if event in {"prompt", "tool", "notice"}] == ["prompt", "tool", "notice"]
    await rec.recorder.stopped("p", half)
    await rec.recorder.close_mission("error", half)
    turn = await rec.turn()
    assert (turn.user_message, turn.agent_response, turn.notice) == (kept, kept, f"a notice {kept}\n{kept}")
    assert turn.tool_calls[0]["name"] == kept


def nested(levels: int) -> Any:
    value: Any = "the words at the bottom"
    for _ in range(levels):
        value = {"down": value}
    return value


@pytest.mark.parametrize(
    "result",
    [
        nested(5000),
        {"stdout": nested(5000)},
        {"stdout": "", "stderr": nested(5000)},
        [{"type": "text", "text": nested(5000)}],
    ],
    ids=["object", "stdout", "stderr", "text"],
)
async def test_deep_result_of_any_shape_is_kept(rec: Recording, result: Any) -> None:
    rec.recorder.open_mission("m-1", "Go")
    await rec.recorder.prompt_submitted("p", "Go")
    await rec.recorder.tool_ended("p", "t1", "T", nested(5000), result, is_error=False, agent_id=None)
    await rec.recorder.tool_started("t2", "T", {})
    await rec.recorder.tool_answered("t2", result, is_error=False)
    await rec.recorder.close_mission("complete")
    for call in (await rec.turn()).tool_calls:
        assert "nested too deeply" in call["result"]


LONG = "password: " * 40_000
PARTS: dict[str, Callable[[TurnRecorder], Awaitable[object]]] = {
    "a reply": lambda recorder: recorder.text(LONG),
    "a last message": lambda recorder: recorder.stopped("p", LONG),
    "a notice": lambda recorder: recorder.prompt_submitted("p", LONG),
    "an input": lambda recorder: recorder.tool_started("t1", "T", {str(n): LONG for n in range(9)}),
    "an output": lambda recorder: recorder.tool_answered("t0", LONG, is_error=False),
    "a call": lambda recorder: recorder.tool_ended("p", "t0", "T", {}, LONG, is_error=False, agent_id=None),
}


@pytest.mark.parametrize("part", PARTS)
async def test_long_text_leaves_loop_free(rec: Recording, part: str) -> None:
    rec.recorder.open_mission("m-1", "Go")
    await rec.recorder.prompt_submitted("p", "Go")
    await rec.recorder.tool_started("t0", "T", {})
    recorded = asyncio.ensure_future(PARTS[part](rec.recorder))
    passes = 0
    while not recorded.done():
        await asyncio.sleep(0.001)
        passes += 1
    assert passes > 2, "other tasks run meanwhile"
    await rec.recorder.close_mission("complete")
    assert "password" in str(await rec.turn())
