"""A person's word on unverified learnings: confirm and retire, also after a rebuild, a forget and a re-extraction."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sprite.config import Settings
from sprite.errors import PeerError
from sprite.forget.plan import Target
from sprite.imports.observed_turns import checked_source
from sprite.mcp.shapes import hits_text
from sprite.protocol.shapes import RETIRED
from sprite.workspace.database import open_workspace
from tests.looks import dump
from tests.memory_stores import Stores, added, find, forgetter_of, object_to, open_stores, rebuilt

TEA = "I prefer tea in the morning"
TAUGHT = f'PREFERENCE [t] Prefers tea. | "{TEA}"'


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        await opened.projection.settle()
        yield opened


def unsure(line: str) -> str:
    return "yes" if line.startswith("keep") else "unsure"


async def known(stores: Stores) -> list[tuple[str, str, float, str | None, int | None]]:
    return [(row.type, row.origin, row.confidence, row.proposed, row.superseded_by) for row in await stores.learnings()]


@pytest.mark.parametrize(
    ("kind", "proposed"),
    [("PREFERENCE", "PREFERENCE"), ("CORRECTION", "CORRECTION"), ("FACT", "FACT"), ("ACTION", "FACT")],
)
async def test_confirmed_learning_becomes_persons_own(kind: str, proposed: str, stores: Stores) -> None:
    await stores.learn(TAUGHT.replace("PREFERENCE", kind), TEA, verify=unsure, project="/home/ada/web")
    assert await known(stores) == [("FACT", "none", 0.1, proposed, None)]
    await stores.projection.answer(1, "confirm")
    assert await known(stores) == [(proposed, "user", 0.9, None, None)]
    (learning,) = await stores.learnings()
    assert (learning.project is None) == (kind == "PREFERENCE")
    assert await stores.memory.actions() == []
    # The index has the new type, and only that.
    (row,) = await stores.memory._db.fetch_all(
        f"SELECT rowid FROM learnings_fts WHERE learnings_fts MATCH 'type : {proposed}'"
    )
    assert row[0] == 1
    await stores.memory._db.execute("INSERT INTO learnings_fts (learnings_fts, rank) VALUES ('integrity-check', 1)")


@pytest.mark.parametrize("turn", [{"source": "codex"}, {"trigger": "program", "asked_by": "planner"}])
async def test_claim_of_program_waits_for_person(turn: dict[str, Any], stores: Stores) -> None:
    await stores.learn(TAUGHT + "\n" + added("user.md", TEA), TEA, **turn)
    origin = turn.get("source", "program")
    assert await known(stores) == [("FACT", origin, 0.6, "PREFERENCE", None)]
    assert TEA not in stores.files.read("user.md")
    (hit, *_) = (await find(stores, "tea")).hits
    assert hit.unverified
    assert "(unverified)" in hits_text([hit], [], 1, 0)
    await stores.projection.answer(1, "confirm")
    # Now it carries a line, although no message of the person's says it.
    await stores.learn("USER_MD_EDIT:\nADD Notes | [L1] - Prefers tea", "Hello")
    assert "- Prefers tea" in stores.files.read("user.md")
    assert not (await find(stores, "prefers tea")).hits[0].unverified


async def test_retired_learning_no_longer_holds_nor_returns(stores: Stores) -> None:
    await stores.learn(TAUGHT, TEA, source="codex")
    await stores.projection.answer(1, "retire")
    assert await known(stores) == [("FACT", "codex", 0.6, "PREFERENCE", RETIRED)]
    await stores.learn(TAUGHT, TEA, source="codex")
    assert len(await stores.learnings()) == 1
    assert (await stores.reports())[-1] == ("retired", "the user said that it is not right: Prefers tea.")
    await stores.learn(TAUGHT, TEA)
    assert [(row.origin, row.superseded_by) for row in await stores.learnings()] == [("codex", RETIRED), ("user", None)]
    assert "(no longer true)" in hits_text((await find(stores, "prefers")).hits, [], 1, 0)


@pytest.mark.parametrize("op", ["confirm", "retire"])
async def test_answer_survives_rebuild(op: str, tmp_path: Path, stores: Stores) -> None:
    await stores.learn(TAUGHT, TEA, verify=unsure)
    await stores.projection.answer(1, "confirm" if op == "confirm" else "retire")
    before = dump(tmp_path / "memory.db")
    assert await rebuilt(tmp_path, without_files=True) == before
    (row,) = [row for row in await stores.transcript.curations.after(0) if row.kind == "learning"]
    assert json.loads(row.response) == {"learning": 1, "op": op, "of": {"content": "Prefers tea.", "turn": 1}}


@pytest.mark.parametrize(
    ("again", "now"),
    [
        ("Likes tea, prefers tea.", ("PREFERENCE", "user", 0.9, None, None)),
        ("Drives a green car.", ("FACT", "codex", 0.6, "PREFERENCE", None)),
    ],
)
async def test_answer_follows_learning_into_re_extraction(
    again: str, now: tuple[str, str, float, None, None], stores: Stores
) -> None:
    turn = await stores.learn(TAUGHT, TEA, source="codex")
    await stores.projection.answer(1, "confirm")
    # Other numbers: the re-extraction learns something else first.
    answer = f'FACT [t{turn}] It is morning. | "in the morning"\nPREFERENCE [t{turn}] {again} | "{TEA}"'
    await stores.extract_again(1, (answer, turn, turn))
    await stores.projection.settle()
    assert (await known(stores))[1] == now
    missing = [detail for kind, detail in await stores.reports() if kind == "learning_missing"]
    assert missing == ([] if "tea" in again else ["there is no such learning any more: Prefers tea."])
    assert await rebuilt(stores.folder, without_files=False) == dump(stores.folder / "memory.db")


async def test_retired_learning_stays_retired_after_re_extraction(stores: Stores) -> None:
    turn = await stores.learn(TAUGHT, TEA, source="codex")
    await stores.projection.answer(1, "retire")
    answer = f'FACT [t{turn}] It is morning. | "in the morning"\nPREFERENCE [t{turn}] Prefers tea. | "{TEA}"'
    await stores.extract_again(1, (answer, turn, turn))
    await stores.projection.settle()
    assert [row.superseded_by for row in await stores.learnings()] == [None, RETIRED]


async def test_forgotten_learning_leaves_answer(tmp_path: Path, stores: Stores) -> None:
    await stores.learn(TAUGHT, TEA, verify=unsure)
    await stores.learn('FACT [t] Drives a green car. | "green car"', "I drive a green car", verify=unsure)
    await stores.projection.answer(1, "confirm")
    await stores.projection.answer(2, "confirm")
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        settings = Settings(tmp_path)
        settings.run.mkdir(parents=True)
        forgetter = forgetter_of(settings, stores, workspace)
        await forgetter.forget(Target(learning=1), sure=True)
    await stores.projection.settle()
    assert [(row.content, row.origin) for row in await stores.learnings()] == [("Drives a green car.", "user")]
    assert all("tea" not in f"{row.response}{row.decision_json}" for row in await stores.transcript.curations.after(0))


@pytest.mark.parametrize(
    ("number", "code"), [(9, "not_found"), (1, "conflict"), (2, "conflict")], ids=["unknown", "own", "retired"]
)
async def test_answer_without_question_is_refused(number: int, code: str, stores: Stores) -> None:
    await stores.learn(TAUGHT, TEA)
    await stores.learn('FACT [t] Drives a green car. | "green car"', "I drive a green car", verify=unsure)
    await stores.projection.answer(2, "retire")
    before = await stores.transcript.curations.count()
    with pytest.raises(PeerError) as refused:
        await stores.projection.answer(number, "confirm")
    assert (refused.value.code, await stores.transcript.curations.count()) == (code, before)


async def test_repeat_by_person_answers_question(stores: Stores) -> None:
    fact = f'FACT [t] Prefers tea. | "{TEA}"'
    await stores.learn(fact, TEA, source="codex")
    await stores.learn(fact, TEA)
    assert await known(stores) == [("FACT", "user", 0.9, None, None)]


async def test_refused_line_asks_nothing(stores: Stores) -> None:
    await stores.learn(TAUGHT, TEA, verify=object_to)
    await stores.learn('FACT [t] The build is green. | "is green"', "Look", "The build is green")
    assert all(row.proposed is None for row in await stores.learnings())


@pytest.mark.parametrize("source", ["user", "assistant", "memory", "none"])
def test_program_cannot_take_name_of_origin(source: str) -> None:
    assert checked_source("codex") == "codex"
    with pytest.raises(PeerError):
        checked_source(source)


async def test_retired_or_edited_learning_changes_its_line(stores: Stores) -> None:
    await stores.learn(TAUGHT + "\n" + added("user.md", TEA), TEA)
    await stores.projection.answer(1, "edit", "Prefers  coffee.")
    assert [(row.content, row.origin, row.superseded_by) for row in await stores.learnings()] == [
        ("Prefers tea.", "user", 2),
        ("Prefers coffee.", "user", None),
    ]
    user = stores.files.read("user.md")
    assert "- Prefers coffee." in user
    assert TEA not in user
    assert [version.source for version in await stores.memory.versions("user.md")][-2:] == ["curator", "person"]
    with pytest.raises(PeerError, match="no longer true"):
        await stores.projection.answer(1, "edit", "Prefers water.")
    await stores.projection.answer(2, "retire")
    assert "coffee" not in stores.files.read("user.md")
    assert await rebuilt(stores.folder, without_files=False) == dump(stores.folder / "memory.db")


async def test_line_of_another_learning_stays(stores: Stores) -> None:
    """Two learnings contradict each other; the person edits the older one and retires the newer one."""
    first, second = "My office is in room 12.", "My office is in room 14, not 12."
    await stores.learn(f'FACT [t] The office of Ada is in room 12. | "{first}"', first)
    answer = f'FACT [t] The office of Ada is in room 14, not 12. | "{second}"\n'
    await stores.learn(answer + added("user.md", second), second)
    assert second in stores.files.read("user.md")
    await stores.projection.answer(1, "edit", "The office of Ada is in room 15.")
    assert second in stores.files.read("user.md")
    await stores.projection.answer(2, "retire")
    assert second not in stores.files.read("user.md")
