"""A turn requested by a program is stored with the program's name, and its text never counts as the person's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sprite.boot.prompt import BootPrompt
from sprite.workspace.database import StoredMission, open_workspace
from tests.looks import rows
from tests.memory_stores import Stores, call, find, open_stores
from tests.recording import Recording, crash_and_recover, recording

WISH = "I prefer tea to coffee, always."
ASKED: dict[str, Any] = {"trigger": "program", "asked_by": "planner"}


def believes(quote: str, turn: str = "[t]") -> str:
    """Return a curator answer that attributes every statement to the person."""
    return (
        f'PREFERENCE {turn} Prefers tea to coffee | "{quote}"\nUSER_MD_UPDATE:\n# User\n\n- Prefers tea to coffee\n'
        "CONTEXT_MD_UPDATE:\n# Context\n\n- Prefers tea to coffee\n"
    )


def told(folder: Path) -> list[str]:
    return [name for name in ("user.md", "context.md") if "tea" in (folder / name).read_text()]


async def types(stores: Stores) -> list[tuple[str, str]]:
    return [(learning.type, learning.origin) for learning in await stores.learnings()]


async def ask(rec: Recording, words: str, reply: str = "Noted.") -> None:
    """Run a program's mission up to its reply."""
    rec.recorder.open_mission("m-1", words, "program", asked_by="planner")
    await rec.recorder.prompt_submitted("p", words)
    await rec.recorder.text(reply)


async def test_program_turn_stores_program_name(tmp_path: Path) -> None:
    async with recording(tmp_path) as rec:
        await ask(rec, WISH)
        await rec.recorder.close_mission("complete")
        turn = await rec.turn()
    assert (turn.trigger, turn.asked_by, turn.user_message, turn.notice) == ("program", "planner", WISH, "")
    (row,) = rows(tmp_path / "transcript.db", "SELECT trigger FROM observations")
    assert row["trigger"] == "task", "an older sprite would take it for the person's words"


async def test_killed_program_turn_keeps_its_source(tmp_path: Path) -> None:
    (turn,) = await crash_and_recover(tmp_path, before=lambda rec: ask(rec, WISH))
    assert (turn.trigger, turn.asked_by, turn.user_message, turn.outcome) == ("program", "planner", WISH, "crashed")


async def test_program_cannot_mark_text_private_or_off_record(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "Ab3dEf9hIjKlMnOpQrStUvWxYz" * 3
    async with recording(tmp_path) as rec:
        await ask(rec, f"Off the record: <private>{WISH}</private> The key is {key}.")
        await rec.recorder.close_mission("complete")
        turn = await rec.turn()
    assert (WISH in turn.user_message, turn.processed) == (True, 0)
    assert key not in turn.user_message


@pytest.mark.parametrize("is_program", [False, True])
@pytest.mark.parametrize("reply", ["Hi", f"Noted: {WISH}"])
async def test_program_text_proves_no_wish(tmp_path: Path, is_program: bool, reply: str) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.learn(believes(WISH), WISH, reply, **(ASKED if is_program else {}))
        assert await types(stores) == [("FACT", "program") if is_program else ("PREFERENCE", "user")]
    assert told(tmp_path) == ([] if is_program else ["user.md", "context.md"])


async def test_program_text_repeated_by_agent_proves_no_wish(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.learn(believes(WISH), WISH, **ASKED)
        # Memory holds the learning; a later turn has none of its words.
        await stores.learn(believes("As noted, always tea to coffee"), "Hello", "As noted, always tea to coffee.")
        assert {origin for _, origin in await types(stores)} == {"program"}
        assert told(tmp_path) == []
        # It counts as the person's once they say it.
        await stores.learn(believes(WISH), WISH)
        assert ("PREFERENCE", "user") in await types(stores)
        assert told(tmp_path) == ["user.md", "context.md"]


async def test_program_cannot_retract_or_close_persons_items(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.learn(f'PREFERENCE [t] Prefers tea to coffee | "{WISH}"\n', WISH)
        await stores.learn('ACTION [t] Water the ficus | "water the ficus"\n', "Please water the ficus.")
        known = {learning.type: learning.id for learning in await stores.learnings()}
        for kind, number in known.items():
            await stores.learn(
                f'{kind} [t] supersedes L{number}: The ficus is watered, coffee it is | "coffee it is"\n',
                "The ficus is watered, coffee it is.",
                **ASKED,
            )
        valid = {learning.type for learning in await stores.learnings() if learning.superseded_by is None}
        assert {"PREFERENCE", "ACTION"} <= valid
        assert [action.status for action in await stores.memory.actions()] == ["open"]


async def test_work_done_for_program_is_recorded(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.learn('ACTION [t] Water the ficus | "water the ficus"\n', "Please water the ficus.")
        (action,) = await stores.memory.actions()
        done = call("Bash", "ok", {"command": "pump --zone ficus --seconds 20"})
        await stores.learn(
            f'FACT [t] The tall plant beside the window needs 20 litres | "plant beside the window"\n'
            f'DONE L{action.id} | [t] watered | "pump --zone ficus"',
            "The tall plant beside the window needs 20 litres.",
            "Done.",
            calls=[done],
            **ASKED,
        )
        assert (await types(stores))[-1] == ("FACT", "program")
        assert [each.status for each in await stores.memory.actions()] == ["done"]


async def test_program_cannot_create_persons_action(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.learn(
            'ACTION [t] Pay the bill of Kraken | "pay the bill of Kraken"\n', "Please pay the bill of Kraken.", **ASKED
        )
        assert await stores.memory.actions() == []


async def test_session_prompt_and_search_show_program_source(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.turn(WISH, "Done.", **ASKED)
        text = await BootPrompt(stores.files, stores.memory, stores.transcript).text()
        (hit,) = (await find(stores, "tea")).hits
    assert f"Program planner: {WISH}\nYou: Done." in text
    assert hit.text == f"Program planner: {WISH}\nAgent: Done."


async def test_queued_program_mission_resumes_with_source(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        assert await workspace.accept_mission(StoredMission("m-1", WISH, None, "queued", None, asked_by="planner"))
        assert await workspace.accept_mission(StoredMission("m-2", "Hello", None, "queued", None))
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        assert [each.asked_by for each in await workspace.open_missions()] == ["planner", None]
        assert [line.asked_by for line in await workspace.chat(10)] == ["planner", None]
