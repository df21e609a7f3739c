"""Turns as they happen -> one observation each: TurnRecorder and TurnBuffer on a real log."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprite.database.connection import open_database
from sprite.database.transcript import Observation, TranscriptDB, open_transcript
from sprite.database.transcript_schema import SCHEMA
from sprite.memory.capture.recorder import TurnRecorder
from sprite.memory.capture.turn_buffer import TurnBuffer
from sprite.privacy.cutting import (
    MAX_STRING,
    cut,
    cut_value,
    result_text,
)
from tests.harness import rows

SESSION = "s-1"


class Recording:
    """A recorder on a log, with what it said about the disk."""

    def __init__(self, transcript: TranscriptDB) -> None:
        self.transcript = transcript
        self.complaints: list[str] = []
        self.recorder = TurnRecorder(transcript, self.complaints.append)
        self.recorder.begin_session(SESSION)

    async def turns(self) -> list[Observation]:
        return await self.transcript.observations_between(0, 2**62)

    async def turn(self) -> Observation:
        (turn,) = await self.turns()
        return turn

    async def tool(self, prompt_id: str, tool_use_id: str, result: Any = "done", **more: Any) -> None:
        settled = {"is_error": False, "agent_id": None, **more}
        await self.recorder.tool_ended(prompt_id, tool_use_id, "Bash", {"command": tool_use_id}, result, **settled)


@asynccontextmanager
async def recording(folder: Path) -> AsyncIterator[Recording]:
    async with open_transcript(folder / "transcript.db") as transcript:
        if await transcript.session_count() == 0:
            await transcript.start_session(SESSION)
        yield Recording(transcript)


@pytest.fixture
async def rec(tmp_path: Path) -> AsyncIterator[Recording]:
    async with recording(tmp_path) as made:
        yield made


def ids(turn: Observation) -> list[str]:
    return [call["tool_use_id"] for call in turn.tool_calls]


# A mission


async def test_a_mission_becomes_one_observation_with_all_that_happened(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "List my files")
    await rec.recorder.prompt_submitted("p", "List my files")
    rec.recorder.text("I look.")
    rec.recorder.tool_started("t1", "Bash", {"command": "t1"})
    await rec.tool("p", "t1", {"stdout": "a.txt", "stderr": ""})
    rec.recorder.tool_answered("t1", "a.txt", is_error=False)
    rec.recorder.text("There is a.txt.")
    await rec.recorder.stopped("p", "There is a.txt.")
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.session_id, turn.mission_id, turn.trigger, turn.outcome) == (SESSION, "m-1", "user", "complete")
    assert (turn.user_message, turn.agent_response) == ("List my files", "I look.\n\nThere is a.txt.")
    assert turn.tool_calls == [
        {"tool_use_id": "t1", "name": "Bash", "input": {"command": "t1"}, "result": "a.txt", "is_error": False}
    ]
    assert (turn.notice, turn.processed) == ("", False)
    assert await rec.transcript.journal.entries() == [], "the journal goes with the turn"


async def test_a_mission_that_no_hook_ever_saw_is_kept_with_its_words(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Hello?")
    await rec.recorder.close_mission("error", "the agent's process would not start")
    turn = await rec.turn()
    assert (turn.user_message, turn.outcome, turn.notice) == (
        "Hello?",
        "error",
        "the agent's process would not start",
    )


async def test_closing_twice_writes_once(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Hello")
    await rec.recorder.close_mission("complete")
    await rec.recorder.close_mission("error")
    await rec.recorder.close_session()
    assert (await rec.turn()).outcome == "complete"


async def test_the_last_message_of_the_stop_hook_is_used_only_where_the_stream_brought_no_text(rec: Recording) -> None:
    for number, streamed in enumerate(["", "streamed"]):
        rec.recorder.open_mission(f"m-{number}", "Hello")
        await rec.recorder.prompt_submitted(f"p-{number}", "Hello")
        rec.recorder.text(streamed)
        await rec.recorder.stopped(f"p-{number}", "from the hook")
        await rec.recorder.close_mission("complete")
    assert [turn.agent_response for turn in await rec.turns()] == ["from the hook", "streamed"]


async def test_whitespace_that_the_cli_changes_does_not_hide_the_mission(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "  two\n\nlines ")
    await rec.recorder.prompt_submitted("p", "two lines")
    assert await rec.recorder.taken_up(0)
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.user_message, turn.notice) == ("  two\n\nlines ", "")


async def test_a_notice_inside_a_mission_is_never_the_persons_words(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Wait for it")
    await rec.recorder.prompt_submitted("p", "Wait for it")
    await rec.recorder.prompt_submitted("p", "<task-notification>done</task-notification>")
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.user_message, turn.notice) == ("Wait for it", "<task-notification>done</task-notification>")


# A turn of the CLI's own


async def test_a_turn_the_cli_begins_by_itself_is_marked_and_says_nothing_in_the_persons_name(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    assert rec.recorder.in_task_turn
    rec.recorder.text("The build is done.")
    await rec.tool("p", "t1")
    await rec.recorder.close_task("complete")
    assert not rec.recorder.in_task_turn
    turn = await rec.turn()
    assert (turn.trigger, turn.user_message, turn.mission_id) == ("task", "", None)
    assert (turn.agent_response, turn.notice, ids(turn)) == ("The build is done.", "<task-notification>", ["t1"])


async def test_a_mission_merged_into_a_task_turn_ends_that_one_and_gets_what_follows(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    rec.recorder.text("The build")
    await rec.tool("p", "t1")
    rec.recorder.open_mission("m-1", "And the tests?")
    rec.recorder.text(" is done.")
    assert rec.recorder.in_task_turn
    await rec.recorder.prompt_submitted("p", "And the tests?")
    assert not rec.recorder.in_task_turn
    await rec.tool("p", "t2")
    rec.recorder.text("They pass.")
    await rec.recorder.stopped("p", "They pass.")
    await rec.recorder.close_mission("complete")
    task, mission = await rec.turns()
    assert (task.trigger, task.user_message, task.agent_response, ids(task)) == (
        "task",
        "",
        "The build\n\n is done.",
        ["t1"],
    )
    assert (mission.trigger, mission.user_message, mission.agent_response, ids(mission)) == (
        "user",
        "And the tests?",
        "They pass.",
        ["t2"],
    )
    assert await rec.transcript.journal.entries() == []


async def test_a_mission_beside_a_task_turn_keeps_its_own_words(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "My question")
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    rec.recorder.text("of the task")
    await rec.recorder.close_task("complete")
    await rec.recorder.prompt_submitted("p-mission", "My question")
    rec.recorder.text("of the mission")
    await rec.recorder.close_mission("complete")
    assert [(t.trigger, t.user_message, t.agent_response) for t in await rec.turns()] == [
        ("task", "", "of the task"),
        ("user", "My question", "of the mission"),
    ]


async def test_quiet_waits_for_the_end_of_a_task_turn_and_no_longer_than_asked(rec: Recording) -> None:
    await rec.recorder.quiet(0)
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    await rec.recorder.quiet(0.01)
    assert rec.recorder.in_task_turn
    waiting = asyncio.create_task(rec.recorder.quiet(30))
    await asyncio.sleep(0)
    assert not waiting.done()
    await rec.recorder.close_task("complete")
    await waiting


async def test_what_a_background_agent_does_after_its_turn_is_told_by_the_turn_that_reports_it(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Start it")
    await rec.recorder.prompt_submitted("p", "Start it")
    await rec.recorder.close_mission("complete")
    await rec.tool("p", "late-1", agent_id="agent-7")
    await rec.tool("p", "late-2", agent_id="agent-7")
    assert len(await rec.turns()) == 1, "nothing is written before its turn ends"
    await rec.recorder.prompt_submitted("p-2", "<task-notification>")
    rec.recorder.text("It is done.")
    await rec.recorder.close_task("complete")
    _, task = await rec.turns()
    assert (task.trigger, ids(task)) == ("task", ["late-1", "late-2"])
    assert {call["agent_id"] for call in task.tool_calls} == {"agent-7"}


def launch(rec: Recording, prompt_id: str, agent_id: str, **more: Any) -> Awaitable[None]:
    """The hook of the call that started an agent in the background, which returns at once."""
    return rec.tool(prompt_id, f"start-{agent_id}", {"isAsync": True, "agentId": agent_id}, **more)


def notification(agent_id: str) -> str:
    return f"<task-notification>\n<task-id>{agent_id}</task-id>\n<status>completed</status>"


async def test_a_background_agents_calls_wait_for_its_own_report_whatever_turn_their_hooks_name(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Start both")
    await rec.recorder.prompt_submitted("p", "Start both")
    await launch(rec, "p", "one")
    await launch(rec, "p", "two")
    await rec.tool("p", "one-1", agent_id="one")
    await rec.recorder.close_mission("complete")
    await rec.tool("p", "two-1", agent_id="two")
    rec.recorder.open_mission("m-2", "Something else")
    await rec.recorder.prompt_submitted("p-2", "Something else")
    await rec.tool("p-2", "one-2", agent_id="one")
    await rec.recorder.close_mission("complete")
    await rec.recorder.prompt_submitted("p-3", notification("one"))
    await rec.recorder.close_task("complete")
    rec.recorder.open_mission("m-3", "And then?")
    await rec.recorder.prompt_submitted("p-4", "And then?")
    await rec.recorder.prompt_submitted("p-4", notification("two"))
    await rec.recorder.close_mission("complete")
    assert [(turn.trigger, ids(turn)) for turn in await rec.turns()] == [
        ("user", ["start-one", "start-two"]),
        ("user", []),
        ("task", ["one-1", "one-2"]),
        ("user", ["two-1"]),
    ]
    assert await rec.transcript.journal.entries() == []


async def test_an_agent_in_the_foreground_works_in_the_turn_that_waits_for_it_and_its_own_agents_with_it(
    rec: Recording,
) -> None:
    rec.recorder.open_mission("m-1", "Delegate")
    await rec.recorder.prompt_submitted("p", "Delegate")
    rec.recorder.tool_started("start-front", "Agent", {})
    rec.recorder.agent_started("front", "start-front")
    await launch(rec, "p", "behind")
    rec.recorder.agent_started("below", "start-below")
    await rec.tool("p", "below-1", agent_id="below")
    await rec.tool("p", "start-below", {"agentId": "below"}, agent_id="front")
    rec.recorder.agent_started("far-below", "start-far-below")
    await rec.tool("p", "far-below-1", agent_id="far-below")
    await rec.recorder.close_mission("interrupted")
    await rec.tool("p", "start-far-below", "failed", is_error=True, agent_id="behind")
    await rec.recorder.prompt_submitted("p-2", notification("behind"))
    await rec.recorder.close_task("complete")
    mission, report = await rec.turns()
    assert ids(mission) == ["start-front", "start-behind", "start-below", "below-1"]
    assert ids(report) == ["start-far-below", "far-below-1"]


async def test_background_work_that_nobody_reports_is_written_when_the_session_ends(rec: Recording) -> None:
    await rec.tool("p-gone", "late")
    await rec.recorder.close_session()
    turn = await rec.turn()
    assert (turn.trigger, turn.user_message, ids(turn)) == ("task", "", ["late"])
    await rec.recorder.close_session()
    assert len(await rec.turns()) == 1


async def test_what_is_open_when_the_session_ends_is_written_as_interrupted(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    rec.recorder.open_mission("m-1", "Half")
    await rec.recorder.close_session()
    assert [(t.trigger, t.outcome) for t in await rec.turns()] == [("user", "interrupted"), ("task", "interrupted")]
    assert await rec.transcript.journal.entries() == []


async def test_turns_that_end_in_the_same_moment_are_each_written_once(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    rec.recorder.open_mission("m-1", "Hello")
    await asyncio.gather(
        rec.recorder.close_task("complete"), rec.recorder.close_mission("interrupted"), rec.recorder.close_session()
    )
    assert sorted(t.trigger for t in await rec.turns()) == ["task", "user"]


# Tools that do not end well


async def test_a_tool_that_is_cut_off_is_kept_and_says_so(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Sleep")
    await rec.recorder.prompt_submitted("p", "Sleep")
    rec.recorder.tool_started("t1", "Bash", {"command": "sleep 60"})
    await rec.recorder.close_mission("interrupted")
    (call,) = (await rec.turn()).tool_calls
    assert (call["name"], call["input"]) == ("Bash", {"command": "sleep 60"})
    assert "no result" in call["result"]


async def test_a_denied_tool_is_kept_with_what_the_agent_was_told(rec: Recording) -> None:
    """No hook reports a denied call: the stream's answer is all there is."""
    rec.recorder.open_mission("m-1", "Delete it")
    await rec.recorder.prompt_submitted("p", "Delete it")
    rec.recorder.tool_started("t1", "Bash", {"command": "rm x"})
    rec.recorder.tool_answered("t1", [{"type": "text", "text": "The person said no to this."}], is_error=True)
    await rec.recorder.close_mission("complete")
    (call,) = (await rec.turn()).tool_calls
    assert (call["result"], call["is_error"]) == ("The person said no to this.", True)


async def test_a_failed_tool_is_kept_as_failed_whatever_the_stream_adds(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Go")
    await rec.recorder.prompt_submitted("p", "Go")
    await rec.tool("p", "t1", "Exit code 1\nno such file", is_error=True)
    rec.recorder.tool_answered("t1", "something else", is_error=False)
    await rec.recorder.close_mission("complete")
    (call,) = (await rec.turn()).tool_calls
    assert (call["result"], call["is_error"]) == ("Exit code 1\nno such file", True)


async def test_an_answer_to_a_call_nobody_knows_changes_nothing(rec: Recording) -> None:
    rec.recorder.tool_answered("t9", "x", is_error=False)
    rec.recorder.text("to nobody")
    rec.recorder.tool_started("t8", "Bash", {})
    await rec.recorder.stopped("p", "x")
    await rec.recorder.close_session()
    assert await rec.turns() == []


# Hooks and stream are two tasks: their events interleave as they like

Step = Callable[[Recording], Awaitable[None] | None]
#: What the stream brings of a turn with two parallel calls, a denied one and one that never ends.
STREAM: Sequence[Step] = [
    lambda r: r.recorder.text("I look."),
    lambda r: r.recorder.tool_started("a", "Bash", {"command": "a"}),
    lambda r: r.recorder.tool_started("b", "Bash", {"command": "b"}),
    lambda r: r.recorder.tool_answered("b", "B", is_error=False),
    lambda r: r.recorder.tool_answered("a", "stream's A", is_error=True),
    lambda r: r.recorder.tool_started("denied", "Write", {"file_path": "/etc/x"}),
    lambda r: r.recorder.tool_answered("denied", "no", is_error=True),
    lambda r: r.recorder.tool_started("cut", "Bash", {"command": "sleep 60"}),
    lambda r: r.recorder.text("Done."),
]
#: What the hooks report of the same turn, the parallel calls in either order.
HOOKS: Sequence[Step] = [
    lambda r: r.recorder.prompt_submitted("p", "Go"),
    lambda r: r.tool("p", "b", {"stdout": "B"}),
    lambda r: r.tool("p", "a", "hook's A", is_error=True),
    lambda r: r.recorder.stopped("p", "Done."),
]


async def play(steps: Sequence[Step]) -> Observation:
    with tempfile.TemporaryDirectory() as folder:
        async with recording(Path(folder)) as rec:
            rec.recorder.open_mission("m-1", "Go")
            for step in steps:
                if (awaitable := step(rec)) is not None:
                    await awaitable
            await rec.recorder.close_mission("complete")
            return await rec.turn()


@st.composite
def interleavings(draw: st.DrawFn) -> list[Step]:
    stream, hooks = list(STREAM), list(HOOKS)
    if draw(st.booleans()):
        hooks[1], hooks[2] = hooks[2], hooks[1]
    steps = []
    while stream or hooks:
        source = stream if stream and (not hooks or draw(st.booleans())) else hooks
        steps.append(source.pop(0))
    return steps


def told(turn: Observation) -> dict[str, Any]:
    return {key: value for key, value in asdict(turn).items() if key not in {"id", "timestamp"}}


@settings(max_examples=60)
@given(interleavings())
async def test_hooks_and_stream_in_any_order_tell_the_same_turn(steps: list[Step]) -> None:
    assert told(await play(steps)) == told(await play([*STREAM, *HOOKS]))


async def test_the_turn_they_tell_is_the_true_one() -> None:
    turn = await play([*HOOKS, *STREAM])
    assert turn.agent_response == "I look.\n\nDone."
    assert [(c["tool_use_id"], c["result"][:8], c["is_error"]) for c in turn.tool_calls] == [
        ("a", "hook's A", True),
        ("b", "B", False),
        ("denied", "no", True),
        ("cut", "[no resu", False),
    ]


@settings(max_examples=40)
@given(st.permutations([*STREAM, *HOOKS[1:]]))
async def test_no_order_at_all_loses_the_words_or_makes_a_second_turn(steps: list[Step]) -> None:
    turn = await play([HOOKS[0], *steps])
    assert turn.user_message == "Go"
    assert sorted(ids(turn)) == ["a", "b", "cut", "denied"]


# What is kept of large, deep and broken values


def test_a_long_string_is_cut_to_its_limit_and_says_how_much_is_missing() -> None:
    text = "x" * 1_234_567
    kept = cut(text)
    assert len(kept) <= MAX_STRING == 2000
    beginning, said = kept.split(" [… ")
    assert int(said.removesuffix(" characters cut]").replace(",", "")) == len(text) - len(beginning)
    assert cut("x" * 2000) == "x" * 2000
    assert len(cut("x" * 2001)) <= 2000


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("x" * 5000),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters()), inner)
        | st.lists(inner, max_size=1).map(lambda i: i * 201)
    ),
    max_leaves=4,
)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *(s for item in value.values() for s in strings(item))]
    return [s for item in value for s in strings(item)] if isinstance(value, list) else []


@settings(max_examples=40)
@given(JSON_VALUES, JSON_VALUES)
async def test_whatever_a_tool_was_given_and_gave_is_kept_as_valid_json(tool_input: Any, result: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with recording(Path(folder)) as rec:
            rec.recorder.open_mission("m-1", "Go")
            await rec.recorder.prompt_submitted("p", "Go")
            await rec.recorder.tool_ended("p", "t", "T", tool_input, result, is_error=False, agent_id=None)
            rec.recorder.tool_started("t2", "T", tool_input)
            await rec.recorder.close_mission("complete")
            assert len((await rec.turn()).tool_calls) == 2
        (row,) = rows(Path(folder) / "transcript.db", "SELECT tool_calls_json FROM observations")

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is no JSON")

        calls = json.loads(row["tool_calls_json"], parse_constant=refuse)
        assert all(len(text) <= MAX_STRING for text in strings(calls))
        json.dumps(calls, ensure_ascii=False).encode()


def test_runaway_lists_objects_and_nesting_are_cut_and_say_so() -> None:
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
def test_a_number_that_json_or_a_client_cannot_hold_is_kept_in_words(number: float) -> None:
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
def test_the_shapes_in_which_tools_answer_become_text(response: Any, text: str) -> None:
    assert result_text(response) == text


@pytest.mark.parametrize("half", ["\ud83d", "ok \udfff ok"])
async def test_half_an_emoji_from_anywhere_is_kept_and_stops_nothing(half: str, rec: Recording) -> None:
    rec.recorder.open_mission("m-1", half)
    await rec.recorder.prompt_submitted("p", half)
    rec.recorder.text(half)
    rec.recorder.tool_started("t1", half, {half: half})
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


# After a crash


async def crash_and_recover(folder: Path, *, before: Callable[[Recording], Awaitable[None]]) -> list[Observation]:
    """What `before` did is in the journal only: its process is gone without a word, and the next one recovers."""
    async with recording(folder) as rec:
        await before(rec)
        await asyncio.sleep(0.01)
    async with recording(folder) as rec:
        await rec.recorder.recover()
        assert await rec.transcript.journal.entries() == []
        await rec.recorder.recover()
        return await rec.turns()


async def test_a_killed_turn_is_told_by_its_journal(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", "List my files")
        await rec.recorder.prompt_submitted("p", "List my files")
        rec.recorder.text("I look.")
        await rec.tool("p", "t1", {"stdout": "a.txt"})
        await rec.recorder.prompt_submitted("p", "<task-notification>")
        rec.recorder.text("There is a.txt.")
        await rec.tool("p", "t2", "boom", is_error=True, agent_id="agent-1")

    (turn,) = await crash_and_recover(tmp_path, before=before)
    assert (turn.outcome, turn.mission_id, turn.trigger, turn.session_id) == ("crashed", "m-1", "user", SESSION)
    assert (turn.user_message, turn.notice) == ("List my files", "<task-notification>")
    assert turn.agent_response == "I look.\n\nThere is a.txt."
    assert [(c["tool_use_id"], c["result"], c["is_error"], c.get("agent_id")) for c in turn.tool_calls] == [
        ("t1", "a.txt", False, None),
        ("t2", "boom", True, "agent-1"),
    ]


async def test_a_turn_killed_after_its_last_word_keeps_it(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", "Hello")
        await rec.recorder.prompt_submitted("p", "Hello")
        await rec.recorder.stopped("p", "Hello to you")

    (turn,) = await crash_and_recover(tmp_path, before=before)
    assert (turn.outcome, turn.agent_response) == ("crashed", "Hello to you")


async def test_each_killed_turn_becomes_one_observation_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        for number in range(4):
            # A new recorder for each: four processes that were killed one after the other.
            crashed = TurnRecorder(rec.transcript, rec.complaints.append)
            crashed.begin_session(SESSION)
            crashed.open_mission(f"m-{number}", f"Mission {number}")
            await crashed.prompt_submitted(f"p-{number}", f"Mission {number}")
        await rec.tool("p-0", "late")

    turns = await crash_and_recover(tmp_path, before=before)
    assert [t.user_message for t in turns] == ["Mission 0", "Mission 1", "Mission 2", "Mission 3", ""]
    assert [t.trigger for t in turns] == ["user"] * 4 + ["task"]
    assert {t.outcome for t in turns} == {"crashed"}
    assert [t.timestamp for t in turns] == sorted(t.timestamp for t in turns), "dated by their last sign of life"


async def test_agents_that_died_with_the_process_are_told_with_the_turn_they_were_in(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", "Delegate")
        await rec.recorder.prompt_submitted("p", "Delegate")
        for agent in ("reported", "unheard"):
            await launch(rec, "p", agent)
            await rec.tool("p", f"{agent}-1", agent_id=agent)
        await rec.recorder.close_mission("complete")
        await rec.recorder.prompt_submitted("p-2", notification("reported"))
        rec.recorder.open_mission("m-2", "Now in front")
        await rec.recorder.prompt_submitted("p-3", "Now in front")
        rec.recorder.tool_started("start-front", "Agent", {})
        rec.recorder.agent_started("front", "start-front")
        rec.recorder.text("I wait.")
        await rec.tool("p-3", "front-1", agent_id="front")

    turns = {turn.user_message or turn.notice: turn for turn in await crash_and_recover(tmp_path, before=before)}
    assert {words: (turn.outcome, ids(turn)) for words, turn in turns.items()} == {
        "Delegate": ("complete", ["start-reported", "start-unheard"]),
        notification("reported"): ("crashed", ["reported-1"]),
        "": ("crashed", ["unheard-1"]),
        "Now in front": ("crashed", ["front-1"]),
    }
    assert turns["Now in front"].agent_response == "I wait."


async def test_a_task_turn_killed_before_its_merge_is_told_beside_the_mission(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        await rec.recorder.prompt_submitted("p", "<task-notification>")
        rec.recorder.open_mission("m-1", "And then?")
        await rec.recorder.prompt_submitted("p", "And then?")
        await rec.tool("p", "t2")

    turns = await crash_and_recover(tmp_path, before=before)
    assert [(t.trigger, t.outcome) for t in turns] == [("task", "complete"), ("user", "crashed")]


async def test_a_hook_later_than_its_turns_end_does_not_stop_the_next_start(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", "Hello")
        await rec.recorder.prompt_submitted("p", "Hello")
        await rec.recorder.close_mission("complete")
        late = TurnBuffer(SESSION, "user", "m-1", "Hello")
        await rec.transcript.journal.append(late.key, SESSION, "stop", {**late.snapshot(), "message": "too late"})

    (turn,) = await crash_and_recover(tmp_path, before=before)
    assert turn.outcome == "complete"


async def test_without_a_crash_there_is_nothing_to_recover(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Hello")
    await rec.recorder.prompt_submitted("p", "Hello")
    await rec.recorder.close_mission("complete")
    await rec.recorder.recover()
    assert (await rec.turn()).outcome == "complete"


# The disk refuses


async def test_a_full_disk_is_said_and_the_turn_is_written_when_there_is_room(tmp_path: Path) -> None:
    async with open_database(tmp_path / "transcript.db", SCHEMA) as database:
        rec = Recording(TranscriptDB(database))
        await rec.transcript.start_session(SESSION)
        pages = await database.fetch_value("PRAGMA page_count")
        await database.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(2):
            rec.recorder.open_mission(f"m-{number}", "Remember this " + "x" * 50_000)
            await rec.recorder.prompt_submitted(f"p-{number}", "Remember this " + "x" * 50_000)
            await rec.recorder.close_mission("complete")
        assert await rec.turns() == []
        assert rec.complaints
        assert all("disk" in words for words in rec.complaints)
        await database.execute("PRAGMA max_page_count = 100000")
        rec.recorder.open_mission("m-2", "Is there room?")
        await rec.recorder.close_mission("complete")
        assert [turn.mission_id for turn in await rec.turns()] == ["m-0", "m-1", "m-2"]
