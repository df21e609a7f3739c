"""Subagent activity is recorded in the turn that waits for it, or in the turn that reports it."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from tests.recording import Recording, crash_and_recover, ids


async def test_background_agent_activity_belongs_to_reporting_turn(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Start it")
    await rec.recorder.prompt_submitted("p", "Start it")
    await rec.recorder.close_mission("complete")
    await rec.tool("p", "late-1", agent_id="agent-7")
    await rec.tool("p", "late-2", agent_id="agent-7")
    assert len(await rec.turns()) == 1, "nothing is written before its turn ends"
    await rec.recorder.prompt_submitted("p-2", "<task-notification>")
    await rec.recorder.text("It is done.")
    await rec.recorder.close_task("complete")
    _, task = await rec.turns()
    assert (task.trigger, ids(task)) == ("task", ["late-1", "late-2"])
    assert {call["agent_id"] for call in task.tool_calls} == {"agent-7"}


def launch(rec: Recording, prompt_id: str, agent_id: str, **more: Any) -> Awaitable[None]:
    """Run the hook of a call that starts a background agent and returns at once."""
    return rec.tool(prompt_id, f"start-{agent_id}", {"isAsync": True, "agentId": agent_id}, **more)


def notification(agent_id: str) -> str:
    return f"<task-notification>\n<task-id>{agent_id}</task-id>\n<status>completed</status>"


async def test_background_calls_wait_for_own_report(rec: Recording) -> None:
    """They wait whatever turn their hooks name."""
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


async def test_foreground_agent_belongs_to_waiting_turn(rec: Recording) -> None:
    """So do the agents that it starts."""
    rec.recorder.open_mission("m-1", "Delegate")
    await rec.recorder.prompt_submitted("p", "Delegate")
    await rec.recorder.tool_started("start-front", "Agent", {})
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


async def test_unreported_background_work_is_written_at_session_end(rec: Recording) -> None:
    await rec.tool("p-gone", "late")
    await rec.recorder.close_session()
    turn = await rec.turn()
    assert (turn.trigger, turn.user_message, ids(turn)) == ("task", "", ["late"])
    await rec.recorder.close_session()
    assert len(await rec.turns()) == 1


async def test_agents_killed_with_process_belong_to_their_turn(tmp_path: Path) -> None:
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
        await rec.recorder.tool_started("start-front", "Agent", {})
        rec.recorder.agent_started("front", "start-front")
        await rec.recorder.text("I wait.")
        await rec.tool("p-3", "front-1", agent_id="front")

    turns = {turn.user_message or turn.notice: turn for turn in await crash_and_recover(tmp_path, before=before)}
    assert {words: (turn.outcome, ids(turn)) for words, turn in turns.items()} == {
        "Delegate": ("complete", ["start-reported", "start-unheard"]),
        notification("reported"): ("crashed", ["reported-1"]),
        "": ("crashed", ["unheard-1"]),
        "Now in front": ("crashed", ["front-1"]),
    }
    assert turns["Now in front"].agent_response == "I wait."
