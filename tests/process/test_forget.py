"""Forgetting: by text, turn, session or learning, beside a sprite or without, it leaves no byte and takes no more.

Long, since its tests share one curated workspace.
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

from bridge.fake_model.model import OfflineModel
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.forget.plan import Target
from sprite.forget.scrub import Scrubber
from sprite.forget.stores import FileStore
from sprite.log.transcript import open_transcript
from sprite.memory.database import open_memory
from sprite.memory.files import CURATED, DEPLOYED
from sprite.memory.words import FORGOTTEN
from sprite.protocol.rows import Forgotten
from sprite.workspace.database import open_workspace
from tests.command_line import command, forget, killed, rebuild, restart_server
from tests.curated_workspace import TYPED, files_containing
from tests.forking import fork_module
from tests.harness import PATIENCE, dump, observations, running_sprite, sprite_environment, sprite_process
from tests.inspection import curations, learnings, memory_file, prompts, transcript, workspace_db
from tests.looks import files_below
from tests.memory_stores import SESSION, Stores, call, forgetter_of, open_stores

#: How often a forget is killed: the first one is not, and the last one's memory.db is lost as well.
LIVES = int(os.environ.get("SOAK_KILLS", "0")) // 10 or 2
WHOLE = ["Ada", "Quibblewort", "tables", "snorgle", "ficus", "Belzoni", "Frobnitz", "llamas"]


@pytest.fixture
def workspace(curated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(curated, tmp_path / "workspace")


def kept(workspace: Path, *gone: str) -> list[str]:
    """The words that are still somewhere, of those that should be."""
    return [word for word in WHOLE if word not in gone and files_containing(workspace, word)]


# Without a sprite


def test_there_is_something_to_forget(curated: Path) -> None:
    assert [word for word in WHOLE if files_containing(curated, word)] == WHOLE


async def test_what_is_forgotten_leaves_no_byte_and_does_not_come_back(workspace: Path, model: OfflineModel) -> None:
    """By its words, however they are written; by its session; and by what was learned of it."""
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


async def test_the_command_shows_what_would_go_and_says_that_it_went(workspace: Path) -> None:
    code, out, err = await command(workspace, "memory", "forget", "--text", "Quibblewort", "--yes")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "Forgetting this by its text takes away for good: 2 turns, 1 learning, 4 curated lines."
    assert "  turn 2: My codename is Quibblewort." in lines
    assert any(line.startswith("  user.md: ") and "Quibblewort" in line for line in lines)
    assert any(line.startswith("  the chat: ") for line in lines)
    assert lines[-2:] == [
        "Forgotten. What is left is a tombstone that says when, and how much; not what.",
        "All stores were searched: gone.",
    ]
    assert files_containing(workspace, "Quibblewort") == []


async def forget_from(stdin: int, workspace: Path) -> tuple[int, str]:
    """`memory forget --text Quibblewort`, asked and answered there: exit code, stderr."""
    arguments = ["memory", "forget", "--text", "Quibblewort", "--workspace", str(workspace)]
    pipe = asyncio.subprocess.PIPE
    process = await fork_module("sprite", *arguments, env=sprite_environment(None), stdin=stdin, stderr=pipe)
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate()
    return process.returncode or 0, err.decode()


@pytest.mark.parametrize("piped", [b"y\n", pytest.param(b"", marks=pytest.mark.soak)], ids=str)
async def test_without_a_terminal_nothing_is_forgotten_whatever_stands_on_stdin(piped: bytes, workspace: Path) -> None:
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
async def test_at_a_terminal_only_a_yes_forgets(typed: bytes, code: int, workspace: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        done = await forget_from(theirs, workspace)
    finally:
        os.close(theirs)
        os.close(ours)
    assert done == (code, "Forget it? [y/N] ")
    assert (files_containing(workspace, "Quibblewort") == []) == (code == 0)


async def test_a_tombstone_says_when_and_how_much_and_not_what(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await forget(workspace, text="Quibblewort")
    summary = json.loads(capsys.readouterr().out)
    assert [summary.pop(name) for name in ("remains", "gone", "still", "more")] == [[], [], [], 0]
    assert summary == {"by": "text", "turns": [2, 6], "learnings": 1, "curations": 3, "lines": 4, "cards": 0}
    tombstone = curations(workspace)[-1]
    assert (tombstone["kind"], json.loads(tombstone["response"])) == ("forget", summary)
    turns = {o["id"]: o for o in observations(workspace)}
    assert turns[2]["user_message"] == f"My codename is {FORGOTTEN}."
    assert turns[2]["processed"] == 1
    assert [o["id"] for o in observations(workspace)] == list(range(1, 10))


async def test_a_turn_that_is_forgotten_takes_its_card_its_chat_and_what_was_learned_of_it(workspace: Path) -> None:
    assert len(workspace_db(workspace, "SELECT * FROM cards")) == 1
    await forget(workspace, turn=4)
    assert workspace_db(workspace, "SELECT * FROM cards") == []
    assert len(workspace_db(workspace, "SELECT * FROM chat_messages")) == 16
    await forget(workspace, turn=7)
    assert "The user's sister is Belzoni." not in learnings(workspace)
    assert "Belzoni" not in memory_file(workspace, "user.md")
    assert len(learnings(workspace)) == 4


async def test_nothing_that_matches_is_said_so(workspace: Path) -> None:
    before = dump(workspace / ".os/memory/transcript.db")
    missing: list[tuple[dict[str, Any], str]] = [
        ({"text": "Zanzibar"}, "Nothing in memory matches that."),
        ({"turn": 99}, "There is no such turn."),
        ({"session": "nobody"}, "There is no such session."),
        ({"learning": 99}, "There is no learning 99."),
        ({"text": "ab"}, "needs 3 characters"),
        ({"text": " a "}, "needs 3 characters"),
    ]
    for target, words in missing:
        with pytest.raises(PeerError, match=words):
            await forget(workspace, **target)
    code, out, err = await command(workspace, "memory", "forget", "--text", "Zanzibar", "--yes")
    assert (code, out, err) == (2, "", "sprite: Nothing in memory matches that.\n")
    assert dump(workspace / ".os/memory/transcript.db") == before


async def test_no_workspace_and_two_targets_are_refused(tmp_path: Path) -> None:
    code, _, err = await command(tmp_path / "nowhere", "memory", "forget", "--turn", "1")
    assert (code, "no sprite has run there yet" in err) == (2, True)
    code, _, err = await command(tmp_path, "memory", "forget", "--turn", "1", "--text", "abc")
    assert (code, "not allowed with" in err) == (2, True)


async def test_many_turns_are_forgotten_only_by_somebody_who_says_so_twice(tmp_path: Path) -> None:
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


def test_every_file_of_a_workspace_is_registered(curated: Path) -> None:
    """A file below `.os/` is a database of the registry, memory's, searched by `FileStore`, or free of words."""
    system = curated / ".os"
    databases = {"memory/transcript.db", "memory/memory.db", "workspace.db"}
    known = {*databases, *(f"memory/{name}" for name in (*DEPLOYED, *CURATED))}

    def is_known(path: Path) -> bool:
        name = str(path.relative_to(system))
        if name in known or any(name in {f"{each}-wal", f"{each}-shm"} for each in databases):
            return True
        patterns = (*FileStore.FILES, *FileStore.FREE)
        return any(fnmatch(name, pattern.replace("**", "*")) for pattern in patterns)

    assert [path for path in files_below(system) if not is_known(path)] == []


# Killed


async def test_killed_at_any_moment_it_is_asked_for_again_or_finished_by_the_next_start(
    curated: Path, tmp_path: Path
) -> None:
    target, word = {"text": "Quibblewort"}, "Quibblewort"
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    rng = random.Random(seed)  # noqa: S311 - no secret
    arguments = ["memory", "forget", "--yes", *(f"--{name}={value}" for name, value in target.items())]
    for life in range(LIVES):
        workspace = shutil.copytree(curated, tmp_path / f"life{life}")
        if life == 0:
            # How long it takes, from its first step to its last.
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
            assert forgotten == (files_containing(workspace, word) == []), "all of it or (but for the chat) nothing"
        with contextlib.suppress(PeerError):  # nothing is left that would match
            await forget(workspace, **target)
        assert files_containing(workspace, word) == []
        assert kept(workspace, word) == [other for other in WHOLE if other != word]
        assert TYPED in memory_file(workspace, "user.md")
        assert not (workspace / ".os/run/purge").exists()
        shutil.rmtree(workspace)


# Beside a running sprite


async def test_a_running_sprite_forgets_with_its_agent_and_everybody_who_watches(
    workspace: Path, model: OfflineModel
) -> None:
    async with (
        running_sprite(workspace, model.url) as sprite,
        sprite.client() as client,
    ):
        # The agent's conversation, and a tool's answer, have the word now.
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

        # A forget waits for the mission before it, and takes it along.
        wait = {"tool": "Bash", "input": {"command": "until [ -e go ]; do sleep 0.05; done"}}
        model.script.agent({"match": "My parrot", "on": "prompt", **wait})
        mission = client.send("mission", {"text": "My parrot is Zebedee."})
        client.send("mission", {"text": "hello there"})
        await client.event("tool_use")
        # The log does not have it yet; by the time the forget is done, it has.
        look = client.send("memory", {"op": "forget", "text": "Zebedee", "preview": True})
        shown = (await client.reply(look))["payload"]["forgotten"]
        assert {"where": "a message that you sent", "text": "My parrot is Zebedee."} in shown["gone"]
        assert (shown["turns"], shown["gone"][-1]["where"]) == ([], "the turn under way")
        answer = client.send("memory", {"op": "forget", "text": "Zebedee"})
        (workspace / "go").touch()
        assert (await client.end_of(mission))["event"] == "complete"
        result = await client.reply(answer)
        assert result["payload"]["done"] is True
        assert files_containing(workspace, "Zebedee") == []
    assert files_containing(workspace, "Quibblewort", "Zebedee") == []


async def test_the_wire_refuses_what_makes_no_sense(workspace: Path, model: OfflineModel) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        refused: list[tuple[dict[str, Any], str]] = [
            ({}, "bad_request"),
            ({"text": "abc", "turn": 1}, "bad_request"),
            ({"text": "Zanzibar"}, "not_found"),
            ({"turn": 2**63}, "not_found"),
            ({"learning": 99}, "not_found"),
            ({"session": ""}, "not_found"),
            ({"text": "  "}, "bad_request"),
        ]
        for payload, code in refused:
            answer = await client.ask("memory", {"op": "forget", **payload})
            assert answer["payload"].get("code") == code, (payload, answer)
        # What makes sense is done after that as before.
        assert (await client.ask("memory", {"op": "forget", "text": "snorgle"}))["payload"]["done"] is True


@pytest.mark.soak
async def test_after_a_crash_in_mid_conversation_the_next_mission_knows_nothing_of_it(
    workspace: Path, model: OfflineModel
) -> None:
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


# In detail, in one process


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    folder = tmp_path / "alone/.os/memory"
    folder.mkdir(parents=True)
    (tmp_path / "alone/.os/run").mkdir()
    async with open_stores(folder) as opened:
        await opened.projection.settle()
        yield opened


async def forget_in(stores: Stores, **target: Any) -> Forgotten:
    settings = Settings(stores.folder.parent.parent)
    async with open_workspace(settings.system / "workspace.db") as seen:
        forgetter = forgetter_of(settings, stores, seen)
        return await forgetter.forget(Target(**target), sure=True)


async def numbered(stores: Stores) -> dict[int, str]:
    return {row.id: row.content for row in await stores.learnings()}


async def test_the_learnings_that_stay_keep_their_numbers_so_that_corrections_hit_what_they_named(
    stores: Stores,
) -> None:
    await stores.learn('FACT [t] The parrot is Zebedee. | "parrot is Zebedee"', "My parrot is Zebedee")
    await stores.learn('FACT [t] Reports are in EUR. | "in EUR"', "Reports are in EUR")
    await stores.learn('ACTION [t] Mail Ilse the numbers. | "mail Ilse"', "Please mail Ilse the numbers")
    await stores.learn('ACTION [t] Call Bo on Friday. | "call Bo"', "Please call Bo on Friday")
    await stores.learn('CORRECTION [t] supersedes L2: Reports are in SEK. | "in SEK"', "no, in SEK")
    await stores.actions.resolve(4, "done", by="person")
    await forget_in(stores, turn=1)
    assert await numbered(stores) == {2: "Reports are in EUR.", 3: "Mail Ilse the numbers.", 4: "Call Bo on Friday.",
                                      5: "Reports are in SEK."}  # fmt: skip
    assert [(row.id, row.superseded_by) for row in await stores.learnings() if row.superseded_by] == [(2, 5)]
    assert {a.content: a.status for a in await stores.memory.actions()} == {
        "Mail Ilse the numbers.": "open",
        "Call Bo on Friday.": "done",
    }
    await stores.learn('FACT [t] Ada keeps bees. | "keep bees"', "I keep bees")
    assert max(await numbered(stores)) == 6


async def test_what_resembles_it_and_was_learned_elsewhere_stays(stores: Stores) -> None:
    for name in ("heron", "egret"):
        line = f"The project {name} is written in Python."
        await stores.learn(
            f'FACT [t] {line} | "project {name} is written in Python"\nFILES_MD_UPDATE:\n# Files\n'
            + "\n".join(
                f"- The project {n} is written in Python." for n in ("heron", "egret")[: 1 + (name == "egret")]
            ),
            f"My project {name} is written in Python",
        )
    await forget_in(stores, learning=1)
    assert await numbered(stores) == {2: "The project egret is written in Python."}
    assert stores.path("files.md").read_text() == "# Files\n- The project egret is written in Python.\n"
    assert [turn.user_message for turn in await stores.observations()] == [
        FORGOTTEN,
        "My project egret is written in Python",
    ]


async def test_a_learning_takes_along_the_turns_that_repeat_it_and_leaves_their_other_sentences(
    stores: Stores,
) -> None:
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
    assert (first.user_message, first.agent_response) == (f"I live in Lund. {FORGOTTEN}", FORGOTTEN)
    assert second.agent_response == f"{FORGOTTEN} Anything else?"
    assert third.user_message == "It rains in Lund"
    assert await numbered(stores) == {2: "Ada lives in Lund."}
    assert [row.origin for row in await stores.learnings()] == ["user"]


async def test_what_another_turn_taught_as_well_stays_learned(stores: Stores) -> None:
    await stores.learn('FACT [t] Ada lives in Lund. | "live in Lund"', "I live in Lund")
    await stores.learn('FACT [t] Ada lives in Lund. | "living in Lund"', "Living in Lund is nice")
    await forget_in(stores, turn=1)
    (learning,) = await stores.learnings()
    assert (learning.content, learning.source_observation_id, learning.seen) == ("Ada lives in Lund.", 2, 1)


async def test_a_persons_own_lines_go_only_for_the_very_words(stores: Stores) -> None:
    await stores.projection.edit(
        "user.md", "# User\n\n<!-- pin -->\n- Trip to Zanzibar in May.\n<!-- /pin -->\n- Likes May\n"
    )
    await stores.learn(
        'FACT [t] Ada travels to Zanzibar in May. | "Zanzibar"\nUSER_MD_UPDATE:\n# User\n\n<!-- pin -->\n'
        "- Trip to Zanzibar in May.\n<!-- /pin -->\n- Likes May\n- Travels to Zanzibar soon.\n",
        "Book the flight to Zanzibar soon",
    )
    assert "Travels" in stores.path("user.md").read_text()
    await forget_in(stores, turn=1)
    assert stores.path("user.md").read_text() == (
        "# User\n\n<!-- pin -->\n- Trip to Zanzibar in May.\n<!-- /pin -->\n- Likes May\n"
    )
    await forget_in(stores, text="zanzibar")
    assert stores.path("user.md").read_text() == "# User\n\n<!-- pin -->\n<!-- /pin -->\n- Likes May\n"
    assert files_containing(stores.folder.parent.parent, "zanzibar") == []


async def test_a_hand_edit_that_nobody_has_noticed_yet_is_not_lost(stores: Stores) -> None:
    await stores.turn("My parrot is Zebedee")
    stores.path("tools.md").write_text("# Mine\n\n- by hand\n- Zebedee bites\n")
    await forget_in(stores, text="Zebedee")
    assert stores.path("tools.md").read_text() == "# Mine\n\n- by hand\n"


async def test_waiting_turns_are_forgotten_before_they_are_curated(stores: Stores) -> None:
    await stores.turn("My parrot is Zebedee", "Noted: Zebedee")
    await stores.transcript.journal.append("key", SESSION, "tool", {"x": "Zebedee"})
    await forget_in(stores, turn=1)
    assert await stores.transcript.waiting_count() == 1
    assert files_containing(stores.folder.parent.parent, "Zebedee") == []


async def test_copies_that_were_set_aside_go_as_well(stores: Stores) -> None:
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


async def test_a_deployed_file_stays_and_is_named(stores: Stores) -> None:
    await stores.turn("My parrot is Zebedee")
    stores.path("soul.md").write_text("# Soul\n\nYou look after Zebedee.\n")
    assert (await forget_in(stores, text="Zebedee")).remains == ["soul.md"]
    assert "Zebedee" in stores.path("soul.md").read_text()


async def test_an_edit_comes_before_a_forget_or_after_it_and_never_into_it(stores: Stores) -> None:
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


async def test_only_the_persons_words_as_such_are_found_not_their_tombstones(stores: Stores) -> None:
    await stores.learn('FACT [t] The parrot is Zebedee. | "Zebedee"', "My parrot is Zebedee")
    await forget_in(stores, text="Zebedee")
    for words in ("forgotten", "[forgotten]"):
        with pytest.raises(PeerError, match="Nothing in memory matches"):
            await forget_in(stores, text=words)
    scrubber = Scrubber(phrases=("forgotten",))
    assert scrubber.text(f"a {FORGOTTEN} b forgotten c") == f"a {FORGOTTEN} b {FORGOTTEN} c"


async def test_every_file_is_whole_after_a_forget(stores: Stores) -> None:
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
