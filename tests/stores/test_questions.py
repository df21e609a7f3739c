"""Permission questions: sent complete while open, and stored redacted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sprite.agent.permissions import MAX_OPEN_BYTES, Call, DeniedError, PermissionBroker, StandingRules
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.labels.outside import OutsideFiles
from sprite.labels.session import SessionLabel
from sprite.log.transcript import open_transcript
from sprite.protocol.events import TextDelta, ToolUse
from sprite.protocol.messages import MAX_FRAME_BYTES, CanvasUpdate
from sprite.protocol.shapes import Block
from sprite.workspace.database import WorkspaceDB, open_workspace
from sprite.workspace.feed import Feed

SECRET = "rm -rf documents"
COMMAND = f"echo <private>; {SECRET}; echo </private>"


@dataclass
class Scene:
    """A permission broker whose questions go to one client."""

    workspace: WorkspaceDB
    feed: Feed
    desk: PermissionBroker
    folder: Path
    heard: list[dict[str, Any]]
    came: asyncio.Event

    def ask(self, command: str, tool: str = "Bash") -> asyncio.Task[None]:
        return asyncio.create_task(self.desk.ask("m1", Call(tool, {"command": command}, self.folder)))

    async def question(self, count: int = 1) -> dict[str, Any]:
        """Return the newest question's event, once there are enough."""
        while len(asked := [event for event in self.heard if event["type"] == "permission_request"]) < count:
            self.came.clear()
            await self.came.wait()
        return asked[-1]

    async def replayed(self) -> list[dict[str, Any]]:
        """Return the events for a client that missed everything."""
        return [json.loads(frame) for _, frame in await self.feed.events_after(0)]

    async def on_disk(self) -> list[dict[str, Any]]:
        return [json.loads(frame) for _, frame in await self.workspace.events_after(0)]


@asynccontextmanager
async def scene_in(folder: Path) -> AsyncIterator[Scene]:
    async with open_workspace(folder / "workspace.db") as workspace, open_transcript(folder / "log.db") as transcript:
        label = SessionLabel(Settings(folder), transcript, OutsideFiles(workspace.file_changes, folder))
        feed = Feed(workspace, await workspace.last_seq())
        heard: list[dict[str, Any]] = []
        came = asyncio.Event()

        def hear(frame: bytes, _seq: int | None) -> None:
            heard.append(json.loads(frame))
            came.set()

        async with feed.running(lambda: None):
            feed.subscribe(hear)
            yield Scene(workspace, feed, PermissionBroker(feed, StandingRules(folder), label), folder, heard, came)


@pytest.fixture(name="scene")
async def _scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene_in(tmp_path) as scene:
        yield scene


async def test_question_is_complete_for_clients_redacted_on_disk(scene: Scene) -> None:
    """A client that connects later receives it complete as well."""
    asking = scene.ask(COMMAND)
    asked = await scene.question()
    assert asked["payload"]["input"] == {"command": COMMAND}
    assert scene.desk.questions()[0].input == {"command": COMMAND}
    assert await scene.replayed() == [asked]
    (kept,) = await scene.on_disk()
    assert SECRET not in json.dumps(kept)
    assert (kept["seq"], kept["payload"]["redacted"], kept["payload"]["always"]) == (asked["seq"], True, None)

    scene.desk.answer(asked["payload"]["request_id"], "allow")
    await asking
    await scene.feed.drain()
    assert SECRET not in json.dumps(await scene.replayed())
    assert [event["type"] for event in await scene.replayed()] == ["permission_request", "permission_resolved"]


async def test_question_of_ended_process_is_replayed_redacted(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        asking = scene.ask(COMMAND)
        await scene.question()
        asking.cancel()
    async with scene_in(tmp_path) as scene:
        assert (await scene.replayed())[0]["payload"]["redacted"] is True
        assert SECRET not in json.dumps(await scene.replayed())


async def test_always_without_narrow_rule_is_once(scene: Scene) -> None:
    for count in (1, 2):
        asking = scene.ask("https://example.org", "WebFetch")
        payload = (await scene.question(count))["payload"]
        assert payload["always"] is None
        scene.desk.answer(payload["request_id"], "always")
        await asking
        await scene.feed.drain()
        assert scene.heard[-1]["payload"]["decision"] == "allow"
    assert scene.desk.rules.listed() == []


async def test_always_allows_command_until_revoked_or_session_end(scene: Scene) -> None:
    rules = scene.desk.rules
    for count in (1, 2):
        asking = scene.ask(COMMAND)
        scene.desk.answer((await scene.question(count))["payload"]["request_id"], "always")
        await asking
        await scene.ask(COMMAND)
        (rule,) = rules.listed()
        assert rule.command == COMMAND
        if count == 1:
            rules.revoke(rule.rule_id)
    scene.desk.rules.revoke(None)
    asking = scene.ask(COMMAND)
    scene.desk.answer((await scene.question(3))["payload"]["request_id"], "deny")
    with pytest.raises(DeniedError, match="said no"):
        await asking


@pytest.mark.parametrize(
    ("command", "words"), [("x" * MAX_OPEN_BYTES, "too long to be shown whole"), ("ls \ud800", "cannot be shown")]
)
async def test_question_too_large_to_show_is_denied(scene: Scene, command: str, words: str) -> None:
    with pytest.raises(DeniedError, match=words):
        await scene.ask(command)
    await scene.feed.drain()
    assert scene.heard == []


async def test_open_questions_fit_initial_state_together(scene: Scene) -> None:
    long = "x" * (MAX_OPEN_BYTES // 2 - 1000)
    first, second = scene.ask(f"1{long}"), scene.ask(f"2{long}")
    await scene.question(2)
    with pytest.raises(DeniedError, match="Other long questions wait"):
        await scene.ask(f"3{long}")
    assert len(json.dumps([question.input for question in scene.desk.questions()])) < MAX_FRAME_BYTES // 2
    scene.desk.withdraw("m1")
    for asking in (first, second):
        with pytest.raises(DeniedError):
            await asking
    asking = scene.ask(f"4{long}")
    scene.desk.answer((await scene.question(3))["payload"]["request_id"], "allow")
    await asking


async def test_redirecting_path_is_shown_and_pinned(scene: Scene) -> None:
    """The target may not change while the question is open."""
    (scene.folder / "far").mkdir()
    link = scene.folder / "near"
    link.symlink_to("far")
    call = Call("Write", {"file_path": str(link / "a.txt"), "content": ""}, scene.folder)
    asking = asyncio.create_task(scene.desk.ask("m1", call))
    asked = (await scene.question())["payload"]
    assert asked["real_path"] == str((scene.folder / "far/a.txt").resolve())
    link.unlink()
    link.symlink_to("/etc")
    scene.desk.answer(asked["request_id"], "always")
    with pytest.raises(DeniedError, match="path changed after"):
        await asking
    assert scene.desk.rules.listed() == []


async def test_question_is_answered_once(scene: Scene) -> None:
    asking = scene.ask("make")
    request_id = (await scene.question())["payload"]["request_id"]
    scene.desk.answer(request_id, "allow")
    with pytest.raises(PeerError, match="not open any more"):
        scene.desk.answer(request_id, "deny")
    await asking


async def test_deep_event_silences_no_other(scene: Scene) -> None:
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]
    scene.feed.publish(TextDelta("m-1", "before"))
    scene.feed.publish(ToolUse("m-1", "t1", "Read", {"deep": deep}))
    scene.feed.publish(CanvasUpdate("create_card", "c", "s", "A card", "text", [Block("b", "text", {"deep": deep})]))
    scene.feed.publish(TextDelta("m-1", "after"))
    await scene.feed.drain()
    before, card, after = await scene.on_disk()
    assert (before["payload"]["text"], after["payload"]["text"]) == ("before", "after")
    assert "nested too deeply" in json.dumps(card["payload"]["blocks"])
