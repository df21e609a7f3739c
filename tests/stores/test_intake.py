"""Observations recorded by other programs: validated one by one, written once, redacted and truncated like any turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sprite.common import own_secrets
from sprite.errors import PeerError
from sprite.gateway.ingest import ObservationIngest
from sprite.log.transcript import Observation, TranscriptDB, open_transcript
from sprite.memory.words import given
from sprite.privacy.private_text import PrivateText
from sprite.protocol.observing import MAX_OBSERVED_TURNS, Observe, Observed, project_key

NOW = time.time()
PROJECT = "/home/ada/web"


class Desk:
    """An ingest on a real log, which counts wake-ups of the curator."""

    def __init__(self, transcript: TranscriptDB, workspace: Path) -> None:
        self.transcript = transcript
        self.workspace = workspace
        self.told = 0
        self.restart()

    def restart(self) -> None:
        self.intake = ObservationIngest(self.transcript, self._tell, PrivateText, str(self.workspace))

    async def _tell(self) -> None:
        self.told += 1

    async def take(
        self, *turns: dict[str, Any], source: str = "claude-code", project: str | None = PROJECT
    ) -> Observed:
        return await self.intake.take(
            msgspec.convert({"source": source, "project": project, "turns": list(turns)}, Observe)
        )

    async def turns(self) -> list[Observation]:
        return await self.transcript.observations_after(0, 2**62)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_transcript(tmp_path / "transcript.db") as transcript:
        yield Desk(transcript, tmp_path / "workspace")


def turn(external_id: str = "t-1", user: str = "Use tabs here", **more: Any) -> dict[str, Any]:
    return {"external_id": external_id, "session": "s-1", "at": NOW, "user": user, "reply": "Done.", **more}


async def test_turn_is_written_once_with_project_and_source(desk: Desk) -> None:
    tools = [{"name": "Bash", "tool_use_id": "u", "input": {"command": "ls"}, "result": "a.py"}]
    assert await desk.take(turn(tools=tools, started_at=NOW - 5)) == Observed(1, 0, [])
    assert await desk.take(turn(tools=tools), turn("t-2"), turn("t-2")) == Observed(1, 2, [])
    first, second = await desk.turns()
    assert (first.project, first.source, first.trigger, first.outcome) == (PROJECT, "claude-code", "user", "complete")
    assert (first.user_message, first.agent_response, first.session_id) == ("Use tabs here", "Done.", "s-1")
    assert [(call["name"], call["result"]) for call in first.tool_calls] == [("Bash", "a.py")]
    assert (second.id, second.sequence_num) == (2, 2)
    assert desk.told == 2
    # The curator is woken when turns are pending, and not when none arrived.
    await desk.take(turn())
    assert desk.told == 2


async def test_ids_of_two_programs_never_collide(desk: Desk) -> None:
    await desk.take(turn("t-1"))
    assert await desk.take(turn("t-1"), source="codex") == Observed(1, 0, [])
    assert await desk.take(turn("t-1"), source="codex") == Observed(0, 1, [])
    assert [each.session_id for each in await desk.turns()] == ["s-1", "codex/s-1"]


async def test_turn_without_initiator_is_nobodys_words(desk: Desk) -> None:
    await desk.take(turn(user="  ", notice="a background task was done"))
    (kept,) = await desk.turns()
    assert (kept.trigger, kept.user_message, kept.notice) == ("task", "", "a background task was done")


REFUSED: list[tuple[dict[str, Any], str]] = [
    (turn(""), "external_id"),
    (turn("x" * 201), "external_id"),
    (turn("a\nb"), "external_id"),
    (turn("two words"), "Claude Code"),
    (turn(session="../up"), "session"),
    (turn(session=""), "session"),
    (turn(at=float("nan")), "time"),
    (turn(at=-5.0), "time"),
    (turn(at=NOW * 1000), "milliseconds"),
    (turn(user="", reply=" "), "turn is empty"),
    (turn(reply="é" * 600_000), "too large"),
    (turn(tools=[{"name": "Read", "result": "x" * 2001}] * 550), "too large"),
]


@pytest.mark.parametrize(("bad", "why"), REFUSED, ids=[why for _, why in REFUSED])
async def test_invalid_turn_is_refused_without_blocking_others(bad: dict[str, Any], why: str, desk: Desk) -> None:
    answer = await desk.take(turn("before"), bad, turn("after"))
    assert (answer.stored, answer.known) == (2, 0)
    assert [refused.external_id for refused in answer.refused] == [bad["external_id"]]
    assert why in answer.refused[0].why
    assert len(await desk.turns()) == 2


@pytest.mark.parametrize("project", ["../..", "..", "web", "", "/a/../b", "/a\n## Project: b", "/x" * 600, "a\u202eb"])
async def test_invalid_project_key_refuses_all_turns(project: str, desk: Desk) -> None:
    answer = await desk.take(turn("a"), turn("b"), project=project)
    assert (answer.stored, [refused.external_id for refused in answer.refused]) == (0, ["a", "b"])
    assert all("project is no key" in refused.why for refused in answer.refused)
    assert await desk.turns() == []


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("/home/ada/web/", "/home/ada/web"),
        ("/home/ada/My Project", "/home/ada/My Project"),
        ("C:\\Users\\ada\\web", "C:\\Users\\ada\\web"),
        ("https://github.com/ada/web.git", "https://github.com/ada/web.git"),
        ("git@github.com:ada/web.git", "git@github.com:ada/web.git"),
        ("ssh://git@github.com/ada/web/", "ssh://git@github.com/ada/web"),
        ("/home/ada/сайт", "/home/ada/сайт"),
    ],
)
def test_project_key_is_full_path_or_address(given: str, key: str) -> None:
    assert project_key(given) == key
    assert project_key(key) == key


@pytest.mark.parametrize(
    "given",
    ["https://ada:secret@github.com/ada/web", "https://ghp_x@github.com/ada/web", "https://h/a?token=x", "http://[::"],
)
def test_address_with_secret_is_no_key(given: str) -> None:
    with pytest.raises(PeerError, match="no key"):
        project_key(given)


async def test_sprite_workspace_project_is_personal(desk: Desk) -> None:
    await desk.take(turn(), project=f"{desk.workspace}/")
    (kept,) = await desk.turns()
    assert (kept.project, kept.source) == (None, "claude-code")


async def test_private_text_stays_out_of_later_calls(desk: Desk) -> None:
    """This holds within one conversation."""
    await desk.take(turn("a", user="Hi <private>my password is hunter2-xyz</private>"))
    await desk.take(turn("b", user="And now?", reply="I used hunter2-xyz as you said."))
    await desk.take(turn("c", session="s-2", user="Other", reply="hunter2-xyz is no word of this one."))
    first, second, other = await desk.turns()
    assert "hunter2" not in first.user_message
    assert "hunter2" not in second.agent_response
    assert "hunter2" in other.agent_response


async def test_secrets_and_sprite_token_are_redacted(desk: Desk) -> None:
    result = "key: sk-ant-api03-" + "Ab3" * 30 + "AA"
    own_secrets.hold("the-own-token-of-it")
    await desk.take(turn(reply="the-own-token-of-it", tools=[{"name": "Bash", "result": result}]))
    (kept,) = await desk.turns()
    assert "the-own-token" not in kept.agent_response
    assert "Ab3Ab3" not in str(kept.tool_calls)


async def test_off_record_request_applies_to_ingest(desk: Desk) -> None:
    assert await desk.take(turn(user="Off the record: I am ill.")) == Observed(1, 0, [])
    assert await desk.transcript.waiting_count() == 0
    assert desk.told == 0


async def test_conversation_recorded_by_sprite_is_not_extended(desk: Desk) -> None:
    await desk.transcript.start_session("own")
    await desk.transcript.link_cli_session("own", "cli-session")
    assert await desk.take(turn(session="cli-session")) == Observed(0, 1, [])
    answer = await desk.take(turn(session="own"), turn("t-2"))
    assert (answer.stored, [refused.external_id for refused in answer.refused]) == (1, ["t-1"])
    session = await desk.transcript.open_session()
    assert session is not None
    assert session.id == "own"


async def test_oversized_batch_or_invalid_source_is_refused_whole(desk: Desk) -> None:
    with pytest.raises(PeerError, match="too many"):
        await desk.take(*(turn(f"t-{n}") for n in range(MAX_OBSERVED_TURNS + 1)))
    for source in ("", "Claude Code", "x" * 41, "a/b", "a\n"):
        with pytest.raises(PeerError, match="not a valid program name"):
            await desk.take(turn(), source=source)
    assert await desk.turns() == []


async def test_concurrent_duplicates_are_written_once(desk: Desk) -> None:
    answers = await asyncio.gather(*(desk.take(turn(), turn(f"own-{n}")) for n in range(20)))
    assert sum(answer.stored for answer in answers) == 21
    assert len(await desk.turns()) == 21


async def test_calls_without_ids_are_kept_apart(desk: Desk) -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    tools = [{"name": "A", "result": {"n": 10**30, "deep": deep}}, {"name": "A", "input": "text", "result": "\x00b"}]
    assert await desk.take(turn(user="\x00Hi", tools=tools)) == Observed(1, 0, [])
    (kept,) = await desk.turns()
    assert [call["name"] for call in kept.tool_calls] == ["A", "A"]


async def test_memory_output_in_session_is_not_recorded(desk: Desk) -> None:
    boot = given(PROJECT, "- Ada likes oolong tea.")
    tools = [
        {"name": "mcp__plugin_sprite_sprite__search_memory", "input": {"query": "tea"}, "result": "Ada likes oolong"},
        {"name": "Bash", "input": {"command": "cat boot.md"}, "result": f"x\n{boot}y"},
        {"name": "mcp__sprite__ask_sprite", "input": {"text": "Which tea?"}, "result": "oolong"},
        {"name": "mcp__sprite__person_did", "input": {}, "result": "The person threw the tea away."},
    ]
    await desk.take(turn(user=f"{boot}What now?", reply=f"You said: {boot}", notice=boot, tools=tools), source="codex")
    (kept,) = await desk.turns()
    assert "oolong" not in f"{kept.user_message}{kept.agent_response}{kept.notice}{kept.tool_calls}"
    assert "What now?" in kept.user_message
    assert kept.tool_calls[0]["name"] == "mcp__sprite__search_memory"
    assert kept.tool_calls[1]["result"].endswith("\ny")
    assert kept.tool_calls[3]["name"] == "mcp__other_sprite__person_did", (
        "the sprite's own observation takes precedence"
    )
