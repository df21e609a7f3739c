"""Background tasks as the CLI reports them, in any order."""

from __future__ import annotations

from sprite.agent.background import Background

COMMAND = {"task_id": "b1", "task_type": "local_bash", "description": "the log"}
AGENT = {"task_id": "a1", "task_type": "local_agent", "description": "the job"}


def background() -> tuple[Background, list[list[str]]]:
    """Return the tracker, and the running ids after each change."""
    told: list[list[str]] = []
    found = Background(str)
    found.on_change = lambda: told.append(sorted(work.id for work in found.works()))
    return found, told


def test_unlisted_tasks_count_as_ended() -> None:
    found, told = background()
    found.changed([COMMAND, AGENT], "t1")
    found.changed([COMMAND, AGENT], "t1")
    found.changed([], "t1")
    assert told == [["a1", "b1"], []]


def test_ended_command_ignores_late_list() -> None:
    found, told = background()
    found.changed([COMMAND], "t1")
    found.ended("b1", "running")
    found.ended("b1", "killed")
    found.changed([COMMAND], None)
    found.changed([], None)
    assert told == [["b1"], []]


def test_relisted_agent_is_same_task() -> None:
    """An agent that waits for its own subtask is listed again later."""
    found, told = background()
    found.changed([AGENT], "t1")
    (before,) = found.works()
    found.ended("a1", "completed")
    found.changed([COMMAND], None)
    found.changed([COMMAND, AGENT], None)
    assert told == [["a1"], ["b1"], ["a1", "b1"]]
    assert before in found.works()
    assert [work.id for work in found.clear()] == ["a1", "b1"]
    assert told[-1] == []
