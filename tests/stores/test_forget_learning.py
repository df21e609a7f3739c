"""Forgetting a learning removes its sentence and lines from every store, and nothing else."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprite.config import Settings
from sprite.errors import PeerError
from sprite.forget.plan import Target
from sprite.memory.files import CURATED
from sprite.protocol.shapes import Block, Card, Place
from sprite.workspace.database import CardSaved, ChatAdded, TurnBegan, open_workspace
from tests.curated_workspace import files_containing
from tests.looks import dump
from tests.memory_stores import SESSION, Meanwhile, Stores, call, forget_in, forgetter_of, open_stores, rebuilt


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    folder = tmp_path / ".os/memory"
    folder.mkdir(parents=True)
    (tmp_path / ".os/run").mkdir()
    async with open_stores(folder) as opened:
        await opened.projection.settle()
        yield opened


async def numbered(stores: Stores) -> dict[int, str]:
    return {row.id: row.content for row in await stores.learnings()}


def user_md(*lines: str) -> str:
    return "\n".join(["USER_MD_UPDATE:", "# User", "", *lines, ""])


def lines_of(stores: Stores, name: str = "user.md") -> list[str]:
    return [line for line in stores.path(name).read_text().split("\n") if line.startswith("- ")]


HOT = "I prefer hot cocoa to milk at work"


async def cocoa(stores: Stores) -> None:
    await stores.learn(
        'PREFERENCE [t] The user prefers cocoa to milk. | "I prefer cocoa to milk"\n'
        + user_md("- Prefers cocoa to milk"),
        "I prefer cocoa to milk",
    )
    await stores.learn(
        f'PREFERENCE [t] The user prefers hot cocoa to milk at work. | "{HOT}"\n'
        + user_md("- Prefers cocoa to milk", "- Prefers hot cocoa to milk at work"),
        HOT,
    )
    assert lines_of(stores) == ["- Prefers cocoa to milk", "- Prefers hot cocoa to milk at work"]


async def test_forget_learning_beside_similar_one_removes_line(stores: Stores) -> None:
    await cocoa(stores)
    done = await forget_in(stores, learning=1)
    assert lines_of(stores) == ["- Prefers hot cocoa to milk at work"]
    assert files_containing(stores.folder.parent.parent, "prefers cocoa", "prefer cocoa") == []
    assert await numbered(stores) == {2: "The user prefers hot cocoa to milk at work."}
    assert done.still == []


async def test_forget_similar_learning_keeps_shorter_line(stores: Stores) -> None:
    await cocoa(stores)
    await forget_in(stores, learning=2)
    assert lines_of(stores) == ["- Prefers cocoa to milk"]
    assert await numbered(stores) == {1: "The user prefers cocoa to milk."}
    assert files_containing(stores.folder.parent.parent, "hot cocoa") == []


async def tea(stores: Stores) -> None:
    first = "My name is Ada, and I prefer tea to coffee."
    await stores.learn(
        f'FACT [t] The user\'s name is Ada. | "{first}"\n'
        f'PREFERENCE [t] The user prefers tea to coffee. | "{first}"\n'
        + user_md("- Name: Ada", "- Prefers tea to coffee"),
        first,
    )
    second = "I live in Malmö and I prefer tea to coffee."
    await stores.learn(
        f'FACT [t] The user lives in Malmö. | "{second}"\n'
        f'PREFERENCE [t] The user prefers tea to coffee. | "{second}"\n'
        + user_md("- Name: Ada", "- Prefers tea to coffee", "- Lives in Malmö"),
        second,
    )
    assert lines_of(stores) == ["- Name: Ada", "- Prefers tea to coffee", "- Lives in Malmö"]


async def test_forget_learning_keeps_others_in_same_sentence(stores: Stores) -> None:
    await tea(stores)
    before = {row.id: row for row in await stores.learnings()}
    done = await forget_in(stores, learning=2)
    assert lines_of(stores) == ["- Name: Ada", "- Lives in Malmö"]
    left = {row.id: row for row in await stores.learnings()}
    assert list(left) == [number for number in before if number != 2]
    assert all(left[number].origin == before[number].origin for number in left)
    assert [turn.user_message for turn in await stores.observations()] == [
        "My name is Ada, and I [forgotten].",
        "I live in Malmö and I [forgotten].",
    ]
    assert files_containing(stores.folder.parent.parent, "coffee") == []
    assert done.still == []
    made = dump(stores.folder / "memory.db")
    assert made["learnings"]


async def test_forget_learning_survives_rebuild(stores: Stores) -> None:
    await tea(stores)
    await forget_in(stores, learning=2)
    before = dump(stores.folder / "memory.db")
    assert await rebuilt(stores.folder, without_files=False) == before


async def test_forget_removes_curated_line_from_edited_file(stores: Stores) -> None:
    """A similar line of a person stays; the curator's is no such line because the person saved the file."""
    await stores.learn(
        'PREFERENCE [t] The user prefers cocoa to milk. | "I prefer cocoa to any milk"\n'
        + user_md("- Prefers cocoa to any milk"),
        "I prefer cocoa to any milk",
    )
    typed = "- Cocoa, not milk, prefers it hot"
    await stores.projection.edit("user.md", stores.path("user.md").read_text() + typed + "\n")
    await forget_in(stores, learning=1)
    assert lines_of(stores) == [typed]


async def test_forget_twice_keeps_lines_kept_first(stores: Stores) -> None:
    await tea(stores)
    await forget_in(stores, learning=2)
    await forget_in(stores, learning=1)
    assert lines_of(stores) == ["- Lives in Malmö"]
    assert await numbered(stores) == {3: "The user lives in Malmö."}


async def test_forget_cuts_merged_line_in_two(stores: Stores) -> None:
    first = "My name is Ada, and I prefer tea to coffee."
    await stores.learn(
        f'FACT [t] The user\'s name is Ada. | "{first}"\n'
        f'PREFERENCE [t] The user prefers tea to coffee. | "{first}"\n'
        + user_md("- Name is Ada, and prefers tea to coffee."),
        first,
    )
    await forget_in(stores, learning=2)
    assert lines_of(stores) == ["- Name is Ada."]


async def test_forgotten_correction_keeps_its_target_superseded(stores: Stores) -> None:
    await stores.learn('FACT [t] Tax reports are in EUR. | "in EUR"', "Tax reports are in EUR")
    await stores.learn('CORRECTION [t] supersedes L1: Tax reports are in SEK. | "in SEK"', "no, in SEK")
    await forget_in(stores, learning=2)
    (left,) = await stores.learnings()
    assert (left.content, left.superseded_by) == ("Tax reports are in EUR.", 2)


async def test_learning_containing_forgotten_text_is_named(stores: Stores) -> None:
    await stores.learn('FACT [t] The user lives in Lund. | "I live in Lund"', "I live in Lund")
    await stores.learn('FACT [t] The user lives in Lund with Bo. | "I live in Lund with Bo"', "I live in Lund with Bo")
    more = [Place("learning 2, which says more", "The user lives in Lund with Bo.")]
    assert (await forget_in(stores, preview=True, learning=1)).still == more
    done = await forget_in(stores, learning=1)
    assert await numbered(stores) == {2: "The user lives in Lund with Bo."}
    assert done.still == more


# Sentences of one form

HERON = "My project number {0} is called heron{0} and is written in language {0}."


async def herons(stores: Stores) -> None:
    """Tell of five projects in one form; the curator learns the first two."""
    for number in range(1, 6):
        learned = (
            f"FACT [t] The project heron{number} is written in language {number}. "
            f'| "My project number {number} is called heron{number}"\n'
        )
        lines = [f"- The project heron{known} matters." for known in range(1, number + 1)]
        files = "\n".join(["TOOLS_MD_UPDATE:", "# Tools", "", *lines, ""])
        await stores.learn((learned if number < 3 else "") + files, HERON.format(number), f"Noted: heron{number}.")


async def test_forget_learning_keeps_lookalike_sentences(stores: Stores) -> None:
    await herons(stores)
    before, lines = await stores.observations(), lines_of(stores, "tools.md")
    assert "heron1 " in lines[0]
    done = await forget_in(stores, learning=1)
    assert done.turns == [1]
    assert (await stores.observations())[1:] == before[1:]
    assert lines_of(stores, "tools.md") == lines[1:]
    assert await numbered(stores) == {2: "The project heron2 is written in language 2."}
    assert not any("heron1" in str(turn) for turn in await stores.observations())


@pytest.mark.parametrize(
    "other",
    [
        "My sister prefers tea to coffee.",
        "I prefer coffee to tea.",
        "I prefer tea to coffee++.",
        "I prefer tea with coffee.",
        "Tea and coffee are sold out.",
    ],
)
async def test_forget_learning_keeps_lookalike_sentence(other: str, stores: Stores) -> None:
    """The sentence is nowhere learned, and stands in the learning's own turn, in another turn and in a file."""
    first = "I prefer tea to coffee."
    await stores.learn(
        'PREFERENCE [t] The user prefers tea to coffee. | "I prefer tea to coffee"\n'
        + user_md("- Prefers tea to coffee", f"- {other}"),
        f"{first} {other}",
        f"Noted: you prefer tea to coffee. {other}",
    )
    await stores.turn(other, first)
    await forget_in(stores, learning=1)
    one, two = await stores.observations()
    assert (one.user_message, one.agent_response) == (f"[forgotten] {other}", f"Noted: you [forgotten]. {other}")
    assert (two.user_message, two.agent_response) == (other, "[forgotten]")
    assert lines_of(stores) == [f"- {other}"]


async def test_forget_turn_keeps_lookalike_sentences(stores: Stores) -> None:
    await herons(stores)
    before, lines = await stores.observations(), lines_of(stores, "tools.md")
    assert "heron1 " in lines[0]
    await forget_in(stores, turn=1)
    assert (await stores.observations())[1:] == before[1:]
    assert lines_of(stores, "tools.md") == lines[1:]


async def test_forget_turn_takes_its_learning_from_other_replies(stores: Stores) -> None:
    await stores.learn('FACT [t] The user lives in Lund. | "Lund is where I live"', "Lund is where I live")
    await stores.turn("What do you know of me?", "You live in Lund. Lund is nice.")
    await forget_in(stores, turn=1)
    assert (await stores.observations())[1].agent_response == "[forgotten] Lund is nice."


async def test_forget_learning_takes_line_that_cites_its_quote(stores: Stores) -> None:
    await stores.learn(
        'PREFERENCE [t] The user prefers tea to coffee. | "tea beats coffee"\n'
        'FACT [t] The user lives in Malmö. | "I live in Malmö"\n'
        'USER_MD_EDIT:\nADD Notes | [t] - Likes tea best | "tea beats coffee"\n'
        'ADD Notes | [t] - Lives in Malmö | "I live in Malmö"\n',
        "I live in Malmö, and tea beats coffee.",
    )
    assert lines_of(stores) == ["- Likes tea best", "- Lives in Malmö"]
    await forget_in(stores, learning=1)
    assert lines_of(stores) == ["- Lives in Malmö"]
    assert files_containing(stores.folder.parent.parent, "tea b") == []


async def test_forget_learning_keeps_files_with_same_word(stores: Stores) -> None:
    await stores.learn('FACT [t] The user owns a red bicycle. | "I own a red bicycle"', "I own a red bicycle")
    kept = stores.folder.parent / "undo/objects/ab"
    kept.parent.mkdir(parents=True)
    kept.write_text("credits are shared; the red button")
    await forget_in(stores, learning=1)
    assert kept.exists()


# The preview


async def test_preview_lists_text_of_manually_edited_files(stores: Stores) -> None:
    stores.path("user.md").write_text("# User\n\n- Allergic to saffron\n")
    shown = await forget_in(stores, preview=True, text="saffron")
    assert shown.gone == [Place("user.md", "- Allergic to saffron")]
    await stores.projection.settle()
    shown = await forget_in(stores, preview=True, text="saffron")
    assert [place.text for place in shown.gone] == ["- Allergic to saffron"] * 2
    done = await forget_in(stores, text="saffron")
    assert (done.gone, done.still) == ([], [])
    assert files_containing(stores.folder.parent.parent, "saffron") == []


async def test_preview_lists_only_removed_part_of_sentence(stores: Stores) -> None:
    await tea(stores)
    await stores.turn("What do I drink?", "You prefer tea to coffee. Shall I put the kettle on?")
    gone = (await forget_in(stores, preview=True, learning=2)).gone
    assert [place for place in gone if place.where.startswith("turn")] == [
        Place("turn 1", "prefer tea to coffee"),
        Place("turn 2", "prefer tea to coffee"),
        Place("turn 3, the reply", "You prefer tea to coffee."),
    ]


async def test_preview_names_every_store(stores: Stores) -> None:
    await tea(stores)
    workspace = Settings(stores.folder.parent.parent)
    async with open_workspace(workspace.system / "workspace.db") as seen:
        await seen.create_stack("Coffee and tea")
    (workspace.run / "last_error").write_text("a model said: coffee is bad")
    (workspace.workspace / "documents").mkdir()
    (workspace.workspace / "documents/recipe.txt").write_text("a cup of coffee")
    shown = await forget_in(stores, preview=True, text="coffee")
    assert {place.where for place in shown.gone} == {
        *("turn 1", "turn 2", "learning 2", "user.md", "a stack's name"),
        *("the quote of learning 1", "the quote of learning 3", "a file of the program's"),
        *("entry 1 of the log", "entry 2 of the log"),
    }
    assert Place("learning 2", "The user prefers tea to coffee.") in shown.gone
    done = await forget_in(stores, text="coffee")
    assert shown.still == done.still == [Place("a file of yours, which stays", "documents/recipe.txt")]
    assert (workspace.workspace / "documents/recipe.txt").exists()


async def test_preview_lists_everything_of_whole_session(stores: Stores) -> None:
    """Short messages, cards and the title go with their session, though another session says the same."""
    settings = Settings(stores.folder.parent.parent)
    drawn = call("mcp__sprite__create_card", '{"card_id": "c1"}')
    other = (await stores.transcript.start_session("22222222-1111-4111-8111-111111111111")).id
    table = Block("b1", "table", {"columns": ["Item"], "rows": [["Yes"], ["Pears"]]})
    async with open_workspace(settings.workspace_db) as seen:
        stack = await seen.create_stack("Canvas")
        await seen.record([], [TurnBegan("m-1", "person", SESSION), TurnBegan("m-2", "person", other)])
        await seen.record([], [ChatAdded("user", "Yes please", "m-1"), ChatAdded("user", "Yes please", "m-2")])
        await seen.record([], [CardSaved(Card("c1", stack, "Fruit", "list", None, None, [table], archived=False))])
        await seen.rename_session(SESSION, "Apples")
        await seen.rename_session(other, "Apples")
    await stores.turn("Yes please", "Done", calls=[drawn], mission_id="m-1")
    await stores.turn("Yes please", "Done", session=other, mission_id="m-2")
    gone = (await forget_in(stores, preview=True, session=SESSION)).gone
    assert [place for place in gone if not place.where.startswith("turn 1")] == [
        Place("the chat", "Yes please"),
        Place("a session's title", "Apples"),
        Place("a card", "Fruit"),
        Place("a card", "Item"),
        Place("a card", "Yes"),
        Place("a card", "Pears"),
    ]
    assert (await forget_in(stores, session=SESSION)).still == []
    async with open_workspace(settings.workspace_db) as seen:
        texts = [text.text for text in await seen.texts() if text.table in {"chat_messages", "cards", "session_titles"}]
    assert [text for text in texts if text != "[]"] == ["Yes please", "Apples"]


async def test_forget_finds_text_only_on_canvas(stores: Stores) -> None:
    workspace = Settings(stores.folder.parent.parent)
    async with open_workspace(workspace.system / "workspace.db") as seen:
        await seen.create_stack("Zanzibar")
    assert (await forget_in(stores, preview=True, text="zanzibar")).gone == [Place("a stack's name", "Zanzibar")]
    assert (await forget_in(stores, text="zanzibar")).still == []
    with pytest.raises(PeerError, match="Nothing in memory matches"):
        await forget_in(stores, text="zanzibar")


# Progress and Ctrl-C


@pytest.mark.parametrize("target", [{"learning": 2}, {"turn": 1}, {"text": "coffee"}], ids=str)
async def test_forget_reports_each_turn_it_searched(target: dict[str, Any], stores: Stores) -> None:
    await tea(stores)
    workspace, steps = Settings(stores.folder.parent.parent), [0]

    def step() -> None:
        steps[0] += 1

    async with open_workspace(workspace.workspace_db) as seen:
        forgetter = forgetter_of(workspace, stores, seen, step=step)
        preview = await forgetter.steps(Target(**target), preview=True)
        await forgetter.preview(Target(**target))
        assert preview == (2, steps[0])
        steps[0] = 0
        forget = await forgetter.steps(Target(**target), preview=False)
        await forgetter.search(await forgetter.forget(Target(**target), sure=True))
        assert forget == (2, steps[0])


async def test_cancelled_forget_leaves_all_or_nothing(stores: Stores) -> None:
    await tea(stores)
    workspace = Settings(stores.folder.parent.parent)
    async with open_workspace(workspace.workspace_db) as seen:
        forgetter = forgetter_of(workspace, stores, seen, step=lambda: task.cancel())  # noqa: PLW0108 - the task begins later
        task = asyncio.create_task(forgetter.forget(Target(learning=2), sure=True))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await stores.learnings()) == 3

        async def told() -> None:
            task.cancel()
            await asyncio.sleep(0)

        forgetter = forgetter_of(workspace, stores, seen, Meanwhile(told))
        task = asyncio.create_task(forgetter.forget(Target(learning=2), sure=True))
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not list(workspace.run.iterdir())
    assert files_containing(workspace.workspace, "coffee") == []


# Property: any learning of any history

_THINGS = ["tea", "cocoa", "milk", "coffee", "Lund", "Malmö", "Python", "rust", "herons", "egrets", "maps", "kites"]
_SAYINGS = [
    "prefers {0} to {1}",
    "prefers hot {0} to {1} at work",
    "lives near {0}",
    "writes about {0} and {1}",
    "keeps {0} in the shed",
    "never mentions {0}",
]


@dataclass(frozen=True)
class Told:
    """One clause of a message: of the user or their sister. Only some of the user's are learned."""

    saying: str
    is_learned: bool = True
    is_sisters: bool = False

    @property
    def clause(self) -> str:
        if self.is_sisters:
            return f"my sister {self.saying}"
        verb, _, rest = self.saying.partition(" ")
        first = f"never mention {rest.removeprefix('mentions ')}" if verb == "never" else f"{verb[:-1]} {rest}"
        return f"I {first}"

    @property
    def line(self) -> str:
        return f"- My sister {self.saying}" if self.is_sisters else f"- {self.saying[0].upper()}{self.saying[1:]}"


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[Told]], int]:
    """Draw clauses by turn, some repeated and some not learned, and the index of the learning to forget."""
    saying = st.builds(
        lambda form, pair: form.format(*pair),
        st.sampled_from(_SAYINGS),
        st.permutations(_THINGS[:5]).map(lambda things: things[:2]),
    )
    whose = st.sampled_from([(True, False), (True, False), (False, False), (False, True)])
    told = st.builds(lambda saying, whose: Told(saying, *whose), saying, whose)
    turns = draw(st.lists(st.lists(told, min_size=1, max_size=4, unique_by=lambda t: t.clause), min_size=2, max_size=6))
    turns[0].append(Told("keeps kites in the shed"))
    if draw(st.booleans()):
        turns[-1] += [each for each in turns[0] if each.clause not in {own.clause for own in turns[-1]}]
    every = {each.saying for turn in turns for each in turn if each.is_learned}
    return turns, draw(st.integers(0, len(every) - 1))


async def live(stores: Stores, turns: list[list[Told]]) -> None:
    """Log each turn as one message with all its clauses, learn them one by one, and write a line for each."""
    lines: list[str] = []
    for turn in turns:
        said = ", and ".join(each.clause for each in turn)
        learned = [f'PREFERENCE [t] The user {each.saying}. | "{each.clause}"' for each in turn if each.is_learned]
        lines += [line for line in dict.fromkeys(each.line for each in turn) if line not in lines]
        await stores.learn("\n".join([*learned, user_md(*lines)]), f"{said[0].upper()}{said[1:]}.", f"Noted: {said}.")


def stands(text: str, saying: str) -> bool:
    """Return whether a text has the user's saying."""
    return re.search(rf"(?<!my sister ){re.escape(saying)}\b", text, re.IGNORECASE) is not None


@settings(max_examples=int(os.environ.get("SOAK_EXAMPLES", "5")))
@given(histories())
async def test_any_learning_is_forgotten_alone(history: tuple[list[list[Told]], int]) -> None:
    turns, place = history
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / ".os/memory"
        folder.mkdir(parents=True)
        (Path(root) / ".os/run").mkdir()
        async with open_stores(folder) as stores:
            await stores.projection.settle()
            await live(stores, turns)
            rows = await stores.learnings()
            target = rows[place % len(rows)]
            saying = target.content.removeprefix("The user ").removesuffix(".")
            before = {name: stores.path(name).read_text() for name in CURATED}
            versions = {name: await stores.memory.versions(name) for name in CURATED}
            logged = await stores.observations()
            done = await forget_in(stores, learning=target.id)

            assert done.still == []
            left = await stores.learnings()
            assert [(r.id, r.content, r.type, r.origin, r.seen) for r in left] == [
                (r.id, r.content, r.type, r.origin, r.seen) for r in rows if r.id != target.id
            ]
            line = Told(saying).line
            for name in CURATED:
                assert stores.path(name).read_text() == before[name].replace(f"{line}\n", "")
                after = await stores.memory.versions(name)
                assert [v.content for v in after] == [v.content.replace(f"{line}\n", "") for v in versions[name]]
            clause = Told(saying).clause
            for turn, was, now in zip(turns, logged, await stores.observations(), strict=True):
                others = [each.clause for each in turn if each.clause != clause]
                for text, rest in ((was.user_message, now.user_message), (was.agent_response, now.agent_response)):
                    assert rest == text or len(others) < len(turn)
                    assert all(other.casefold() in rest.casefold() for other in others), (rest, others)
            made = dump(folder / "memory.db")
            for path in (Path(root) / ".os").rglob("*"):
                if path.is_file():
                    found = path.read_bytes().decode(errors="replace")
                    assert not stands(found, saying), path
                    assert not stands(found, clause.removeprefix("I ")), path
        assert await rebuilt(folder, without_files=False) == made
