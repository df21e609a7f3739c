"""Damaged payloads get an error code for programs and a message for people, whichever layer finds the damage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.harness import Client, Message, running_sprite

#: One process for the whole file.
pytestmark = pytest.mark.asyncio(loop_scope="module")

HUGE = 2**70
FILES = "the files are soul.md, os.md, tools.md, user.md, files.md, context.md."
ONE_TARGET = "Name exactly one of text, turn, session or learning to forget."
CHANGED = "user.md has changed since you opened it: look at the newest version first."
STATUSES = "An action's status must be open, done, dismissed or failed."

MEMORY: list[tuple[Message, str, str]] = [
    ({"op": "file", "name": ""}, "not_found", f"There is no memory file ''; {FILES}"),
    ({"op": "file", "name": "secrets.md"}, "not_found", f"There is no memory file 'secrets.md'; {FILES}"),
    ({"op": "file", "name": "user.md", "version": 999}, "not_found", "user.md has no version 999."),
    ({"op": "history", "name": "nope.md"}, "not_found", f"There is no memory file 'nope.md'; {FILES}"),
    ({"op": "turn", "id": 999}, "not_found", "There is no turn 999."),
    ({"op": "turn", "id": 2**63 - 1}, "not_found", f"There is no turn {2**63 - 1}."),
    ({"op": "edit", "name": "user.md", "content": "# x\n", "version": -1}, "conflict", CHANGED),
    ({"op": "edit", "name": "user.md", "content": "# x\n", "version": HUGE}, "conflict", CHANGED),
    ({"op": "resolve_action", "id": 2, "status": "burnt"}, "bad_request", STATUSES),
    ({"op": "forget"}, "bad_request", ONE_TARGET),
    ({"op": "forget", "text": "abc", "turn": 1}, "bad_request", ONE_TARGET),
    ({"op": "forget", "text": "zz"}, "bad_request", "A text to forget needs at least 3 characters."),
]
CANVAS: list[tuple[Message, str, str]] = [
    ({"action": "create_stack", "name": " \n "}, "bad_request", "A stack needs a name."),
    ({"action": "rename_stack", "stack_id": "nope", "name": "x"}, "not_found", "There is no such stack."),
    ({"action": "restore_stack", "stack_id": "nope"}, "not_found", "There is no such stack."),
    ({"action": "archive_card", "card_id": "nope"}, "not_found", "There is no such card."),
    ({"action": "move_card", "card_id": "nope", "position": {"x": 1, "y": 2}}, "not_found", "There is no such card."),
    (
        {"action": "create_card", "title": "x", "blocks": []},
        "bad_request",
        "Write something first: a note has at least one block.",
    ),
    (
        {"action": "create_card", "title": "", "blocks": [{"type": "note", "data": {}}]},
        "bad_request",
        "Not saved: blocks[0] (note): Object missing required field `content`.",
    ),
    (
        {
            "action": "create_card",
            "title": "x",
            "blocks": [{"type": "note", "data": {"content": "x"}}],
            "stack_id": "nope",
        },
        "not_found",
        "There is no such stack.",
    ),
    (
        {"action": "update_block", "card_id": "nope", "block_id": "b", "data": {}, "seen": 1},
        "not_found",
        "There is no such card.",
    ),
]
OTHERS: list[tuple[str, Message, str, str]] = [
    ("mission", {"text": " "}, "bad_request", "The message is empty."),
    ("mission", {"text": "Hello", "stack_id": "s" * 1000}, "not_found", "There is no such stack."),
    ("interrupt", {}, "not_running", "Nothing is running that could be stopped."),
]
#: Values of a wrong type: the error names the message and the place, and quotes the parser.
MISFITS: list[tuple[str, Any, str]] = [
    ("memory", {}, "missing required field `op`."),
    ("memory", {"op": "file"}, "missing required field `name`."),
    ("memory", {"op": "turn", "id": -1}, "Expected `int` >= 0 - at `$.id`."),
    ("memory", {"op": "turn", "id": 2**63}, "at `$.id`."),
    ("memory", {"op": None}, "Expected `str` - at `$.op`."),
    ("memory", {"op": 5}, "Expected `str` - at `$.op`."),
    ("memory", {"op": "drop"}, "value 'drop' - at `$.op`."),
    ("memory", {"op": "file", "name": 5}, "got `int` - at `$.name`."),
    ("memory", {"op": "file", "name": "user.md", "version": "1"}, "got `str` - at `$.version`."),
    ("memory", {"op": "search", "query": "x", "limit": 1.5}, "got `float` - at `$.limit`."),
    ("memory", {"op": "learnings", "newest": None}, "got `null` - at `$.newest`."),
    ("memory", {"op": "turn", "id": True}, "got `bool` - at `$.id`."),
    ("memory", {"op": "forget", "learning": "1"}, "got `str` - at `$.learning`."),
    ("memory", {"op": "forget", "turn": 1, "yes": None}, "got `null` - at `$.yes`."),
    ("memory", "files", "Expected `object`, got `str`."),
    ("memory", ["files"], "Expected `object`, got `array`."),
    ("canvas_interaction", {}, "missing required field `action`."),
    ("canvas_interaction", {"action": "burn_card", "card_id": "c"}, "value 'burn_card' - at `$.action`."),
    ("canvas_interaction", {"action": "create_stack", "name": 5}, "got `int` - at `$.name`."),
    (
        "canvas_interaction",
        {"action": "move_card", "card_id": "c", "position": {"x": 1e308, "y": 2}},
        "Expected `float` <= 1000000.0 - at `$.position.x`.",
    ),
    (
        "canvas_interaction",
        {"action": "move_card", "card_id": "c", "position": {"x": 1}},
        "missing required field `y` - at `$.position`.",
    ),
    ("canvas_interaction", {"action": "move_card", "card_id": "c", "size": 5}, "got `int` - at `$.size`."),
    ("mission", {}, "missing required field `text`."),
    ("mission", {"text": None}, "got `null` - at `$.text`."),
    ("system", {"action": "halt"}, "value 'halt' - at `$.action`."),
    ("permission", {"request_id": "r", "decision": "maybe"}, "value 'maybe' - at `$.decision`."),
]
#: Optional null fields and fields of other operations are ignored.
FITTING: list[Message] = [
    {"op": "file", "name": "user.md", "version": None},
    {"op": "search", "query": "anything", "limit": None},
    {"op": "learnings", "after": None, "before": None, "limit": None},
    {"op": "learnings", "name": None, "query": None, "content": None, "id": None, "status": None, "text": None},
    {"op": "chat", "before": 0, "limit": -5},
    {"op": "turn", "id": 999, "version": None, "colour": "red"},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    workspace = tmp_path_factory.mktemp("damaged") / "workspace"
    workspace.mkdir()
    async with running_sprite(workspace, None) as sprite, sprite.client() as connected:
        await connected.until(lambda m: m["type"] == "state_sync")
        yield connected


async def answered(client: Client, kind: str, payload: Message) -> tuple[str, str]:
    answer = await client.ask(kind, payload)
    assert answer["type"] == "error", answer
    return answer["payload"]["code"], answer["payload"]["message"]


@pytest.mark.parametrize(
    ("kind", "payload", "code", "words"),
    [
        *[("memory", *case) for case in MEMORY],
        *[("canvas_interaction", *case) for case in CANVAS],
        *OTHERS,
    ],
    ids=str,
)
async def test_invalid_request_gets_code_and_message(
    kind: str, payload: Message, code: str, words: str, client: Client
) -> None:
    assert await answered(client, kind, payload) == (code, words)


@pytest.mark.parametrize(("kind", "payload", "end"), MISFITS, ids=str)
async def test_wrong_type_error_names_place(kind: str, payload: Message, end: str, client: Client) -> None:
    code, words = await answered(client, kind, payload)
    assert code == "bad_payload"
    assert words.startswith(f"The payload of '{kind}' does not fit: ")
    assert words.endswith(end)


@pytest.mark.parametrize("payload", FITTING, ids=str)
async def test_null_and_foreign_fields_are_ignored(payload: Message, client: Client) -> None:
    answer = await client.ask("memory", payload)
    assert answer["payload"].get("code", "") in {"", "not_found"}
    assert "number" not in answer["payload"].get("message", "")
