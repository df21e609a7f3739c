"""What goes on in the background, as the CLI tells of it, in whatever order."""

from __future__ import annotations

from sprite.agent.background import Background

COMMAND = {"task_id": "b1", "task_type": "local_bash", "description": "the log"}
AGENT = {"task_id": "a1", "task_type": "local_agent", "description": "the job"}


def background() -> tuple[Background, list[list[str]]]:
    """It, and what it told: the ids that went on after each change."""
    told: list[list[str]] = []
    found = Background(str)
    found.watch(lambda: told.append(sorted(work.id for work in found.works())))
    return found, told


def test_what_is_listed_goes_on_and_what_is_not_is_over() -> None:
    found, told = background()
    found.changed([COMMAND, AGENT], "t1")
    found.changed([COMMAND, AGENT], "t1")
    found.changed([], "t1")
    assert told == [["a1", "b1"], []]


def test_a_command_whose_end_was_told_is_over_also_where_a_late_list_still_has_it() -> None:
    found, told = background()
    found.changed([COMMAND], "t1")
    found.ended("b1", "running")
    found.ended("b1", "killed")
    found.changed([COMMAND], None)
    found.changed([], None)
    assert told == [["b1"], []]


def test_an_agent_that_waits_for_work_of_its_own_comes_back_as_old_as_it_was() -> None:
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
