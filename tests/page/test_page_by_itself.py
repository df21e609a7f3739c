"""What the page shows of turns and work that no person began, in a real browser.

Moments that the real sprite passes too quickly or too rarely come by hand; the real sprite stands below them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, WebSocketRoute, expect

from tests.looks import eventually
from tests.page_harness import (
    PageStack,
    ask,
    needs_chromium,
    page_stack,
    ready,
    shoot,
    violations,
)

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

IDLE = {"session_id": "s1", "started_at": 1.0, "turns": 1, "running_mission_id": None, "queued": 0}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("itself"), "--permissions", "ask") as found:
        yield found
        assert found.complaints == []


class Wire:
    """Stands in the page's connection: adds to what the sprite says, keeps what the page asks."""

    def __init__(self) -> None:
        self.sync: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.quarantined: list[dict[str, Any]] = []
        self.attention: list[str] = []
        self._route: WebSocketRoute | None = None

    async def open(self, stack: PageStack, context: BrowserContext) -> Page:
        await context.route_web_socket("**/ws", self._routed)
        return await stack.open(context)

    def say(self, kind: str, reply_to: str | None = None, /, **payload: Any) -> None:
        assert self._route is not None
        message = {"type": kind, "id": "x", "timestamp": round(time.time() * 1000), "payload": payload}
        if reply_to is not None:
            message["reply_to"] = reply_to
        self._route.send(json.dumps(message))

    def event(self, event: str, mission_id: str, **fields: Any) -> None:
        self.say("agent_event", event=event, mission_id=mission_id, **fields)

    def went_on(self) -> list[bool]:
        """For each Go on, whether it was to raise today's limit."""
        asked = [message["payload"] for message in self.asked]
        return [payload["raise_limit"] for payload in asked if payload.get("action") == "go_on"]

    def _routed(self, route: WebSocketRoute) -> None:
        self._route = route
        server = route.connect_to_server()

        def up(frame: str | bytes) -> None:
            message = json.loads(frame)
            if message["payload"].get("op") == "retry":
                self.asked.append(message)
                self.quarantined = []
                self.say("memory_result", message["id"], op="retry", quarantined=[])
                return
            if (answer := self.answers.get(message["type"])) is None:
                server.send(frame)
                return
            self.asked.append(message)
            ack = {"type": "ack", "id": "a", "timestamp": 1, "reply_to": message["id"], "payload": answer}
            route.send(json.dumps(ack))

        def down(frame: str | bytes) -> None:
            message = json.loads(frame)
            if message["type"] == "state_sync":
                message["payload"].update(self.sync)
            elif message["type"] == "status" and "session" in self.sync:
                message["payload"]["session"] = self.sync["session"]
            elif message["payload"].get("op") == "health":
                message["payload"]["health"].update(quarantined=self.quarantined, attention=self.attention)
            route.send(json.dumps(message))

        route.on_message(up)
        server.on_message(down)


def begins(stack: PageStack, words: str, until: str, title: str) -> None:
    """What the model does at these words: it starts a command in the background that runs until there is a file."""
    command = f"until [ -e {until} ]; do sleep 0.05; done"
    arguments = {"command": command, "description": title, "run_in_background": True}
    call = {"type": "tool_use", "name": "Bash", "input": arguments}
    stack.model.script.agent({"match": words, "on": "prompt", "blocks": [call]})


# --- the sprite's word by hand ---


async def test_a_turn_of_the_agents_own_is_shown_stopped_and_there_after_a_reload(stack: PageStack) -> None:
    wire = Wire()
    wire.answers["interrupt"] = {"status": "done", "stopped": [{"id": "t1", "kind": "turn"}]}
    async with stack.context() as context:
        page = await wire.open(stack, context)
        wire.event("started", "t1", origin="agent")
        own = page.locator(".thread-list .exchange[data-mission=t1]")
        await expect(own.get_by_role("heading", name="Sprite, by itself")).to_be_visible()
        await expect(page.locator(".run-words")).to_have_text("Thinking")
        wire.event("tool_use", "t1", tool_use_id="u1", name="Bash", input={"command": "cat log"})
        await expect(page.locator(".run-words")).to_have_text("Running a command")
        await page.locator(".run-state").get_by_role("button", name="Stop").click()
        await expect(page.locator(".run-words")).to_have_text("Stopping")
        assert wire.asked[-1]["payload"] == {"mission_id": "t1"}
        wire.event("interrupted", "t1")
        await expect(own).to_contain_text("Stopped.")
        await expect(page.locator(".run-state")).to_have_attribute("data-kind", "idle")

        wire.event("started", "t2", origin="agent")
        wire.event("text", "t2", text="The tests are green.")
        wire.event("complete", "t2", text="The tests are green.", usage=None, cost_usd=None, duration_ms=5)
        await expect(page.locator(".run-state")).to_have_attribute("data-kind", "idle")
        await expect(page.locator(".run-state").get_by_role("button", name="Stop")).to_be_hidden()
        tools = [
            {"name": "Bash", "title": "cat log", "is_error": False},
            {"name": "Read", "title": "/workspace/gone", "is_error": True},
        ]
        said = {"id": 1, "role": "assistant", "text": "The tests are green.", "at": time.time(), "mission_id": "t2"}
        wire.sync = {"chat": [{**said, "origin": "agent", "tools": tools}], "session": IDLE}
        await page.reload()
        await ready(page)
        kept = page.locator(".thread-list .exchange[data-mission=t2]")
        await expect(kept).to_contain_text("Sprite, by itself")
        await expect(kept).to_contain_text("The tests are green.")
        rows = kept.locator(".tool")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("Ran a command")
        await expect(rows.first).to_contain_text("cat log")
        await expect(rows.last).to_have_attribute("data-state", "failed")
        await rows.first.locator("summary").click()
        await expect(rows.first).to_contain_text("timeline has the call and its result whole.")
        assert await violations(page) == []
        await shoot(page, "by-itself")


async def test_while_a_mission_waits_for_the_agents_own_turn_the_line_stays_true(stack: PageStack) -> None:
    wire = Wire()
    async with stack.context() as context:
        page = await wire.open(stack, context)
        wire.event("started", "m1", origin="person")
        wire.event("started", "t1", origin="agent")
        wire.event("text", "t1", text="First this.")
        wire.event("complete", "t1", text="First this.", usage=None, cost_usd=None, duration_ms=5)
        await expect(page.locator(".thread-list")).to_contain_text("First this.")
        await expect(page.locator(".run-state")).to_have_attribute("data-kind", "busy")
        await expect(page.locator(".run-state").get_by_role("button", name="Stop")).to_be_visible()
        wire.event("complete", "m1", text="Then that.", usage=None, cost_usd=None, duration_ms=5)
        await expect(page.locator(".run-state")).to_have_attribute("data-kind", "idle")


async def test_work_in_the_background_has_its_line_and_its_stop(stack: PageStack) -> None:
    wire = Wire()
    wire.answers["interrupt"] = {"status": "done", "stopped": [{"id": "b1", "kind": "command"}]}
    async with stack.context() as context:
        page = await wire.open(stack, context)
        line = page.get_by_role("group", name="In the background")
        await expect(line).to_be_hidden()
        work = {"id": "b1", "kind": "command", "title": "npm test", "since": time.time() - 3600}
        wire.sync = {"session": {**IDLE, "background": [work], "held_until": time.time() + 600}}
        wire.say("session_update", session=wire.sync["session"])
        await expect(line).to_contain_text("npm test 1:0")
        await expect(line).to_contain_text("In the background, awake until")
        # A stop without an id would stop the person's mission.
        wire.event("started", "m1", origin="person")
        stop = line.get_by_role("button", name="Stop what goes on in the background")
        await expect(stop).to_be_hidden()
        wire.event("complete", "m1", text="Begun.", usage=None, cost_usd=None, duration_ms=5)
        await expect(stop).to_be_visible()
        assert await violations(page) == []
        await shoot(page, "background")
        wire.event("started", "t1", origin="agent")
        await expect(line.get_by_role("button", name="Stop all")).to_be_visible()
        wire.event("complete", "t1", text="Meanwhile.", usage=None, cost_usd=None, duration_ms=5)
        await stop.click()
        await expect(page.locator(".toast")).to_contain_text("Stopped: npm test")
        assert wire.asked[-1]["payload"] == {}
        wire.sync = {"session": IDLE}
        wire.say("session_update", session=IDLE)
        await expect(line).to_be_hidden()


async def test_what_outlives_its_turn_is_not_called_stopped_and_may_still_ask(stack: PageStack) -> None:
    wire = Wire()
    question = {"mission_id": "m1", "tool": "Bash", "input": {"command": "rm old"}}
    async with stack.context() as context:
        page = await wire.open(stack, context)
        wire.event("started", "m1", origin="person")
        wire.event("tool_use", "m1", tool_use_id="u1", name="Bash", input={"command": "make all"})
        wire.say("permission_request", **question, request_id="r0", background=False)
        wire.say("permission_request", **question, request_id="r1", background=True)
        wire.event("complete", "m1", text="It goes on.", usage=None, cost_usd=None, duration_ms=5)
        row = page.locator(".thread-list .tool")
        await expect(row).to_have_attribute("data-state", "done")
        await expect(row).not_to_contain_text("stopped")
        await expect(page.locator(".question").first).to_contain_text("Nobody answered in time")
        await expect(page.locator(".run-words")).to_have_text("Waiting for your answer")
        wire.event("started", "t1", origin="agent")
        wire.event("tool_result", "t1", tool_use_id="u1", is_error=False, summary="built in 3 s")
        await row.locator("summary").click()
        await expect(row).to_contain_text("built in 3 s")
        wire.say("permission_resolved", request_id="r1", decision="deny")
        await expect(page.locator(".question").last).to_contain_text("Not allowed")


async def test_a_question_of_very_many_lines_is_drawn_to_its_end(stack: PageStack) -> None:
    wire = Wire()
    command = "\n" * 120_000 + "touch at-the-end"
    async with stack.context() as context:
        page = await wire.open(stack, context)
        wire.event("started", "m1", origin="person")
        question = {"mission_id": "m1", "tool": "Bash", "input": {"command": command}}
        wire.say("permission_request", **question, request_id="r0", background=False)
        await expect(page.locator(".question")).to_contain_text("characters in 120,001 lines")
        assert await page.locator(".asked pre").text_content() == command


async def test_a_turn_that_was_set_aside_stands_in_health_and_can_be_tried_again(stack: PageStack) -> None:
    wire = Wire()
    wire.quarantined = [{"turn_id": 12, "reason": "The model refused it.", "at": time.time()}]
    wire.attention = ["the disk is nearly full: 20 MiB are free"]
    async with stack.context() as context:
        page = await wire.open(stack, context)
        await page.get_by_role("tab", name="Memory").locator("visible=true").click()
        await page.get_by_role("tab", name="Health").click()
        aside = page.get_by_role("group", name="Turn 12, set aside")
        await expect(aside).to_contain_text("The model refused it.")
        await expect(page.get_by_role("alert").filter(has_text="This asks for you")).to_contain_text("20 MiB are free")
        assert await violations(page) == []
        await aside.get_by_role("button", name="Try again").click()
        await expect(page.locator(".toast")).to_contain_text("Turn 12 waits to be learned from again.")
        await expect(aside).to_have_count(0)
        assert wire.asked[-1]["payload"] == {"op": "retry", "turn_id": 12}


# --- the real sprite ---


async def test_a_background_command_is_shown_until_it_ends_and_what_the_agent_says_then_stays(stack: PageStack) -> None:
    begins(stack, "Begin the build", "built", "the build")
    async with stack.page() as page:
        await ask(page, "Begin the build")
        line = page.get_by_role("group", name="In the background")
        await expect(line).to_contain_text(re.compile(r"the build \d+:\d\d"))
        await expect(line).to_contain_text("In the background, awake until")
        (stack.workspace / "built").touch()
        own = page.locator(".thread-list .exchange").last
        await expect(own.get_by_role("heading", name="Sprite, by itself")).to_be_visible()
        await expect(own).to_have_attribute("data-status", "complete")
        await expect(line).to_be_hidden()
        begun = page.locator(".thread-list .exchange", has_text="Begin the build").first
        await expect(begun.locator(".tool")).to_have_attribute("data-state", "done")
        said = await own.locator(".prose").inner_text()
        await page.reload()
        await ready(page)
        await expect(own.get_by_role("heading", name="Sprite, by itself")).to_be_visible()
        await expect(own.locator(".prose")).to_have_text(said)
        await expect(begun.locator(".tool")).to_contain_text("until [ -e built ]")
        await expect(begun.locator(".tool")).to_have_attribute("data-state", "done")
        await shoot(page, "own-turn")


async def test_a_background_command_is_stopped_by_its_stop_and_named(stack: PageStack) -> None:
    begins(stack, "Watch the log", "never", "the log")
    async with stack.page() as page:
        await ask(page, "Watch the log")
        await page.get_by_role("button", name="Stop what goes on in the background").click()
        await expect(page.locator(".toast")).to_contain_text("Stopped: the log")
        await expect(page.get_by_role("group", name="In the background")).to_be_hidden()


async def test_a_question_of_a_background_agent_is_answered_after_the_turns_end_and_a_reload(stack: PageStack) -> None:
    async with stack.page() as page:
        await ask(page, "use a subagent to run `touch late`")
        question = page.get_by_role("group", name="May Sprite run a command?")
        await expect(question).to_contain_text("touch late")
        await expect(page.locator(".run-words")).to_have_text("Waiting for your answer")
        await page.reload()
        await ready(page)
        await page.get_by_role("button", name="Show it").click()
        allow = question.get_by_role("button", name="Allow once")
        await expect(allow).to_be_focused()
        await allow.press("Enter")
        await expect(question).to_contain_text("Allowed")
        await expect(page.get_by_role("button", name="Show it")).to_be_hidden()
        own = page.locator(".thread-list .exchange").last
        await expect(own.get_by_role("heading", name="Sprite, by itself")).to_be_visible()
        await expect(own).to_have_attribute("data-status", "complete")
        assert (stack.workspace / "late").exists()


async def test_reminder_begun_again_shows_its_reply_once(stack: PageStack) -> None:
    wire = Wire()
    async with stack.context() as context:
        page = await wire.open(stack, context)
        wire.event("started", "s1", origin="schedule")
        wire.event("text", "s1", text="Call the dentist.")
        turn = page.locator(".thread-list .exchange[data-mission=s1]")
        await expect(turn).to_contain_text("Call the dentist.")
        wire.event("started", "s1", origin="schedule", attempt=2)
        await expect(turn).to_contain_text("Begun again: Sprite was stopped before it had done anything.")
        await expect(turn).not_to_contain_text("Call the dentist.")
        wire.event("text", "s1", text="Call the dentist.")
        wire.event("complete", "s1", text="Call the dentist.", usage=None, cost_usd=None, duration_ms=5)
        await expect(turn).to_have_attribute("data-status", "complete")
        await expect(turn.get_by_text("Call the dentist.")).to_have_count(1)


async def test_paused_agent_says_why_and_goes_on(stack: PageStack) -> None:
    wire = Wire()
    wire.answers["system"] = {"action": "go_on"}
    async with stack.context() as context:
        page = await wire.open(stack, context)
        line = page.get_by_role("group", name="Paused")
        await expect(line).to_be_hidden()
        paused = {"why": "Sprite went on by itself for 5 turns.", "by": "turns", "since": time.time()}
        wire.say("session_update", session={**IDLE, "paused": paused})
        await expect(line).to_contain_text("Sprite went on by itself for 5 turns.")
        await line.get_by_role("button", name="Go on").click()
        await eventually(lambda: wire.went_on() == [False], "nothing is asked")
        assert await violations(page) == []
        await shoot(page, "paused")
        paused |= {"why": "The day's budget of $10.00 is used up.", "by": "budget"}
        wire.say("session_update", session={**IDLE, "paused": paused})
        await line.get_by_role("button", name="limit and go on").click()
        await eventually(lambda: wire.went_on() == [False, True], "nothing is asked")
        wire.say("session_update", session={**IDLE, "paused": None})
        await expect(line).to_be_hidden()


async def test_what_a_schedule_began_is_a_line_of_its_own_live_and_after_a_reload(stack: PageStack) -> None:
    wire = Wire()
    async with stack.context() as context:
        page = await wire.open(stack, context)
        text = "Water the ficus\nand tell me how it looks"
        wire.say("chat_said", mission_id="s1", role="user", text=text, at=time.time(), origin="schedule")
        wire.event("started", "s1", origin="schedule")
        turn = page.locator(".thread-list .exchange[data-mission=s1]")
        await expect(turn.locator("summary")).to_contain_text("By schedule: Water the ficus")
        await expect(turn.get_by_text("and tell me how it looks")).to_be_hidden()
        await turn.locator("summary").click()
        await expect(turn.get_by_text("and tell me how it looks")).to_be_visible()
        wire.event("error", "s1", code="model", message="The model is out.", retryable=True)
        await expect(turn).to_contain_text("The model is out.")
        # The schedule tries again; a person would say it as their own.
        await expect(turn.get_by_role("button", name="Try again")).to_have_count(0)

        said = {"id": 1, "role": "user", "text": "Water the ficus", "at": time.time(), "mission_id": "s2"}
        answer = {**said, "id": 2, "role": "assistant", "text": "Done."}
        wire.sync = {"chat": [{**row, "origin": "schedule", "tools": []} for row in (said, answer)], "session": IDLE}
        await page.reload()
        await ready(page)
        kept = page.locator(".thread-list .exchange[data-mission=s2]")
        await expect(kept.locator(".by-schedule")).to_have_text("By schedule: Water the ficus")
        await expect(kept).to_contain_text("Done.")
        assert await violations(page) == []
        await shoot(page, "by-schedule")


async def test_what_a_program_asked_is_not_shown_as_the_persons_and_cannot_become_it(stack: PageStack) -> None:
    wire = Wire()
    async with stack.context() as context:
        page = await wire.open(stack, context)
        wire.event("started", "m0")
        wire.say("chat_said", mission_id="p1", role="user", text="Pay Kraken", at=time.time(), asked_by="planner")
        turn = page.locator(".thread-list .exchange[data-mission=p1]")
        await expect(turn).to_contain_text("planner asks: Pay Kraken")
        # Taking it back is the person's right; edited and sent, it would be their word.
        await expect(turn.get_by_role("button", name="Remove")).to_be_visible()
        await expect(turn.get_by_role("button", name="Edit")).to_have_count(0)
        wire.event("complete", "m0", text="")
        wire.event("started", "p1")
        wire.event("error", "p1", code="model", message="The model is out.", retryable=True)
        await expect(turn).to_contain_text("The model is out.")
        await expect(turn.get_by_role("button", name="Try again")).to_have_count(0)

        said = {"id": 1, "role": "user", "text": "Pay Kraken", "at": time.time(), "mission_id": "p2"}
        answer = {**said, "id": 2, "role": "assistant", "text": "Done."}
        wire.sync = {"chat": [{**said, "asked_by": "planner"}, answer], "session": IDLE}
        await page.reload()
        await ready(page)
        kept = page.locator(".thread-list .exchange[data-mission=p2]")
        await expect(kept).to_contain_text("planner asks: Pay Kraken")
        await expect(kept).to_contain_text("Done.")
        assert await violations(page) == []
        await shoot(page, "by-program")
