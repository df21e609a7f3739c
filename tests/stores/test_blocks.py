"""Cards drawn by the agent: accepted blocks, one line per mistake, and the stored and sent results."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.agent.tools.blocks import BLOCKS, MAX_BLOCKS, MAX_CARD_BYTES, BlockError, read_blocks
from sprite.agent.tools.canvas import MAX_TITLE_CHARS
from sprite.protocol.frames import encode
from sprite.protocol.messages import MAX_FRAME_BYTES, CanvasUpdate
from sprite.protocol.shapes import FARTHEST, LARGEST, Point, Size
from sprite.workspace.database import open_workspace
from tests.canvas_stage import Canvas

#: Every type of the wire contract with all its fields.
FULL: dict[str, dict[str, Any]] = {
    "heading": {"text": "Sales", "level": 1},
    "stat": {"label": "Revenue", "value": 12.5, "description": "up"},
    "key-value": {"pairs": [{"key": "city", "value": "Lund"}, {"key": "n", "value": None}]},
    "table": {"columns": ["a", "b"], "rows": [[1, "x"], [None, True]]},
    "badge": {"text": "late", "variant": "destructive"},
    "progress": {"value": 99.5, "label": "done"},
    "text": {"content": "**bold**"},
    "separator": {},
    "document": {"path": "documents/a.pdf", "title": "A", "excerpt": "…"},
    "note": {"content": "remember"},
}
SMALLEST: dict[str, dict[str, Any]] = {
    "heading": {"text": "Sales"},
    "stat": {"label": "n", "value": "many"},
    "badge": {"text": "ok"},
    "progress": {"value": 0},
    "document": {"path": "a"},
    "table": {"columns": ["a"], "rows": []},
}


@pytest.fixture
async def canvas(tmp_path: Path) -> AsyncIterator[Canvas]:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        yield Canvas(workspace)


# Blocks


def test_examples_cover_every_block_type() -> None:
    assert set(FULL) == set(BLOCKS)


@pytest.mark.parametrize(("kind", "data"), [*FULL.items(), *SMALLEST.items()])
def test_block_of_each_type_is_accepted(kind: str, data: dict[str, Any]) -> None:
    (block,) = read_blocks([{"type": kind, "data": data, "id": "b1"}])
    assert (block.id, block.type) == ("b1", kind)
    assert {key: block.data[key] for key in data} == data


@pytest.mark.parametrize(("kind", "data"), FULL.items())
def test_fields_beside_type_count_as_data(kind: str, data: dict[str, Any]) -> None:
    (block,) = read_blocks([{"type": kind, **data}])
    assert {key: block.data[key] for key in data} == data


@pytest.mark.parametrize("wrap", [json.dumps, lambda blocks: [{**b, "data": json.dumps(b["data"])} for b in blocks]])
def test_json_in_string_is_parsed(wrap: Any) -> None:
    blocks = [{"type": "stat", "data": {"label": "n", "value": 5}}]
    (block,) = read_blocks(wrap(blocks))
    assert block.data == {"label": "n", "value": 5}


def test_rows_by_column_name_are_accepted() -> None:
    rows = [{"b": 2, "a": 1}, {"a": 3}, [4, 5]]
    (block,) = read_blocks([{"type": "table", "data": {"columns": ["a", "b"], "rows": rows}}])
    assert block.data["rows"] == [[1, 2], [3, None], [4, 5]]


def test_blocks_without_id_get_unique_ids() -> None:
    blocks = read_blocks([{"type": "separator"}, {"type": "separator"}])
    assert len({block.id for block in blocks}) == 2


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (None, "must be a list"),
        ({"type": "text"}, "must be a list"),
        ("not json", "must be a JSON list"),
        ("{}", "must be a list"),
        (["text"], "blocks[0]"),
        ([{}], "blocks[0]: Object missing required field `type`"),
        ([{"type": "separator"}, {"type": "chart"}], "blocks[1]: unknown type 'chart'; there are heading, stat"),
        ([{"type": "heading", "data": {}}], "blocks[0] (heading): Object missing required field `text`"),
        ([{"type": "heading", "data": {"text": "x", "level": 7}}], "(heading): Expected `int` <= 4 - at `$.level`"),
        ([{"type": "progress", "data": {"value": 101}}], "<= 100"),
        ([{"type": "progress", "data": {"value": "half"}}], "(progress): Expected `float`, got `str`"),
        ([{"type": "badge", "data": {"text": "x", "variant": "red"}}], "(badge): Invalid enum value 'red'"),
        ([{"type": "stat", "data": {"label": "x"}}], "`value`"),
        ([{"type": "key-value", "data": {"pairs": {"a": 1}}}], "(key-value): Expected `array`"),
        ([{"type": "table", "data": {"columns": [], "rows": []}}], "(table): Expected `array` of length >= 1"),
        ([{"type": "table", "data": {"columns": ["a"], "rows": [[1, 2]]}}], "a row has 2 cells, there are 1 columns"),
        ([{"type": "table", "data": {"columns": ["a"], "rows": [{"z": 1}]}}], "unknown column 'z'"),
        ([{"type": "table", "data": {"columns": ["a"], "rows": [[[1]]]}}], "(table)"),
        ([{"type": "stat", "data": "not json"}], "data must be an object"),
        ([{"type": "note", "data": [1]}], "(note): Expected `object`, got `array`"),
        ([{"type": "separator", "id": "a"}, {"type": "separator", "id": "a"}], "two blocks have the same id"),
        ([{"type": "separator", "id": 5}], "blocks[0]"),
        ([{"type": "separator"}] * (MAX_BLOCKS + 1), f"{MAX_BLOCKS} blocks at most"),
        ([{"type": "x" * 10_000}], "unknown type"),
        ('[{"type": "stat", "label": "x", "value": NaN}]', "(stat): a number is between"),
        ('[{"type": "stat", "label": "x", "value": 1e999}]', "write others as text"),
        ([{"type": "stat", "label": "x", "value": 2**53}], "(stat): a number is between"),
        ([{"type": "stat", "label": "x", "value": -(10**4000)}], "(stat): a number is between"),
        ([{"type": "progress", "value": float("nan")}], "(progress): "),
        ([{"type": "key-value", "pairs": [{"key": "x", "value": 1e308}]}], "(key-value): a number is between"),
        ([{"type": "table", "columns": ["a"], "rows": [[float("-inf")]]}], "(table): a number is between"),
        ([{"type": "table", "columns": ["a"], "rows": [{"a": 1e16}]}], "(table): a number is between"),
        ("[" * 100_000, "blocks must be"),
    ],
)
def test_mistake_is_reported_in_one_line(blocks: Any, words: str) -> None:
    with pytest.raises(BlockError) as refused:
        read_blocks(blocks)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([*BLOCKS, "chart"]), JSON, st.sampled_from(["data", "rows", "text", "value", "id", "pairs"]))
def test_arbitrary_block_is_sendable_or_worded_mistake(kind: str, value: Any, name: str) -> None:
    with contextlib.suppress(BlockError):
        blocks = read_blocks([{"type": kind, **FULL.get(kind, {}), name: value}])
        encode(CanvasUpdate("create_card", "c", "s", "t", "notes", blocks)).decode()


# Drawing


async def test_card_is_stored_sent_and_ids_returned(canvas: Canvas) -> None:
    told = await canvas.use("create_card", title="  Sales \n 2026 ", card_type="table", blocks=[{"type": "separator"}])
    card = await canvas.card(told["card_id"])
    assert (card.title, card.card_type, card.archived) == ("Sales 2026", "table", False)
    assert told["blocks"] == [{"id": card.blocks[0].id, "type": "separator"}]
    (update,) = canvas.sent
    assert (update.command, update.card_id, update.blocks) == ("create_card", card.card_id, card.blocks)


async def test_invalid_stack_name_matches_no_stack(canvas: Canvas) -> None:
    told = await canvas.use("create_card", title="x", card_type="notes", blocks=[], stack_id="half \ud83d")
    assert (await canvas.card(told["card_id"])).stack_id == (await canvas.workspace.stacks())[0].stack_id


async def test_first_card_creates_stack_later_cards_share_it(canvas: Canvas) -> None:
    for _ in range(3):
        await canvas.use("create_card", title="x", card_type="notes", blocks=[])
    (stack,) = await canvas.workspace.stacks()
    assert stack.name == "Canvas"
    assert {card.stack_id for card in await canvas.workspace.cards()} == {stack.stack_id}


async def test_card_goes_to_requested_or_viewed_open_stack(canvas: Canvas) -> None:
    looked_at, other, newest = [await canvas.workspace.create_stack(name) for name in ("a", "b", "c")]
    canvas.stack = looked_at

    async def drawn_on(**more: Any) -> str:
        told = await canvas.use("create_card", title="x", card_type="notes", blocks=[], **more)
        return (await canvas.card(told["card_id"])).stack_id

    assert await drawn_on() == looked_at
    assert await drawn_on(stack_id=other) == other
    assert await drawn_on(stack_id="nowhere") == newest
    await canvas.workspace.change_stack(looked_at, archived=True)
    assert await drawn_on() == newest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"card_type": "notes", "blocks": []}, "title must not be empty"),
        ({"title": " \n", "card_type": "notes", "blocks": []}, "title must not be empty"),
        ({"title": "x", "card_type": "chart", "blocks": []}, "card_type must be one of table, document, notes"),
        ({"title": "x", "card_type": ["notes"], "blocks": []}, "card_type must be one of"),
        ({"title": "x", "card_type": "notes"}, "blocks must be a list"),
        ({"title": "x", "card_type": "notes", "blocks": [], "stack_id": {"id": 1}}, "stack_id must be a stack's id"),
        ({"title": "x", "card_type": "notes", "blocks": [], "stack_id": 10**400}, "stack_id must be a stack's id"),
        ({"title": "x", "card_type": "notes", "blocks": [{"type": "chart"}]}, "unknown type 'chart'"),
        (
            {"title": "x", "card_type": "notes", "blocks": [{"type": "text", "data": {"content": "é" * 300_000}}]},
            f"{MAX_CARD_BYTES:,} are allowed: write the data to a file",
        ),
    ],
)
async def test_card_with_mistake_is_not_drawn(arguments: dict[str, Any], words: str, canvas: Canvas) -> None:
    assert words in await canvas.refused("create_card", **arguments)
    assert canvas.sent == []


async def test_largest_card_fits_frame(canvas: Canvas) -> None:
    blocks = [{"id": "b", "type": "text", "data": {"content": "x" * (MAX_CARD_BYTES - 100)}}]
    await canvas.use("create_card", title="x" * 10_000, card_type="notes", blocks=blocks)
    assert len(encode(canvas.sent[0], seq=10**9)) < MAX_FRAME_BYTES
    assert len(canvas.sent[0].title) == MAX_TITLE_CHARS


async def test_lone_surrogate_in_card_becomes_question_mark(canvas: Canvas) -> None:
    blocks = [{"id": "i\ud83d", "type": "text", "data": {"content": "a\ud83d"}}]
    told = await canvas.use("create_card", title="t\ud83d", card_type="notes", blocks=blocks)
    card = await canvas.card(told["card_id"])
    assert (card.title, card.blocks[0].id, card.blocks[0].data) == ("t?", "i?", {"content": "a?"})


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, (None, None)),
        ({"position": None, "size": None}, (None, None)),
        ({"position": {"x": 40, "y": -8.5}}, (Point(40, -8.5), None)),
        ({"size": '{"width": 300, "height": 200}'}, (None, Size(300, 200))),
        (
            {"position": {"x": FARTHEST, "y": -FARTHEST}, "size": {"width": LARGEST, "height": 1}},
            (Point(FARTHEST, -FARTHEST), Size(LARGEST, 1)),
        ),
    ],
)
async def test_card_takes_given_or_free_position(
    given: dict[str, Any], kept: tuple[Point | None, Size | None], canvas: Canvas
) -> None:
    told = await canvas.use("create_card", title="x", card_type="notes", blocks=[], **given)
    card = await canvas.card(told["card_id"])
    assert (card.position, card.size) == kept
    assert (canvas.sent[0].position, canvas.sent[0].size) == kept


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"position": {"x": FARTHEST + 1, "y": 0}}, "position must be {x, y}, in pixels: Expected `float` "),
        ({"position": {"x": float("nan"), "y": 0}}, "position must be {x, y}, in pixels: Expected `float` "),
        (
            {"size": {"width": 0, "height": 10}},
            "in pixels: Expected `float` >= 1.0 - at `$.width`",
        ),
        (
            {"size": {"width": 10, "height": float("inf")}},
            "in pixels: Expected `float` <= 100000.0 - at `$.height`",
        ),
        ({"position": {"x": 1}}, "position must be {x, y}, in pixels: Object missing required field `y`"),
        ({"position": [1, 2]}, "position must be {x, y}, in pixels: "),
        ({"position": "top left"}, "position must be {x, y}: "),
        ({"size": {"width": "wide", "height": 1}}, "size must be {width, height}, in pixels: "),
        ({"size": {"width": True, "height": 1}}, "size must be {width, height}, in pixels: "),
    ],
)
async def test_invalid_position_or_size_is_reported(given: dict[str, Any], words: str, canvas: Canvas) -> None:
    assert words in await canvas.refused("create_card", title="x", card_type="notes", blocks=[], **given)


# Changing


@pytest.fixture
async def drawn(canvas: Canvas) -> str:
    blocks = [
        {"id": "a", "type": "heading", "data": {"text": "A"}},
        {"id": "b", "type": "text", "data": {"content": "B"}},
        {"id": "c", "type": "separator"},
    ]
    told = await canvas.use("create_card", title="Title", card_type="notes", blocks=blocks)
    canvas.sent.clear()
    return str(told["card_id"])


async def test_block_is_replaced_in_place_or_appended(canvas: Canvas, drawn: str) -> None:
    blocks = [
        {"id": "new", "type": "note", "data": {"content": "N"}},
        {"id": "b", "type": "stat", "label": "l", "value": 1},
    ]
    told = await canvas.use("update_card", card_id=drawn, blocks=blocks)
    assert [(b["id"], b["type"]) for b in told["blocks"]] == [
        ("a", "heading"),
        ("b", "stat"),
        ("c", "separator"),
        ("new", "note"),
    ]
    card = await canvas.card(drawn)
    assert card.title == "Title"
    assert [block.data for block in card.blocks][1] == {"label": "l", "value": 1}
    (update,) = canvas.sent
    assert (update.command, update.blocks) == ("update_card", card.blocks)


async def test_blocks_are_removed_and_title_changed_alone(canvas: Canvas, drawn: str) -> None:
    await canvas.use("update_card", card_id=drawn, remove_blocks=["a", "c"])
    await canvas.use("update_card", card_id=drawn, title="New")
    card = await canvas.card(drawn)
    assert (card.title, [block.id for block in card.blocks]) == ("New", ["b"])


async def test_id_list_in_string_is_parsed(canvas: Canvas, drawn: str) -> None:
    await canvas.use("update_card", card_id=drawn, remove_blocks='["a"]')
    assert [block.id for block in (await canvas.card(drawn)).blocks] == ["b", "c"]


async def test_persons_card_position_survives_agent_changes(canvas: Canvas, drawn: str) -> None:
    await canvas.workspace.move_card(drawn, Point(5, 6), Size(7, 8))
    await canvas.use("update_card", card_id=drawn, title="New")
    card = await canvas.card(drawn)
    assert (card.position, card.size) == (Point(5, 6), Size(7, 8))
    assert (canvas.sent[-1].position, canvas.sent[-1].size) == (Point(5, 6), Size(7, 8))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"title": " "}, "title must not be empty"),
        ({"blocks": [{"type": "chart"}]}, "unknown type"),
        ({"remove_blocks": ["z"]}, "the card has no block 'z'; it has a, b, c"),
        ({"remove_blocks": "z"}, "remove_blocks must be a list"),
        ({"remove_blocks": [{"id": "a"}]}, "the card has no block"),
        ({"blocks": [{"type": "text", "data": {"content": "x" * 600_000}}]}, "are allowed"),
        ({"blocks": [{"type": "separator"}] * MAX_BLOCKS}, f"{MAX_BLOCKS} blocks at most"),
    ],
)
async def test_change_with_mistake_changes_nothing(
    arguments: dict[str, Any], words: str, canvas: Canvas, drawn: str
) -> None:
    assert words in await canvas.refused("update_card", card_id=drawn, **arguments)
    assert canvas.sent == []


async def test_concurrent_changes_do_not_overwrite_each_other(canvas: Canvas, drawn: str) -> None:
    await asyncio.gather(
        *(canvas.use("update_card", card_id=drawn, blocks=[{"id": f"n{i}", "type": "separator"}]) for i in range(8))
    )
    assert {block.id for block in (await canvas.card(drawn)).blocks} == {"a", "b", "c", *(f"n{i}" for i in range(8))}


async def test_closed_card_is_archived_and_immutable(canvas: Canvas, drawn: str) -> None:
    assert await canvas.use("close_card", card_id=drawn) == {"card_id": drawn, "closed": True}
    assert (await canvas.card(drawn)).archived
    assert canvas.sent[-1].command == "close_card"
    assert "there is no open card" in await canvas.refused("update_card", card_id=drawn, title="x")
    assert "there is no open card" in await canvas.refused("close_card", card_id=drawn)


async def test_unknown_card_error_lists_existing_cards(canvas: Canvas, drawn: str) -> None:
    assert f"open cards: {drawn} (Title)" in await canvas.refused("close_card", card_id="nope")
    assert "there is no open card" in await canvas.refused("update_card")
    for card_id in ("half \ud83d", {"id": 1}, 10**400):
        assert "there is no open card" in await canvas.refused("close_card", card_id=card_id)
    await canvas.use("close_card", card_id=drawn)
    assert "open cards: none" in await canvas.refused("close_card", card_id="nope")


# Versions and the person's text


async def versions(canvas: Canvas, card_id: str) -> dict[str, tuple[int, str]]:
    return {block.id: (block.version, block.by) for block in (await canvas.card(card_id)).blocks}


async def test_changed_block_gets_next_version_others_keep_theirs(canvas: Canvas, drawn: str) -> None:
    b = {"id": "b", "type": "text", "data": {"content": "B2"}}
    await canvas.use("update_card", card_id=drawn, blocks=[b, {"id": "n", "type": "separator"}])
    assert await versions(canvas, drawn) == {"a": (1, "agent"), "b": (2, "agent"), "c": (1, "agent"), "n": (1, "agent")}
    assert [block.version for block in canvas.sent[-1].blocks] == [1, 2, 1, 1]
    await canvas.use("update_card", card_id=drawn, blocks=[b, {"id": "n", "type": "note", "data": {"content": "N"}}])
    assert await versions(canvas, drawn) == {"a": (1, "agent"), "b": (2, "agent"), "c": (1, "agent"), "n": (2, "agent")}


async def test_persons_unseen_text_is_protected_and_shown(canvas: Canvas, drawn: str) -> None:
    """The agent can neither replace nor remove it, and the refusal contains the text."""
    await canvas.person_writes(drawn, "b", {"content": "pears, please"})
    new = [{"id": "b", "type": "text", "data": {"content": "apples"}}, {"id": "n", "type": "separator"}]
    said = await canvas.refused("update_card", card_id=drawn, title="New", blocks=new)
    assert 'b (text, version 2, by the person): {"content": "pears, please"}' in said
    assert canvas.sent == []
    # After the refusal showed the text, the change is allowed.
    await canvas.use("update_card", card_id=drawn, blocks=new)
    assert (await versions(canvas, drawn))["b"] == (3, "agent")

    await canvas.person_writes(drawn, "c", {})
    assert "c (separator, version 2, by the person)" in await canvas.refused(
        "update_card", card_id=drawn, remove_blocks=["c"]
    )
    await canvas.use("update_card", card_id=drawn, remove_blocks=["c"])
    assert "c" not in await versions(canvas, drawn)


async def test_each_change_by_person_must_be_seen(canvas: Canvas, drawn: str) -> None:
    for number in range(3):
        await canvas.person_writes(drawn, "b", {"content": f"version {number}"})
        new = [{"id": "b", "type": "text", "data": {"content": f"agent's {number}"}}]
        assert f"version {number}" in await canvas.refused("update_card", card_id=drawn, blocks=new)
        await canvas.use("update_card", card_id=drawn, blocks=new)


async def test_blocks_untouched_by_person_can_be_changed(canvas: Canvas, drawn: str) -> None:
    await canvas.person_writes(drawn, "b", {"content": "mine"})
    new = [{"id": "a", "type": "heading", "data": {"text": "A2"}}, {"id": "b", "type": "text", "content": "mine"}]
    await canvas.use("update_card", card_id=drawn, blocks=new)
    assert await versions(canvas, drawn) == {"a": (2, "agent"), "b": (2, "person"), "c": (1, "agent")}


async def test_persons_long_block_must_be_read_before_replacement(canvas: Canvas, drawn: str) -> None:
    await canvas.person_writes(drawn, "b", {"content": "long " * 4_000})
    new = [{"id": "b", "type": "text", "data": {"content": "short"}}]
    for _ in range(2):
        said = await canvas.refused("update_card", card_id=drawn, blocks=new)
        assert "b (text, long: read_canvas shows it)" in said
        assert len(said) < 500
    page = 1
    while f"page {page + 1} goes on" in await canvas.read(card_id=drawn, page=page):
        await canvas.refused("update_card", card_id=drawn, blocks=new)
        page += 1
    await canvas.use("update_card", card_id=drawn, blocks=new)


async def test_closing_card_reports_persons_unseen_text(canvas: Canvas, drawn: str) -> None:
    await canvas.person_writes(drawn, "b", {"content": "not yet"})
    told = await canvas.use("close_card", card_id=drawn)
    assert told["note"] == "the person had written in b since you saw it; read_canvas shows it"
    card = await canvas.card(drawn)
    assert card.archived
    assert card.blocks[1].data == {"content": "not yet"}


async def test_model_cannot_forge_version_or_author(canvas: Canvas, drawn: str) -> None:
    forged = {"id": "b", "type": "text", "data": {"content": "B2"}, "version": 99, "by": "person"}
    await canvas.use("update_card", card_id=drawn, blocks=[forged])
    assert (await versions(canvas, drawn))["b"] == (2, "agent")


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "table", "data": {"columns": ["a"] * 150, "rows": [{}] * 20_000}}],
        [{"type": "table", "data": {"columns": ["a"] * 100_000, "rows": [{}] * 100_000}}],
        [{"type": "table", "data": {"columns": ["a"] * 200, "rows": [{}] * 100}}] * 200,
        [{"type": "key-value", "data": {"pairs": [{"key": "", "value": None}] * 40_001}}],
    ],
    ids=["rows", "columns", "blocks", "pairs"],
)
def test_blocks_with_many_cells_are_refused(blocks: list[dict[str, Any]]) -> None:
    with pytest.raises(BlockError, match=r"cells|length"):
        read_blocks(blocks)
