"""Forgetting by text, turn, session or learning, with or without a running sprite, removes exactly the target.

The file is long because its tests share one curated workspace.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import random
import secrets
import shutil
from collections.abc import AsyncIterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from sprite.errors import PeerError
from sprite.forget.scrub import Scrubber
from sprite.log.transcript import open_transcript
from sprite.memory.database import open_memory
from sprite.memory.files import CURATED, DEPLOYED, template
from sprite.memory.words import FORGOTTEN
from sprite.protocol.shapes import Place
from tests.command_line import command, forget, killed, rebuild, restart_server
from tests.curated_workspace import TYPED, files_containing
from tests.forking import fork_module
from tests.harness import PATIENCE, dump, observations, running_sprite, sprite_environment, sprite_process
from tests.inspection import curations, learnings, memory_file, prompts, transcript, workspace_db
from tests.looks import files_below
from tests.memory_stores import SESSION, Stores, call, forget_in, open_stores
from tests.scripted_model import OfflineModel

#: Number of forgets: the first one is not killed, and the last one also loses its memory.db.
LIVES = int(os.environ.get("SOAK_KILLS", "0")) // 10 or 2
#: Files below `.os/` that a forget searches, then those without people's words or with the deployer's.
FILES = (
    *("run/claude/*", "run/boot.md", "run/boot/*", "run/last_error", "run/uploads/*"),
    *("run/re-extract/*", "run/reapply-*/*"),
    *("memory/*.too-large*", "memory/*.no-file*", "memory/memory.db.*", "memory/.*", "follow/*", "undo/*"),
    # Databases before the last update.
    *("backup/*", "backup.part/*"),
)
#: (`.agent-at-work` and `shipped.json` describe the deployed files.)
FREE = (
    *("src/*", ".venv/*", "VERSION", "data-version", "memory/shipped.json"),
    *("run/lock", "run/token", "run/address", "run/purge", "run/agent", "run/cli", "run/meaning"),
    *("run/egress.sock", "run/working", "run/seatbelt", "run/filter"),
)
WHOLE = ["Ada", "Quibblewort", "tables", "snorgle", "ficus", "Belzoni", "Frobnitz", "llamas"]


@pytest.fixture
def workspace(curated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(curated, tmp_path / "workspace")


def kept(workspace: Path, *gone: str) -> list[str]:
    """Return the remaining words that the workspace still contains."""
    return [word for word in WHOLE if word not in gone and files_containing(workspace, word)]


# --- without a running sprite ---


def test_curated_workspace_contains_all_words(curated: Path) -> None:
    assert [word for word in WHOLE if files_containing(curated, word)] == WHOLE


async def test_forgotten_words_leave_no_byte_after_rebuild(workspace: Path, model: OfflineModel) -> None:
    """The targets are a text in other spelling, a session and a learning."""
    sessions = transcript(workspace, "SELECT id FROM sessions ORDER BY started_at")
    gone: list[str] = []
    targets: list[tuple[dict[str, Any], list[str]]] = [
        ({"text": "MY  codename is\nquibblewort"}, []),
        ({"text": "Quibblewort"}, ["Quibblewort"]),
        ({"session": sessions[1]["id"]}, ["Belzoni", "Frobnitz"]),
        ({"learning": 4}, ["ficus"]),
    ]
    for target, words in targets:
        await forget(workspace, **target)
        gone += words
        assert files_containing(workspace, *gone) == []
        assert kept(workspace, *gone) == [word for word in WHOLE if word not in gone]
        assert TYPED in memory_file(workspace, "user.md")
    before = dump(workspace / ".os/memory/memory.db")

    await rebuild(workspace)
    assert dump(workspace / ".os/memory/memory.db") == before
    for path in (workspace / ".os/memory").glob("memory.db*"):
        path.unlink()
    await restart_server(workspace)
    assert dump(workspace / ".os/memory/memory.db") == before
    await rebuild(workspace, model)
    await restart_server(workspace)
    assert files_containing(workspace, *gone) == []
    assert kept(workspace, *gone) == [word for word in WHOLE if word not in gone]
    assert TYPED in memory_file(workspace, "user.md")


async def test_forget_command_lists_preview_and_result(workspace: Path) -> None:
    code, out, err = await command(workspace, "memory", "forget", "--text", "Quibblewort", "--yes")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "Forgetting this text removes permanently: text of 2 turns, 1 learning, 3 lines of memory files."
    assert "  turn 2: Quibblewort" in lines
    assert any(line.startswith("  user.md: ") and "Quibblewort" in line for line in lines)
    assert any(line.startswith("  the chat: ") for line in lines)
    assert lines[-2:] == [
        "Forgotten. The log keeps only the time of this, and how much was removed.",
        "No store contains it any more.",
    ]
    assert files_containing(workspace, "Quibblewort") == []


async def forget_from(stdin: int, workspace: Path) -> tuple[int, str]:
    """Run `memory forget --text Quibblewort` with this stdin; return (exit code, stderr)."""
    arguments = ["memory", "forget", "--text", "Quibblewort", "--workspace", str(workspace)]
    pipe = asyncio.subprocess.PIPE
    process = await fork_module("sprite", *arguments, env=sprite_environment(None), stdin=stdin, stderr=pipe)
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate()
    return process.returncode or 0, err.decode()


@pytest.mark.parametrize("piped", [b"y\n", pytest.param(b"", marks=pytest.mark.soak)], ids=str)
async def test_forget_without_terminal_ignores_piped_confirmation(piped: bytes, workspace: Path) -> None:
    before = dump(workspace / ".os/memory/transcript.db")
    reading, writing = os.pipe()
    os.write(writing, piped)
    os.close(writing)
    with os.fdopen(reading) as stdin:
        code, complaint = await forget_from(stdin.fileno(), workspace)
    assert (code, "--yes" in complaint) == (2, True)
    assert dump(workspace / ".os/memory/transcript.db") == before


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        pytest.param(b"n\n", 1, marks=pytest.mark.soak),
        pytest.param(b"\x04", 1, marks=pytest.mark.soak),
        (b"nyes\n", 1),
        (b"Yes\n", 0),
    ],
    ids=str,
)
async def test_forget_at_terminal_requires_yes(typed: bytes, code: int, workspace: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        done = await forget_from(theirs, workspace)
    finally:
        os.close(theirs)
        os.close(ours)
    assert done == (code, "Forget it? [y/N] ")
    assert (files_containing(workspace, "Quibblewort") == []) == (code == 0)


async def test_tombstone_holds_counts_but_no_content(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await forget(workspace, text="Quibblewort")
    summary = json.loads(capsys.readouterr().out)
    assert [summary.pop(name) for name in ("gone", "still", "more")] == [[], [], 0]
    assert summary == {"by": "text", "turns": [2, 6], "learnings": 1, "curations": 2, "lines": 3, "cards": 0}
    tombstone = curations(workspace)[-1]
    assert (tombstone["kind"], json.loads(tombstone["response"])) == ("forget", summary)
    turns = {o["id"]: o for o in observations(workspace)}
    assert turns[2]["user_message"] == f"My codename is {FORGOTTEN}."
    assert turns[2]["processed"] == 1
    assert [o["id"] for o in observations(workspace)] == list(range(1, 10))


async def test_forgotten_turn_takes_card_chat_and_learning(workspace: Path) -> None:
    assert len(workspace_db(workspace, "SELECT * FROM cards")) == 1
    await forget(workspace, turn=4)
    assert workspace_db(workspace, "SELECT * FROM cards") == []
    assert len(workspace_db(workspace, "SELECT * FROM chat_messages")) == 16
    await forget(workspace, turn=7)
    assert "The user's sister is Belzoni." not in learnings(workspace)
    assert "Belzoni" not in memory_file(workspace, "user.md")
    assert len(learnings(workspace)) == 4


async def test_forget_without_match_raises_error(workspace: Path) -> None:
    before = dump(workspace / ".os/memory/transcript.db")
    missing: list[tuple[dict[str, Any], str]] = [
        ({"text": "Zanzibar"}, "Nothing in memory matches what you want to forget."),
        ({"turn": 99}, "There is no such turn."),
        ({"session": "nobody"}, "There is no such session."),
        ({"learning": 99}, "There is no learning 99."),
        ({"text": "ab"}, "needs at least 3 characters"),
        ({"text": " a "}, "needs at least 3 characters"),
    ]
    for target, words in missing:
        with pytest.raises(PeerError, match=words):
            await forget(workspace, **target)
    code, out, err = await command(workspace, "memory", "forget", "--text", "Zanzibar", "--yes")
    assert (code, out, err) == (2, "", "sprite: Nothing in memory matches what you want to forget.\n")
    assert dump(workspace / ".os/memory/transcript.db") == before


async def test_forget_missing_workspace_or_two_targets_fails(tmp_path: Path) -> None:
    code, _, err = await command(tmp_path / "nowhere", "memory", "forget", "--turn", "1")
    assert (code, "no sprite has run there yet" in err) == (2, True)
    code, _, err = await command(tmp_path, "memory", "forget", "--turn", "1", "--text", "abc")
    assert (code, "not allowed with" in err) == (2, True)


async def test_forget_of_many_turns_requires_yes_flag(tmp_path: Path) -> None:
    """Eleven matching turns are listed, but stay without `--yes`."""
    workspace = tmp_path / "workspace"
    folder = workspace / ".os/memory"
    folder.mkdir(parents=True)
    (workspace / ".os/run").mkdir()
    async with open_stores(folder) as stores:
        for number in range(11):
            await stores.turn(f"Zanzibar {number}")
    code, out, err = await command(workspace, "memory", "forget", "--text", "zanzibar")
    assert code == 2
    assert "11 turns" in out
    assert "--yes" in err
    assert files_containing(workspace, "Zanzibar")
    await forget(workspace, text="zanzibar")
    assert files_containing(workspace, "Zanzibar") == []


def test_every_workspace_file_is_registered(curated: Path) -> None:
    """A file below `.os/` is a registered database, a memory file, searched as a file, or free of words."""
    system = curated / ".os"
    databases = {"memory/transcript.db", "memory/memory.db", "memory/vectors.db", "workspace.db"}
    known = {*databases, *(f"memory/{name}" for name in (*DEPLOYED, *CURATED))}

    def is_known(path: Path) -> bool:
        name = str(path.relative_to(system))
        if name in known or any(name in {f"{each}-wal", f"{each}-shm"} for each in databases):
            return True
        return any(fnmatch(name, pattern) for pattern in (*FILES, *FREE))

    assert [path for path in files_below(system) if not is_known(path)] == []


# --- kills ---


async def test_killed_forget_completes_on_restart_or_retry(curated: Path, tmp_path: Path) -> None:
    target, word = {"text": "Quibblewort"}, "Quibblewort"
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it when the test fails
    rng = random.Random(seed)  # noqa: S311 - no secret
    arguments = ["memory", "forget", "--yes", *(f"--{name}={value}" for name, value in target.items())]
    for life in range(LIVES):
        workspace = shutil.copytree(curated, tmp_path / f"life{life}")
        if life == 0:
            # The first run is not killed and measures the duration.
            code, seconds = await killed(workspace, *arguments)
            assert code == 0
        else:
            await killed(workspace, *arguments, seconds=seconds * rng.uniform(0.0, 1.0))
        if life % 4 == 3:
            for path in (workspace / ".os/memory").glob("memory.db*"):
                path.unlink()
        if life % 2:
            await restart_server(workspace)
            forgotten = any(curation["kind"] == "forget" for curation in curations(workspace))
            assert forgotten == (files_containing(workspace, word) == []), "the tombstone and the stores disagree"
        with contextlib.suppress(PeerError):  # no match is left
            await forget(workspace, **target)
        assert files_containing(workspace, word) == []
        assert kept(workspace, word) == [other for other in WHOLE if other != word]
        assert TYPED in memory_file(workspace, "user.md")
        assert not (workspace / ".os/run/purge").exists()
        shutil.rmtree(workspace)


# --- beside a running sprite ---


async def test_running_sprite_forgets_in_agent_and_clients(workspace: Path, model: OfflineModel) -> None:
    async with (
        running_sprite(workspace, model.url) as sprite,
        sprite.client() as client,
    ):
        # The agent's conversation and a tool result now contain the word.
        assert "Quibblewort" in (await client.mission("What is my codename?"))["text"]
        await client.mission("search memory for Quibblewort")
        async with sprite.client() as other:
            seen = other.received[0]["payload"]
        preview = await client.ask("memory", {"op": "forget", "text": "quibblewort", "preview": True})
        assert preview["payload"]["forgotten"]["turns"] == [2, 6, 10, 11]
        assert preview["payload"]["done"] is False
        assert files_containing(workspace, "Quibblewort")

        code, out, err = await command(workspace, "memory", "forget", "--text", "quibblewort", "--yes")
        assert code == 0, err
        assert "4 turns" in out
        assert files_containing(workspace, "Quibblewort") == []
        state = await client.until(lambda m: m["type"] == "state_sync")
        assert "quibblewort" not in json.dumps(state).lower()
        assert state["payload"]["session"]["session_id"] is None

        resume = {"epoch": seen["epoch"], "last_seq": seen["last_seq"]}
        async with sprite.client(resume) as back:
            assert (await back.next() or {})["type"] == "gap"
            assert (await back.next() or {})["type"] == "state_sync"

        newest = model.requests[-1]
        await client.mission("What is my codename, please?")
        (asked,) = prompts(model, "What is my codename, please?")[-1:]
        assert asked is not newest
        assert "quibblewort" not in asked.raw.decode().lower()
        sequence = [m["seq"] for m in client.received if "seq" in m]
        assert sequence == sorted(set(sequence))
        assert sequence[-1] > seen["last_seq"]
        assert files_containing(workspace, "Quibblewort") == []

        # A forget waits for the running mission and includes its turn.
        wait = {"tool": "Bash", "input": {"command": "until [ -e go ]; do sleep 0.05; done"}}
        model.script.agent({"match": "My parrot", "on": "prompt", **wait})
        mission = client.send("mission", {"text": "My parrot is Zebedee."})
        client.send("mission", {"text": "hello there"})
        await client.event("tool_use")
        # The turn enters the log only while the forget waits.
        look = client.send("memory", {"op": "forget", "text": "Zebedee", "preview": True})
        shown = (await client.reply(look))["payload"]["forgotten"]
        assert {"where": "a message that you sent", "text": "Zebedee"} in shown["gone"]
        assert (shown["turns"], shown["gone"][-1]["where"]) == ([], "the turn under way")
        answer = client.send("memory", {"op": "forget", "text": "Zebedee"})
        (workspace / "go").touch()
        assert (await client.end_of(mission))["event"] == "complete"
        result = await client.reply(answer)
        assert result["payload"]["done"] is True
        assert files_containing(workspace, "Zebedee") == []
    assert files_containing(workspace, "Quibblewort", "Zebedee") == []


async def test_invalid_forget_messages_are_refused(workspace: Path, model: OfflineModel) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        refused: list[tuple[dict[str, Any], str]] = [
            ({}, "bad_request"),
            ({"text": "abc", "turn": 1}, "bad_request"),
            ({"text": "Zanzibar"}, "not_found"),
            ({"turn": 2**63}, "bad_payload"),
            ({"learning": 99}, "not_found"),
            ({"session": ""}, "not_found"),
            ({"text": "  "}, "bad_request"),
        ]
        for payload, code in refused:
            answer = await client.ask("memory", {"op": "forget", **payload})
            assert answer["payload"].get("code") == code, (payload, answer)
        # A valid message still works.
        assert (await client.ask("memory", {"op": "forget", "text": "snorgle"}))["payload"]["done"] is True


@pytest.mark.soak
async def test_forget_after_crash_clears_resumed_conversation(workspace: Path, model: OfflineModel) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await client.mission("My parrot is Zebedee.")
        await sprite.kill()
    assert files_containing(workspace, "Zebedee")
    await forget(workspace, text="Zebedee")
    assert files_containing(workspace, "Zebedee") == []
    async with running_sprite(workspace, model.url) as again, again.client() as client:
        assert (await client.mission("Who is my parrot?"))["event"] == "complete"
        (asked,) = prompts(model, "Who is my parrot?")[-1:]
        assert "zebedee" not in asked.raw.decode().lower()


# --- details, in one process ---


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    folder = tmp_path / "alone/.os/memory"
    folder.mkdir(parents=True)
    (tmp_path / "alone/.os/run").mkdir()
    async with open_stores(folder) as opened:
        await opened.projection.settle()
        yield opened


async def numbered(stores: Stores) -> dict[int, str]:
    return {row.id: row.content for row in await stores.learnings()}


async def test_remaining_learnings_keep_numbers_after_forget(
    stores: Stores,
) -> None:
    """Corrections name learnings by number, so the numbers must not move."""
    await stores.learn('FACT [t] The parrot is Zebedee. | "parrot is Zebedee"', "My parrot is Zebedee")
    await stores.learn('FACT [t] Ada\'s reports are in EUR. | "in EUR"', "Reports are in EUR")
    await stores.learn('ACTION [t] Mail Ilse the numbers. | "mail Ilse"', "Please mail Ilse the numbers")
    await stores.learn('ACTION [t] Call Bo on Friday. | "call Bo"', "Please call Bo on Friday")
    await stores.learn('CORRECTION [t] supersedes L2: Ada\'s reports are in SEK. | "in SEK"', "no, in SEK")
    await stores.actions.resolve(4, "done", by="person")
    await forget_in(stores, turn=1)
    assert await numbered(stores) == {
        2: "Ada's reports are in EUR.",
        3: "Mail Ilse the numbers.",
        4: "Call Bo on Friday.",
        5: "Ada's reports are in SEK.",
    }
    assert [(row.id, row.superseded_by) for row in await stores.learnings() if row.superseded_by] == [(2, 5)]
    assert {a.content: a.status for a in await stores.memory.actions()} == {
        "Mail Ilse the numbers.": "open",
        "Call Bo on Friday.": "done",
    }
    await stores.learn('FACT [t] Ada keeps bees. | "keep bees"', "I keep bees")
    assert max(await numbered(stores)) == 6


async def test_similar_learning_of_other_turn_stays(stores: Stores) -> None:
    for name in ("heron", "egret"):
        line = f"The project {name} is written in Python."
        await stores.learn(
            f'FACT [t] {line} | "project {name} is written in Python"\nFILES_MD_EDIT:\n'
            f'ADD Artifacts | [t] - {line} | "project {name} is written in Python"\n',
            f"My project {name} is written in Python",
        )
    await forget_in(stores, learning=1)
    assert await numbered(stores) == {2: "The project egret is written in Python."}
    left = template("files.md").replace("## Artifacts\n", "## Artifacts\n- The project egret is written in Python.\n")
    assert stores.path("files.md").read_text() == left
    assert [turn.user_message for turn in await stores.observations()] == [
        FORGOTTEN,
        "My project egret is written in Python",
    ]


async def test_forgotten_learning_redacts_repeating_sentences_only(
    stores: Stores,
) -> None:
    """Turns that repeat the learning keep their other sentences."""
    await stores.learn(
        'FACT [t] Ada\'s codename is Quibblewort. | "codename is Quibblewort"\n'
        'FACT [t] Ada lives in Lund. | "live in Lund"',
        "I live in Lund. My codename is Quibblewort.",
        "Noted: your codename is Quibblewort.",
    )
    search = call("mcp__sprite__search_memory", "- [L1] Ada's codename is Quibblewort.", {"query": "codename"})
    await stores.turn("Remind me: which codename?", "Quibblewort. Anything else?", calls=[search])
    await stores.turn("It rains in Lund", "Take an umbrella")
    await forget_in(stores, learning=1)
    assert files_containing(stores.folder.parent.parent, "Quibblewort") == []
    first, second, third = await stores.observations()
    assert (first.user_message, first.agent_response) == (
        f"I live in Lund. {FORGOTTEN}",
        f"Noted: your {FORGOTTEN}.",
    )
    assert second.agent_response == f"{FORGOTTEN} Anything else?"
    assert third.user_message == "It rains in Lund"
    assert await numbered(stores) == {2: "Ada lives in Lund."}
    assert [row.origin for row in await stores.learnings()] == ["user"]


async def test_learning_with_second_source_stays(stores: Stores) -> None:
    await stores.learn('FACT [t] Ada lives in Lund. | "live in Lund"', "I live in Lund")
    await stores.learn('FACT [t] Ada lives in Lund. | "living in Lund"', "Living in Lund is nice")
    await forget_in(stores, turn=1)
    (learning,) = await stores.learnings()
    assert (learning.content, learning.source_observation_id, learning.seen) == ("Ada lives in Lund.", 2, 1)


async def test_pinned_lines_go_only_with_exact_text(stores: Stores) -> None:
    """A person's own lines stay when only the turn behind them is forgotten."""
    await stores.projection.edit(
        "user.md", "# User\n\n<!-- pin -->\n- Trip to Zanzibar in May.\n<!-- /pin -->\n- Likes May\n"
    )
    await stores.learn(
        'FACT [t] Ada travels to Zanzibar in May. | "Zanzibar"\n'
        'USER_MD_EDIT:\nADD Travels | [t] - Travels to Zanzibar soon. | "Zanzibar soon"\n',
        "Book the flight to Zanzibar soon",
    )
    assert "- Travels" in stores.path("user.md").read_text()
    await forget_in(stores, turn=1)
    assert stores.path("user.md").read_text() == (
        "# User\n\n<!-- pin -->\n- Trip to Zanzibar in May.\n<!-- /pin -->\n- Likes May\n\n## Travels\n"
    )
    await forget_in(stores, text="zanzibar")
    assert stores.path("user.md").read_text() == ("# User\n\n<!-- pin -->\n<!-- /pin -->\n- Likes May\n\n## Travels\n")
    assert files_containing(stores.folder.parent.parent, "zanzibar") == []


async def test_unnoticed_hand_edit_survives_forget(stores: Stores) -> None:
    await stores.turn("My parrot is Zebedee")
    stores.path("tools.md").write_text("# Mine\n\n- by hand\n- Zebedee bites\n")
    await forget_in(stores, text="Zebedee")
    assert stores.path("tools.md").read_text() == "# Mine\n\n- by hand\n"


async def test_uncurated_turn_is_forgotten_with_journal(stores: Stores) -> None:
    await stores.turn("My parrot is Zebedee", "Noted: Zebedee")
    await stores.transcript.journal.append("key", SESSION, "tool", {"x": "Zebedee"})
    await forget_in(stores, turn=1)
    assert await stores.transcript.waiting_count() == 1
    assert files_containing(stores.folder.parent.parent, "Zebedee") == []


async def test_quarantined_and_temporary_copies_are_scrubbed(stores: Stores) -> None:
    await stores.learn('FACT [t] The parrot is Zebedee. | "Zebedee"', "My parrot is Zebedee")
    system = stores.folder.parent
    for folder in ("projects", "tmp"):
        (system / "run/claude" / folder).mkdir(parents=True)
    for path in ("memory/memory.db.bad-123", "memory/memory.db.new", "memory/.user.md.x1", "run/boot.md",
                 "run/claude/projects/a.jsonl", "run/claude/tmp/b.output",
                 "run/last_error", "run/some.log"):  # fmt: skip
        (system / path).write_text('{"said": "My parrot is\\nZEBEDEE"}')
    (system / "run/other.log").write_text("nothing of it")
    for folder in ("run/re-extract", "run/reapply-x1"):
        (system / folder).mkdir()
        (system / folder / "memory.db").write_text("a memory in other words")
    await forget_in(stores, text="parrot is Zebedee")
    assert files_containing(stores.folder.parent.parent, "Zebedee") == []
    assert (system / "run/other.log").exists()
    assert list(system.glob("run/re*")) == []


async def test_linked_folder_is_not_searched(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "zoo.txt").write_text("Zebedee")
    await stores.turn("My parrot is Zebedee")
    (stores.folder.parent.parent / "linked").symlink_to(outside)
    assert (await forget_in(stores, text="Zebedee")).still == []


async def test_deployed_file_stays_and_is_reported(stores: Stores) -> None:
    await stores.turn("My parrot is Zebedee")
    stores.path("soul.md").write_text("# Soul\n\nYou look after Zebedee.\n")
    stays = [Place("soul.md", "a file with the agent's rules, which only you can change")]
    assert (await forget_in(stores, text="Zebedee", preview=True)).still == stays
    assert (await forget_in(stores, text="Zebedee")).still == stays
    assert "Zebedee" in stores.path("soul.md").read_text()


async def test_concurrent_edit_is_serialized_with_forget(stores: Stores) -> None:
    """No edit before the newest forget still holds the forgotten name."""
    for wait in range(0, 20, 4):
        name = f"Zebedee{wait}"
        await stores.turn(f"My parrot is {name}")

        async def edit(name: str = name, wait: int = wait) -> None:
            for _ in range(wait):
                await asyncio.sleep(0.001)
            await stores.projection.edit("user.md", f"# User\n- The parrot is {name}.\n")

        await asyncio.gather(forget_in(stores, text=name), edit())
        kinds = {c.id: (c.kind, name in c.response) for c in await stores.transcript.curations.after(0)}
        newest_forget = max(id_ for id_, (kind, _) in kinds.items() if kind == "forget")
        assert not any(has for id_, (_, has) in kinds.items() if id_ < newest_forget)


async def test_forget_does_not_match_tombstones(stores: Stores) -> None:
    await stores.learn('FACT [t] The parrot is Zebedee. | "Zebedee"', "My parrot is Zebedee")
    await forget_in(stores, text="Zebedee")
    for words in ("forgotten", "[forgotten]"):
        with pytest.raises(PeerError, match="Nothing in memory matches"):
            await forget_in(stores, text=words)
    scrubber = Scrubber("forgotten")
    assert scrubber.text(f"a {FORGOTTEN} b forgotten c") == f"a {FORGOTTEN} b {FORGOTTEN} c"


async def test_forget_leaves_complete_memory_files(stores: Stores) -> None:
    answer = 'FACT [t] The parrot is Zebedee. | "Zebedee"\nUSER_MD_UPDATE:\n# User\n- The parrot is Zebedee.\n'
    await stores.learn(answer, "My parrot is Zebedee")
    await forget_in(stores, text="Zebedee")
    for name in CURATED:
        assert stores.path(name).exists()
    async with (
        open_memory(stores.folder / "memory.db") as again,
        open_transcript(stores.folder / "transcript.db") as log,
    ):
        assert await again.cursor() == (await log.curations.after(0))[-1].id
