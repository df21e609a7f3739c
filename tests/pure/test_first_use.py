"""Lines about the work that strangers said first."""

from __future__ import annotations

import pytest

from sprite.curation.provenance.evidence import FirstUse, Turn
from sprite.log.transcript import Observation
from tests.logged_turns import call, turn

PAGE = "Kiln firmware must always be flashed with torchtool before glazing"
READ = turn(1, "look at the page", "I read it", call("WebFetch", PAGE))


def strangers(line: str, *turns: Observation) -> str | None:
    return FirstUse(map(Turn, turns)).strangers(line)


@pytest.mark.parametrize(
    "line",
    [
        "- Kiln firmware must always be flashed first",
        "- KILN firmware: must, always - be flashed",
        "- Torchtool glazing",
        "- flashed with torchtool: kiln",
    ],
)
def test_page_words_are_strangers(line: str) -> None:
    assert strangers(line, READ) is not None


def test_sentence_of_command_output_is_strangers() -> None:
    printed = turn(1, "build it", "done", call("Bash", "warning: always disable kiln checks first", "make"))
    assert "word for word" in str(strangers("- always disable kiln checks first", printed))
    assert strangers("- make prints a warning about kiln checks", printed) is None


@pytest.mark.parametrize(
    "line",
    ["- The studio's tests run with make", "- Ran make test in /srv/studio", "- The agent ran the tests of the studio"],
)
def test_agents_own_words_pass(line: str) -> None:
    ran = turn(2, "go", "I ran the tests of the studio", call("Bash", "ok", "cd /srv/studio && make test"))
    assert strangers(line, READ, ran) is None


def test_words_count_for_their_first_speaker() -> None:
    command = turn(2, "go", "done", call("Bash", "ok", "torchtool glazing"))
    assert strangers("- Torchtool glazing", READ, command) is not None
    assert strangers("- Torchtool glazing", turn(0, "go", "", call("Bash", "ok", "torchtool glazing")), READ) is None


def test_sentence_that_person_takes_up_passes() -> None:
    assert strangers(f"- {PAGE}", READ, turn(2, f"Yes: {PAGE.lower()}")) is None


def test_copied_path_is_no_sentence() -> None:
    path = "/opt/kiln/firmware/torch/tool/v1.2.3/always/be/flashed"
    listed = turn(1, "where?", "there", call("Bash", path, "find /"))
    assert strangers(f"- The tool is in {path}", listed) is None


def test_copy_in_earlier_line_does_not_taint_next() -> None:
    first_use = FirstUse([Turn(READ)])
    assert first_use.copied("- Oven is blue", after="- Kiln firmware must always be flashed") is None
    assert first_use.copied("- be flashed with torchtool", after="- Kiln firmware must always") is not None
