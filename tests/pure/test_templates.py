"""The six files of a new workspace."""

import re
from importlib.resources import files

import pytest

from sprite.agent.tools.canvas import BLOCKS_SCHEMA
from sprite.curation.answer import parse_response
from sprite.curation.prompt import build_prompt
from sprite.memory.files import CURATED

LIMITS = {"soul.md": 200, "os.md": 200, "tools.md": 150, "files.md": 200, "user.md": 200, "context.md": 200}
# The contract of the wire protocol, "Blocks": each type's fields.
BLOCKS = {
    "heading": {"text", "level"},
    "stat": {"label", "value", "description"},
    "key-value": {"pairs", "key", "value"},
    "table": {"columns", "rows"},
    "badge": {"text", "variant"},
    "progress": {"value", "label"},
    "text": {"content"},
    "separator": set(),
    "document": {"path", "title", "excerpt"},
    "note": {"content"},
}


def template(name: str) -> str:
    return files("sprite.memory").joinpath("templates", name).read_text("utf-8")


@pytest.mark.parametrize("name", LIMITS)
def test_template_is_clean_text_far_below_limit(name: str) -> None:
    text = template(name)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert text == text.expandtabs()
    assert text.count("\n") < LIMITS[name] / 2


def test_soul_and_os_are_short_for_every_start() -> None:
    assert template("soul.md").count("\n") + template("os.md").count("\n") <= 80


def test_canvas_tools_list_every_block_and_field() -> None:
    told = BLOCKS_SCHEMA["description"].partition("data by type: ")[2]
    rows = re.findall(r"([a-z-]+) \{(.*?)\}(?=, [a-z-]+ \{|$)", told)
    assert [kind for kind, _ in rows] == list(BLOCKS)
    assert all(BLOCKS[kind] <= set(re.findall(r"\w+", data)) for kind, data in rows)


@pytest.mark.parametrize(
    "word",
    (
        "`create_card` `update_card` `close_card` `read_canvas` `search_memory` `schedule` `list_actions` "
        "`complete_action` documents/ ocr/ extractions/ artifacts/ skills/ .os/"
    ).split(),
)
def test_system_rules_list_agents_tools(word: str) -> None:
    assert word in template("os.md")


@pytest.mark.parametrize("name", CURATED)
def test_new_curated_file_explains_itself_without_claims(name: str) -> None:
    title, explanation, *rest = template(name).splitlines()
    assert title == f"# {name.removesuffix('.md').title()}"
    assert re.fullmatch(r"\*.+\.\*", explanation)
    assert all(not line or line.startswith("## ") for line in rest)


@pytest.mark.parametrize("name", CURATED)
def test_template_round_trips_through_prompt_and_answer(name: str) -> None:
    text = template(name)
    prompt = build_prompt(files={name: text}, open_learnings=(), turns=())
    assert all(f"| {line}\n" in prompt.user for line in text.splitlines())
    assert parse_response(f"{name.removesuffix('.md').upper()}_MD_UPDATE:\n{text}").files == {name: text}
