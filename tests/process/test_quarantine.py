"""Quarantine of turns that the curator always fails on: bounded number of calls, and all other turns are curated."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sprite.curation import processor
from sprite.errors import ModelError
from sprite.log.curations import LostCall
from tests.command_line import command, forget, rebuild
from tests.curated_workspace import files_containing, without_marks
from tests.harness import Client, dump, observations, running_sprite, sprite_process
from tests.inspection import curations, eventually, learnings, memory, request_seen, transcript
from tests.memory_stores import open_stores, seed_turns
from tests.scripted_model import OfflineModel

#: Text that makes every curator call about its turn fail.
POISON = "xyzzy"
#: Call counts at which the sprite is killed.
KILLED_AT = (3, 5, 8) if os.environ.get("SOAK_KILLS") else (5,)
#: Most calls per turn, including the control call that clears the model of suspicion.
MOST_CALLS = 8
FAULTS: dict[str, dict[str, Any]] = {
    "refused": {"error": 400, "type": "invalid_request_error", "message": "Output blocked by a filter"},
    "too large": {"error": 413, "type": "request_too_large"},
    "cut off": {"raw_text": "FACT: half an", "stop_reason": "max_tokens"},
    "empty": {"raw_text": ""},
    "declined": {"raw_text": "I", "stop_reason": "refusal"},
}
RETRY = "`memory retry {}` learns from it again"


@pytest.fixture(autouse=True)
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between failed calls of sprites in this process."""
    monkeypatch.setattr(processor, "FIRST_RETRY_SECONDS", 0.02)


async def seed(workspace: Path, turns: int, *poisoned: int) -> None:
    """Write a log of pending turns that state one fact each; the poisoned ones contain POISON."""
    words = {turn: f" {POISON}{turn}." for turn in poisoned}
    await seed_turns(
        workspace, *(f"My plant number {turn} is Fern{turn}.{words.get(turn, '')}" for turn in range(1, turns + 1))
    )


def about(model: OfflineModel, turn: int) -> int:
    """Return the number of curator calls about a poisoned turn."""
    return sum(r.kind == "curator" and f"{POISON}{turn}." in r.user_text for r in model.requests)


def calls(model: OfflineModel) -> int:
    return sum(r.kind == "curator" for r in model.requests)


def controls(model: OfflineModel) -> int:
    """Return the number of control calls, which contain no turn."""
    return sum(r.kind == "curator" and "<turn id=" not in r.user_text for r in model.requests)


def states(workspace: Path) -> dict[int, int]:
    return {turn["id"]: turn["processed"] for turn in observations(workspace)}


def settled(workspace: Path) -> bool:
    return transcript(workspace, "SELECT 1 FROM observations WHERE processed = 0 LIMIT 1") == []


def times_curated(workspace: Path) -> Counter[int]:
    """Return the number of batches that included each turn."""
    spans = [
        (c["first_observation_id"], c["last_observation_id"]) for c in curations(workspace) if c["kind"] == "batch"
    ]
    return Counter(turn for first, last in spans for turn in range(first, last + 1))


def assert_only(workspace: Path, turns: int, *poisoned: int) -> None:
    """Check that these turns are quarantined and every other turn was curated exactly once."""
    assert {turn for turn, state in states(workspace).items() if state == 2} == set(poisoned)
    assert times_curated(workspace) == Counter(set(range(1, turns + 1)) - set(poisoned))


async def remember(client: Client, op: str, **more: Any) -> dict[str, Any]:
    reply = await client.ask("memory", {"op": op, **more})
    payload: dict[str, Any] = reply["payload"]
    return payload


@pytest.mark.parametrize(
    ("fault", "poisoned", "cost"),
    [("refused", 1, 7), pytest.param("declined", 25, 7, marks=pytest.mark.soak)],
)
async def test_failing_turn_is_quarantined_within_call_limit(
    model: OfflineModel, workspace: Path, fault: str, poisoned: int, cost: int
) -> None:
    """All other turns are curated; a restart makes no further calls."""
    await seed(workspace, 25, poisoned)
    said = {"message": f"Output blocked by a filter: {POISON}{poisoned}"} if fault == "refused" else {}
    model.script.curator({**FAULTS[fault], **said, "match": POISON, "times": -1})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await eventually(lambda: settled(workspace), "turns are still pending")
        assert_only(workspace, 25, poisoned)
        assert about(model, poisoned) == cost <= MOST_CALLS
        assert controls(model) == 0
        # The flush waits for the processor, which finishes after the log.
        state = (await client.ask("system", {"action": "flush"}))["payload"]
        assert state["memory"]["waiting"] == 0
        assert state.get("last_error") is None
        (aside,) = state["memory"]["quarantined"]
        assert aside["turn_id"] == poisoned
        assert ("declined" if fault == "refused" else fault) in aside["reason"]
        assert (await remember(client, "health"))["health"]["quarantined"] == [aside]
        turn = (await remember(client, "turn", id=poisoned))["turn"]
        assert (turn["processed"], turn["quarantined"]) == (False, True)
        found = await remember(client, "search", query=f"{POISON}{poisoned}")
        assert next((hit["kind"], hit["id"]) for hit in found["hits"]) == ("turn", poisoned)
    before = calls(model)
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("system", {"action": "flush"})
        assert calls(model) == before, "the restart called the model"
        assert POISON not in (await command(workspace, "status"))[1], "the model's own text is shown"
    await forget(workspace, turn=poisoned)
    assert files_containing(workspace, POISON) == []


async def test_single_failing_turn_costs_three_calls(model: OfflineModel, workspace: Path) -> None:
    await seed(workspace, 1, 1)
    model.script.curator({**FAULTS["too large"], "match": POISON, "times": -1})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("system", {"action": "flush"})
        await eventually(lambda: settled(workspace), "the turn is not quarantined")
    assert calls(model) == 3
    (row,) = curations(workspace)
    assert (row["kind"], row["first_observation_id"], row["last_observation_id"]) == ("quarantine", 1, 1)
    assert "larger than the model accepts" in row["response"]


async def test_several_failing_turns_are_quarantined_separately(model: OfflineModel, workspace: Path) -> None:
    """One control call clears the model of suspicion."""
    await seed(workspace, 25, 1, 2, 20)
    model.script.curator({**FAULTS["refused"], "match": POISON, "times": -1})
    async with running_sprite(workspace, model.url):
        await eventually(lambda: settled(workspace), "turns are still pending")
    assert_only(workspace, 25, 1, 2, 20)
    # The model answered nothing between the first two failures, so it was suspected itself.
    assert controls(model) == 1
    assert about(model, 2) + controls(model) <= MOST_CALLS
    assert max(about(model, turn) for turn in (1, 2, 20)) <= MOST_CALLS
    assert [row["reason"] for row in transcript(workspace, "SELECT reason FROM lost_calls")].count(
        "control answered"
    ) == 1


async def test_prose_answer_is_kept_as_report(model: OfflineModel, workspace: Path) -> None:
    """Prose is invalid for a batch, valid for a single turn; the other turns are curated."""
    await seed(workspace, 25, 3)
    model.script.curator({"raw_text": "Certainly! All is well.", "match": POISON, "times": -1})
    async with running_sprite(workspace, model.url):
        await eventually(lambda: settled(workspace), "turns are still pending")
    assert times_curated(workspace) == Counter(range(1, 26))
    assert about(model, 3) <= MOST_CALLS
    assert any("All is well" in row["detail"] for row in memory(workspace, "SELECT detail FROM reports"))
    # The fake model may quote only text from the conversation.
    assert any("Fern25" in content for content in learnings(workspace))


async def test_model_outages_do_not_count_against_turn(model: OfflineModel, workspace: Path) -> None:
    await seed(workspace, 4, 2)
    outages = iter([500, 429, 401, 529, 403, 408, 409])

    def now_and_then(body: dict[str, Any]) -> dict[str, Any] | None:
        down = next(outages, None) if POISON in str(body["messages"]) else None
        return {"error": down, "retry_after": 0} if down else None

    model.script.curator(now_and_then, {**FAULTS["refused"], "match": POISON, "times": -1})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        while not settled(workspace):
            await client.ask("system", {"action": "flush"})
    assert_only(workspace, 4, 2)
    assert about(model, 2) - 7 <= MOST_CALLS
    lost = transcript(workspace, "SELECT reason FROM lost_calls")
    assert {row["reason"] for row in lost} == {"refused with 400"}


async def test_model_refusing_everything_quarantines_nothing(model: OfflineModel, workspace: Path) -> None:
    """While the model refuses, each further attempt is a single control call."""
    await seed(workspace, 6)
    refused = True

    def unpaid(_body: dict[str, Any]) -> dict[str, Any] | None:
        return {"error": 400, "message": "Your credit balance is too low"} if refused else None

    model.script.curator(unpaid)
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await eventually(lambda: controls(model) > 0, "no control call was made")
        await eventually(lambda: set(states(workspace).values()) == {0}, "the turns are not pending again")
        # Memory itself is healthy: it can be exported.
        code, _, error = await command(workspace, "export", str(workspace.parent / "archive.zip"))
        assert code == 0, error
        about_turns = calls(model) - controls(model)
        for _ in range(3):
            status = (await client.ask("system", {"action": "flush"}))["payload"]
        assert "has no credit" in status["last_error"]
        assert (status["memory"]["waiting"], status["memory"]["quarantined"]) == (6, [])
        assert calls(model) - controls(model) == about_turns, "a call was not a control"
        refused = False
        await client.ask("system", {"action": "flush"})
        await eventually(lambda: settled(workspace), "turns are still pending")
    assert_only(workspace, 6)
    assert times_curated(workspace) == Counter(range(1, 7))


@pytest.mark.soak
async def test_killed_sprite_repeats_no_paid_call(model: OfflineModel, workspace: Path) -> None:
    await seed(workspace, 25, 9)
    hung = 0

    def now_and_then(body: dict[str, Any]) -> dict[str, Any] | None:
        nonlocal hung
        if f"{POISON}9." in str(body["messages"]) and about(model, 9) in KILLED_AT:
            hung += 1
            return {"hang": True}
        return None

    model.script.curator(now_and_then, {**FAULTS["cut off"], "match": POISON, "times": -1})
    for killed_at in KILLED_AT:
        async with sprite_process(workspace, model.url) as sprite:
            await request_seen(model, lambda _, seen=killed_at: about(model, 9) == seen)  # type: ignore[misc]
            await sprite.kill()
    async with sprite_process(workspace, model.url):
        await eventually(lambda: settled(workspace), "turns are still pending")
    assert_only(workspace, 25, 9)
    assert hung == len(KILLED_AT)
    assert about(model, 9) - hung <= MOST_CALLS


async def test_recorded_failures_quarantine_turn_after_restart(model: OfflineModel, workspace: Path) -> None:
    """A process killed before the verdict leaves enough failed calls to decide without another one."""
    await seed(workspace, 2, 1)
    async with open_stores(workspace / ".os/memory") as stores:
        for _ in range(3):
            await stores.transcript.lost_calls.append(LostCall("claude", "cut off", {"output_tokens": 9}, 0.1, (1, 1)))
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await eventually(
            lambda: states(workspace) == {1: 2, 2: 0}, "turn 1 is not quarantined, or turn 2 is not pending"
        )
        await client.ask("system", {"action": "flush"})
    assert_only(workspace, 2, 1)
    assert about(model, 1) == 0


async def test_retry_request_resets_call_count(model: OfflineModel, workspace: Path) -> None:
    await seed(workspace, 5, 2)
    poisonous = True

    def poison(body: dict[str, Any]) -> dict[str, Any] | None:
        return FAULTS["empty"] if poisonous and POISON in str(body["messages"]) else None

    model.script.curator(poison)
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await eventually(lambda: settled(workspace), "turns are still pending")
        first = about(model, 2)
        assert (await remember(client, "retry", turn_id=2))["quarantined"] == []
        await eventually(lambda: settled(workspace), "the turn is not quarantined again")
        assert states(workspace)[2] == 2
        assert about(model, 2) == first + 3
        poisonous = False
        await remember(client, "retry", turn_id=2)
        await eventually(lambda: settled(workspace), "the turn is still pending")
        # The log is written before memory.
        await client.ask("system", {"action": "flush"})
        assert_only(workspace, 5)
        assert (await remember(client, "learnings"))["learnings"][-1]["source_observation_id"] == 2
        refused = await client.ask("memory", {"op": "retry", "turn_id": 2})
        assert (refused["type"], refused["payload"]["code"]) == ("error", "not_found")
        assert refused["payload"]["message"] == "Turn 2 is not set aside."
    kinds = [row["kind"] for row in curations(workspace)]
    assert kinds.count("quarantine") == 4, "not two quarantines and two retries"
    before = dump(workspace / ".os/memory/memory.db")
    await rebuild(workspace)
    assert without_marks(dump(workspace / ".os/memory/memory.db")) == without_marks(before)


async def test_command_line_lists_and_retries_quarantined_turns(model: OfflineModel, workspace: Path) -> None:
    await seed(workspace, 3, 3)
    model.script.curator({**FAULTS["refused"], "match": POISON, "times": 8})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("system", {"action": "flush"})
        await eventually(lambda: settled(workspace), "turns are still pending")
        _, shown, _ = await command(workspace, "status")
        assert "needs attention" in shown.splitlines()[0]
        assert "turns       3, 1 set aside" in shown
        assert "set aside   turn 3, " in shown
        assert "The model declined to answer" in shown
        assert RETRY.format(3) in shown
        code, checked, _ = await command(workspace, "doctor", "--without-model")
        assert code == 1
        assert "FAIL  curation     1 turn set aside, the oldest turn 3" in checked
        assert "python -m sprite memory retry 3" in checked
        assert (await command(workspace, "memory", "retry", "3"))[:2] == (
            0,
            "Turn 3 waits again: the sprite learns from it now.\n",
        )
        await eventually(lambda: settled(workspace), "the turn is not quarantined again")
    assert_only(workspace, 3, 3)
    # Without a running sprite, the next one curates the turn.
    assert (await command(workspace, "memory", "retry", "3"))[1] == (
        "Turn 3 waits again: the sprite learns from it when it runs next.\n"
    )
    async with running_sprite(workspace, model.url):
        await eventually(lambda: settled(workspace), "the turn is still pending")
    assert_only(workspace, 3)
    code, _, err = await command(workspace, "memory", "retry", "3")
    assert (code, err) == (2, "sprite: Turn 3 is not set aside.\n")


def _generation(workspace: Path, number: int) -> list[tuple[int, int]]:
    return [
        (row["first_observation_id"], row["last_observation_id"])
        for row in curations(workspace)
        if row["kind"] == "batch" and row["generation"] == number
    ]


async def test_recuration_skips_and_adds_quarantined_turns(
    model: OfflineModel, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await seed(workspace, 6, 2)
    model.script.curator({**FAULTS["cut off"], "match": POISON, "times": 7})
    async with running_sprite(workspace, model.url):
        await eventually(lambda: settled(workspace), "turns are still pending")
    # The new model fails on another turn, which leaves memory until a person retries it.
    model.script.curator({**FAULTS["cut off"], "match": "Fern5.", "times": -1})
    before, asked = calls(model), about(model, 2)
    await rebuild(workspace, model)
    assert about(model, 2) == asked
    assert calls(model) - before <= MOST_CALLS + 4
    covered = {turn for first, last in _generation(workspace, 1) for turn in range(first, last + 1)}
    assert covered == {1, 3, 4, 6}
    assert {turn: state for turn, state in states(workspace).items() if state != 1} == {2: 2, 5: 2}
    assert not any("Fern5" in content for content in learnings(workspace))
    made = dump(workspace / ".os/memory/memory.db")
    await rebuild(workspace)
    assert without_marks(dump(workspace / ".os/memory/memory.db")) == without_marks(made)
    capsys.readouterr()


async def test_recuration_after_refusal_quarantines_turn(model: OfflineModel, workspace: Path) -> None:
    """The refusal ends the first run; the second run quarantines the turn."""
    await seed(workspace, 6)
    async with running_sprite(workspace, model.url):
        await eventually(lambda: settled(workspace), "turns are still pending")
    model.script.curator({**FAULTS["refused"], "match": "Fern5.", "times": -1})
    with pytest.raises(ModelError, match="declined"):
        await rebuild(workspace, model)
    assert set(states(workspace).values()) == {1}
    await rebuild(workspace, model)
    assert states(workspace) == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 1}
    assert sum(r.kind == "curator" and "Fern5." in r.user_text for r in model.requests) <= 1 + MOST_CALLS
