"""The scheduler on real stores, with a clock set by the test; the test decides when a mission ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sprite.agent.background import Background
from sprite.agent.mission_end import rows as end_rows
from sprite.agent.options import Agent
from sprite.agent.permissions import PermissionBroker, StandingRules
from sprite.agent.runtime import AgentRuntime
from sprite.agent.session import Session
from sprite.boot.canvas import CanvasContext
from sprite.boot.prompt import BootPrompt
from sprite.capture.recorder import TurnRecorder
from sprite.config import Settings
from sprite.curation.processor import ObservationProcessor
from sprite.errors import AgentError
from sprite.labels.outside import OutsideFiles
from sprite.labels.session import SessionLabel
from sprite.log.transcript import Outcome
from sprite.memory.actions import Actions
from sprite.memory.decision import Action
from sprite.privacy.private_text import PrivateText
from sprite.protocol.events import AnyEnding, Complete, Failed, Interrupted
from sprite.scheduler.scheduler import Scheduler
from sprite.workspace.database import MissionMoved, StoredMission, WorkspaceDB, open_workspace
from sprite.workspace.feed import Feed
from tests.memory_stores import Stores, open_stores

#: Tue 2026-12-01 09:00 UTC.
NINE = 1_796_115_600.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@dataclass
class Clock:
    """A wall clock set by the test."""

    now: float = NINE

    def __call__(self) -> float:
        return self.now


@dataclass
class Scheduling:
    """The scheduler components of `server.py`, without the agent."""

    clock: Clock
    stores: Stores
    actions: Actions
    workspace: WorkspaceDB
    feed: Feed
    runtime: AgentRuntime
    scheduler: Scheduler
    #: Everything published, in order.
    published: list[dict[str, Any]]

    async def add(self, content: str = "Water the plants", *, after: float = 0.0, **more: Any) -> Action:
        """Add a person's action, due in the given number of seconds."""
        return await self.actions.add(content, **{"by": "person", "due": self.clock.now + after, **more})

    async def action(self, action: Action) -> Action:
        """Return the action in its current state."""
        return await self.actions.action(action.id)

    async def look(self, *, later: float = 0.0) -> None:
        """Run the scheduler, the given number of seconds later."""
        self.clock.now += later
        await self.scheduler.look()

    async def waiting(self) -> list[StoredMission]:
        """Return the missions queued on disk."""
        await self.feed.drain()
        return await self.workspace.open_missions()

    async def end(
        self, outcome: Outcome = "complete", *, code: str = "", cost: float | None = 0.01, starts: bool = True
    ) -> StoredMission:
        """Run the first queued mission to its end, as far as the disk is concerned; return it."""
        mission = (await self.waiting())[0]
        if starts:
            await self.workspace.record([], [MissionMoved(mission.id, "running", "s")])
        event: AnyEnding = Complete(mission.id, "Done.", None, cost, 1)
        if outcome == "interrupted":
            event = Interrupted(mission.id)
        elif outcome != "complete":
            event = Failed(mission.id, code, "The model said no.", retryable=True)
        effects = end_rows(mission.id, outcome, "Done.", event, origin="schedule", cost=(cost, 0.0))
        await self.workspace.record([], effects)
        return mission

    async def runs(self) -> list[str]:
        """Return the scheduled missions that ran, from the lines of chat."""
        return [line.text for line in await self.workspace.chat(1000) if line.role == "user"]


@asynccontextmanager
async def scheduling(folder: Path, clock: Clock | None = None, **settings: Any) -> AsyncIterator[Scheduling]:
    """Open (or reopen, as after a kill) a workspace without running the scheduler."""
    clock = clock or Clock()
    async with AsyncExitStack() as stack:
        chosen = Settings(folder, **{"prewarm_seconds": 0, **settings})
        chosen.run.mkdir(parents=True, exist_ok=True)
        stores = await stack.enter_async_context(open_stores(folder))
        workspace = await stack.enter_async_context(open_workspace(folder / "workspace.db"))
        feed = Feed(workspace, await workspace.last_seq())
        await stack.enter_async_context(feed.running(asyncio.Event().set))
        published: list[dict[str, Any]] = []
        stack.callback(feed.subscribe(lambda frame, _seq: published.append(_decoded(frame))))
        actions = Actions(stores.projection, stores.memory, clock=clock)
        runtime = _runtime(chosen, stores, workspace, feed)
        await runtime.restore()
        scheduler = Scheduler(actions, stores.transcript.curations, workspace, feed, runtime, chosen, clock)
        yield Scheduling(clock, stores, actions, workspace, feed, runtime, scheduler, published)


def _decoded(frame: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(frame)
    return message


def _runtime(settings: Settings, stores: Stores, workspace: WorkspaceDB, feed: Feed) -> AgentRuntime:
    private_text = PrivateText()
    recorder = TurnRecorder(stores.transcript, lambda _words: None, private_text)
    boot_prompt = BootPrompt(stores.files, stores.memory, stores.transcript)

    async def no_agent() -> Agent:
        raise AgentError("There is no agent here.")

    background = Background(private_text.others)
    session = Session(
        settings, stores.transcript, recorder, boot_prompt, no_agent, background, CanvasContext(workspace)
    )
    processor = ObservationProcessor(
        settings,
        stores.transcript,
        stores.memory,
        stores.projection,
        lambda _change: None,
        is_left=lambda: True,
    )
    label = SessionLabel(settings, stores.transcript, OutsideFiles(workspace.file_changes, settings.workspace))
    desk = PermissionBroker(feed, StandingRules(settings.workspace), label)
    return AgentRuntime(stores.transcript, workspace, feed, recorder, processor, session, desk, settings)


def history(action: Action) -> Sequence[str]:
    """Return an action's history."""
    return [str(entry["what"]) for entry in json.loads(action.history_json)]
