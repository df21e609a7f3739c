"""Background turns and work on the page, in a real browser.

Tests with the real sprite come first; states that it passes too quickly or too rarely follow with scripted messages.
All share one window.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Locator, Page, WebSocketRoute, expect

from tests.looks import eventually
from tests.page_harness import PageStack, ask, needs_chromium, page_stack, ready, say, settled, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

IDLE = {"session_id": "s1", "started_at": 1.0, "turns": 1, "running_mission_id": None, "queued": 0}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("itself"), "--permissions", "ask") as found:
        yield found
        assert found.complaints == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(stack: PageStack) -> AsyncIterator[tuple[Page, Wire]]:
    """Open one page for all tests, with its connection."""
    async with stack.context() as context:
        wire = Wire()
        yield await wire.open(stack, context), wire


@pytest.fixture
def page(window: tuple[Page, Wire]) -> Page:
    return window[0]


@pytest_asyncio.fixture(loop_scope="session")
async def wire(window: tuple[Page, Wire]) -> AsyncIterator[Wire]:
    """Return the page's connection; a test's changes to it are reset afterwards."""
    _, wire = window
    wire.is_by_hand = True
    yield wire
    wire.reset()
    wire.say("session_update", session=IDLE)


class Wire:
    """Intercepts the page's connection: adds messages of the sprite, and records the page's requests."""

    def __init__(self) -> None:
        self._route: WebSocketRoute | None = None
        #: The age of what it says, in seconds.
        self.age = 0
        self.reset()

    def reset(self) -> None:
        """Pass everything through unchanged."""
        #: Whether only the test sets the session state, and the state that it set last.
        self.is_by_hand = False
        self.session: dict[str, Any] | None = None
        self.sync: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.quarantined: list[dict[str, Any]] = []
        self.attention: list[str] = []
        self.plan: list[dict[str, Any]] | None = None
        #: The learning as it is after the person's word on it.
        self.answered: dict[str, Any] = {}

    async def open(self, stack: PageStack, context: BrowserContext) -> Page:
        await context.route_web_socket("**/ws", self._routed)
        return await stack.open(context)

    def say(self, kind: str, reply_to: str | None = None, /, **payload: Any) -> None:
        assert self._route is not None
        message = {"type": kind, "id": "x", "timestamp": round((time.time() - self.age) * 1000), "payload": payload}
        if kind == "session_update":
            self.session = payload["session"]
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
            if message["payload"].get("op") == "learning":
                self.asked.append(message)
                self.say("memory_result", message["id"], op="learning", learning=self.answered)
                self.say("memory_update", curation_id=8, learnings=[], files=[], drift=[], answered=[self.answered])
                return
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
            if message["type"] == "session_update" and self.is_by_hand:
                return
            if message["type"] == "state_sync":
                message["payload"].update(self.sync)
            elif message["type"] == "status" and self.is_by_hand and self.session is not None:
                # The page asks for it a moment after the last turn, maybe of an earlier test.
                message["payload"]["session"] = self.session
            elif message["payload"].get("op") == "health":
                health = message["payload"]["health"]
                health.update(quarantined=self.quarantined, attention=self.attention)
                health["spend"]["plan"] = self.plan
            route.send(json.dumps(message))

        route.on_message(up)
        server.on_message(down)


def command(until: str, title: str) -> dict[str, Any]:
    """Return a background command that runs until a file exists."""
    arguments = {"command": f"until [ -e {until} ]; do sleep 0.05; done", "description": title}
    return {"type": "tool_use", "name": "Bash", "input": {**arguments, "run_in_background": True}}


def build(page: Page) -> Locator:
    """Return the call that began the build."""
    return page.locator(".thread-list .exchange", has_text="Begin the build").first.locator(".tool").first


# --- the real sprite ---


async def test_background_commands_are_shown_and_stopped(stack: PageStack, page: Page) -> None:
    """One ends by itself, the other is stopped with a button."""
    blocks = [command("built", "the build"), command("never", "the log")]
    stack.model.script.agent({"match": "Begin the build", "on": "prompt", "blocks": blocks})
    await say(page, "Begin the build")
    questions = page.get_by_role("group", name="May Sprite run a command?")
    for answered in (1, 2):
        await questions.get_by_role("button", name="Allow once").first.click()
        await expect(page.locator(".tool", has_text="you allowed it")).to_have_count(answered)
    await expect(questions).to_have_count(0)
    await settled(page, "Begin the build")
    line = page.get_by_role("group", name="In the background")
    await expect(line).to_contain_text(re.compile(r"the build \d+:\d\d"))
    await expect(line).to_contain_text(re.compile(r"the log \d+:\d\d"))
    await expect(line).to_contain_text("In the background, awake until")
    (stack.workspace / "built").touch()
    own = page.locator(".thread-list .exchange").last
    await expect(own.get_by_role("heading", name="Sprite, by itself")).to_be_visible()
    await expect(own).to_have_attribute("data-status", "complete")
    await expect(line).not_to_contain_text("the build")
    await page.get_by_role("button", name="Stop the background work").click()
    await expect(page.locator(".toast", has_text="Stopped: the log")).to_be_visible()
    await expect(line).to_be_hidden()
    await expect(build(page)).to_have_attribute("data-state", "done")


async def test_background_agents_question_is_answered_later(stack: PageStack, page: Page) -> None:
    """The answer comes after the turn's end and a reload, which keeps the earlier turns."""
    own = page.locator(".thread-list .exchange", has=page.get_by_role("heading", name="Sprite, by itself"))
    said = await own.first.locator(".prose").inner_text()
    await ask(page, "use a subagent to run `touch late`")
    question = page.get_by_role("group", name="May Sprite run a command?").last
    await expect(question).to_contain_text("touch late")
    await expect(page.locator(".run-words")).to_have_text("Waiting for your answer")
    await page.reload()
    await ready(page)
    await expect(own.first.locator(".prose")).to_have_text(said)
    await expect(build(page)).to_contain_text("until [ -e built ]")
    await expect(build(page)).to_have_attribute("data-state", "done")
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


# --- scripted messages of the sprite ---


async def test_cut_off_message_is_sent_again(page: Page, wire: Wire) -> None:
    words = "The model answers with status 529. Trying again, for some minutes if necessary."
    wire.say("chat_said", mission_id="c1", role="user", text="Hello after the cut", at=time.time())
    wire.event("started", "c1", origin="person")
    wire.age = 60
    wire.event("text_delta", "c1", text="Half a")
    await expect(page.locator(".run-words")).to_have_text("Waiting for the rest of the reply")
    await expect(page.locator(".run-clock")).to_have_text(re.compile(r"1:0\d"))
    wire.say("error", code="model_away", message=words)
    wire.age = 0
    await expect(page.locator(".run-words")).to_have_text(words)
    await expect(page.locator(".run-clock")).to_have_text(re.compile(r"1:0\d"))
    wire.event("error", "c1", code="crashed", message="The sprite was stopped in the middle of this.", retryable=True)
    problem = page.locator(".exchange[data-mission=c1] .problem")
    await expect(problem).to_contain_text("stopped in the middle of this")
    await problem.get_by_role("button", name="Try again").click()
    await settled(page, "Hello after the cut")
    again = page.locator(".exchange", has_text="Hello after the cut")
    await expect(again).to_have_count(2)
    await expect(again.last).to_have_attribute("data-status", "complete")


async def test_own_turn_is_shown_stopped_and_kept(page: Page, wire: Wire) -> None:
    wire.answers["interrupt"] = {"status": "done", "stopped": [{"id": "t1", "kind": "turn"}]}
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

    # A mission waits for the end of a background turn.
    wire.event("started", "m1", origin="person")
    wire.event("started", "t2", origin="agent")
    wire.event("text", "t2", text="The tests are green.")
    wire.event("complete", "t2", text="The tests are green.", usage=None, cost_usd=None, duration_ms=5)
    await expect(page.locator(".thread-list")).to_contain_text("The tests are green.")
    await expect(page.locator(".run-state")).to_have_attribute("data-kind", "busy")
    await expect(page.locator(".run-state").get_by_role("button", name="Stop")).to_be_visible()
    wire.event("complete", "m1", text="Then that.", usage=None, cost_usd=None, duration_ms=5)
    await expect(page.locator(".run-state")).to_have_attribute("data-kind", "idle")
    await expect(page.locator(".run-state").get_by_role("button", name="Stop")).to_be_hidden()


async def test_background_work_has_line_and_stop(page: Page, wire: Wire) -> None:
    wire.answers["interrupt"] = {"status": "done", "stopped": [{"id": "b1", "kind": "command"}]}
    line = page.get_by_role("group", name="In the background")
    await expect(line).to_be_hidden()
    work = {"id": "b1", "kind": "command", "title": "npm test", "since": time.time() - 3600}
    wire.say("session_update", session={**IDLE, "background": [work], "held_until": time.time() + 600})
    await expect(line).to_contain_text("npm test 1:0")
    await expect(line).to_contain_text("In the background, awake until")
    # A stop without an id would stop the person's mission.
    wire.event("started", "m1", origin="person")
    stop = line.get_by_role("button", name="Stop the background work")
    await expect(stop).to_be_hidden()
    wire.event("complete", "m1", text="Begun.", usage=None, cost_usd=None, duration_ms=5)
    await expect(stop).to_be_visible()
    await shoot(page, "background")
    wire.event("started", "t1", origin="agent")
    await expect(line.get_by_role("button", name="Stop everything")).to_be_visible()
    wire.event("complete", "t1", text="Meanwhile.", usage=None, cost_usd=None, duration_ms=5)
    await stop.click()
    await expect(page.locator(".toast", has_text="Stopped: npm test")).to_be_visible()
    assert wire.asked[-1]["payload"] == {}
    wire.say("session_update", session=IDLE)
    await expect(line).to_be_hidden()


async def test_row_tells_state_and_answer_of_call(page: Page, wire: Wire) -> None:
    wire.say("chat_said", mission_id="s1", role="user", text="Run make", at=time.time() - 60)
    await expect(page.locator(".run-words")).to_have_text("Starting the agent")
    await expect(page.locator(".run-clock")).to_have_text(re.compile(r"1:0\d"))
    wire.event("started", "s1", origin="person")
    wire.event("tool_use", "s1", tool_use_id="s1", name="Bash", input={"command": "make"})
    asked = {"mission_id": "s1", "tool_use_id": "s1", "tool": "Bash", "input": {"command": "make"}}
    row = page.locator("[data-mission=s1] .tool")
    wire.say("permission_request", **asked, request_id="s1", background=False)
    await expect(row).to_contain_text("Wants to run a command")
    wire.say("permission_resolved", request_id="s1", decision="allow")
    await expect(row).to_contain_text("Running a command")
    await expect(page.locator("[data-mission=s1] .question")).to_have_count(0)
    wire.event("tool_result", "s1", tool_use_id="s1", is_error=False, summary="made")
    await expect(row).to_contain_text("Ran a command")
    await expect(row).to_contain_text("you allowed it")
    wire.event("complete", "s1", text="Made.", usage=None, cost_usd=None, duration_ms=5)


async def test_work_outliving_its_turn_may_still_ask(page: Page, wire: Wire) -> None:
    question = {"mission_id": "o1", "tool": "Bash", "input": {"command": "rm old"}}
    wire.event("started", "o1", origin="person")
    wire.event("tool_use", "o1", tool_use_id="u1", name="Bash", input={"command": "make all"})
    wire.say("permission_request", **question, request_id="r0", background=False)
    wire.say("permission_request", **question, request_id="r1", background=True)
    wire.event("complete", "o1", text="It goes on.", usage=None, cost_usd=None, duration_ms=5)
    row = page.locator("[data-mission=o1] .tool")
    await expect(row).to_have_attribute("data-state", "done")
    await expect(row).not_to_contain_text("stopped")
    await expect(page.locator("[data-mission=o1] .question").first).to_contain_text("Nobody answered in time")
    await expect(page.locator(".run-words")).to_have_text("Waiting for your answer")
    wire.event("started", "o2", origin="agent")
    wire.event("tool_result", "o2", tool_use_id="u1", is_error=False, summary="built in 3 s")
    await row.locator("summary").click()
    await expect(row).to_contain_text("built in 3 s")
    wire.say("permission_resolved", request_id="r1", decision="deny")
    await expect(page.locator("[data-mission=o1] .question").last).to_contain_text("Not allowed")
    wire.event("complete", "o2", text="Built.", usage=None, cost_usd=None, duration_ms=5)


async def test_question_of_many_lines_is_whole(page: Page) -> None:
    command = "\n" * 120_000 + "touch at-the-end"
    drawn = """async (command) => {
        const load = path => import(new URL(path, document.querySelector("script[type=module]").src));
        const { askedInput } = await load("chat/asked_input.js");
        const { render } = await load("vendor/lit-html/lit-html.js");
        const box = document.createElement("div");
        render(askedInput({ tool: "Bash", input: { command } }), box);
        return [box.querySelector("pre").textContent, box.querySelector(".asked-length").textContent];
    }"""
    text, length = await page.evaluate(drawn, command)
    assert text == command
    assert "characters in 120,001 lines" in length


async def test_repeated_reminder_shows_its_reply_once(page: Page, wire: Wire) -> None:
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


async def test_scheduled_turn_has_its_own_line(page: Page, wire: Wire) -> None:
    text = "Water the ficus\nand tell me how it looks"
    wire.say("chat_said", mission_id="s3", role="user", text=text, at=time.time(), origin="schedule")
    wire.event("started", "s3", origin="schedule")
    turn = page.locator(".thread-list .exchange[data-mission=s3]")
    await expect(turn.locator("summary")).to_contain_text("By schedule: Water the ficus")
    await expect(turn.get_by_text("and tell me how it looks")).to_be_hidden()
    await turn.locator("summary").click()
    await expect(turn.get_by_text("and tell me how it looks")).to_be_visible()
    wire.event("error", "s3", code="model", message="The model is out.", retryable=True)
    await expect(turn).to_contain_text("The model is out.")
    # The schedule retries by itself; a resend would make the text the person's own.
    await expect(turn.get_by_role("button", name="Try again")).to_have_count(0)


async def test_program_question_never_becomes_persons(page: Page, wire: Wire) -> None:
    wire.event("started", "m0")
    wire.say("chat_said", mission_id="p1", role="user", text="Pay Kraken", at=time.time(), asked_by="planner")
    turn = page.locator(".thread-list .exchange[data-mission=p1]")
    await expect(turn).to_contain_text("planner asks: Pay Kraken")
    # The person may withdraw it; editing and sending it would make it their own text.
    await expect(turn.get_by_role("button", name="Remove")).to_be_visible()
    await expect(turn.get_by_role("button", name="Edit")).to_have_count(0)
    wire.event("complete", "m0", text="")
    wire.event("started", "p1")
    wire.event("error", "p1", code="model", message="The model is out.", retryable=True)
    await expect(turn).to_contain_text("The model is out.")
    await expect(turn.get_by_role("button", name="Try again")).to_have_count(0)


async def test_reload_keeps_source_of_each_turn(page: Page, wire: Wire) -> None:
    tools = [
        {"name": "Bash", "title": "cat log", "is_error": False},
        {"name": "Read", "title": "/workspace/gone", "is_error": True},
    ]
    at = time.time()
    own: dict[str, Any] = {"origin": "agent", "tools": tools}
    scheduled: dict[str, Any] = {"origin": "schedule", "tools": []}
    asked = {"asked_by": "planner"}
    chat: list[dict[str, Any]] = [
        {"role": "assistant", "text": "The tests are green.", "mission_id": "t2", **own},
        {"role": "user", "text": "Water the ficus", "mission_id": "s2", **scheduled},
        {"role": "assistant", "text": "It has water.", "mission_id": "s2", **scheduled},
        {"role": "user", "text": "Pay Kraken", "mission_id": "p2", **asked},
        {"role": "assistant", "text": "It is paid.", "mission_id": "p2"},
        {"role": "user", "text": "Never mind", "mission_id": "i2", "status": "interrupted"},
        {"role": "assistant", "text": "", "mission_id": "i2", "status": "interrupted", "tools": tools},
    ]
    wire.sync = {"chat": [{"id": id_, "at": at, **row} for id_, row in enumerate(chat, start=1)], "session": IDLE}
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
    await expect(rows.first).to_contain_text("This turn is not in the log (yet).")
    kept = page.locator(".thread-list .exchange[data-mission=s2]")
    await expect(kept.locator(".by-schedule")).to_have_text("By schedule: Water the ficus")
    await expect(kept).to_contain_text("It has water.")
    kept = page.locator(".thread-list .exchange[data-mission=p2]")
    await expect(kept).to_contain_text("planner asks: Pay Kraken")
    await expect(kept).to_contain_text("It is paid.")
    stopped = page.locator(".thread-list .exchange[data-mission=i2]").locator(".tool").last
    await expect(stopped).to_contain_text("stopped by you")
    await shoot(page, "kept-turns")


async def test_paused_agent_shows_reason_and_resumes(page: Page, wire: Wire) -> None:
    wire.answers["system"] = {"action": "go_on"}
    line = page.get_by_role("group", name="Paused")
    await expect(line).to_be_hidden()
    paused = {"why": "Sprite went on by itself for 5 turns.", "by": "turns", "since": time.time()}
    work = {"id": "b1", "kind": "command", "title": "npm test", "since": time.time()}
    wire.say("session_update", session={**IDLE, "paused": paused, "background": [work]})
    await expect(line).to_contain_text("Sprite went on by itself for 5 turns.")
    await line.get_by_role("button", name="Go on").click()
    await eventually(lambda: wire.went_on() == [False], "Go on was not sent")
    await shoot(page, "paused")
    paused |= {"why": "The day's budget of $10.00 is used up.", "by": "budget"}
    wire.say("session_update", session={**IDLE, "paused": paused})
    await line.get_by_role("button", name="limit and go on").click()
    await eventually(lambda: wire.went_on() == [False, True], "Go on was not sent")
    wire.say("session_update", session={**IDLE, "paused": None})
    await expect(line).to_be_hidden()


async def test_slow_work_is_named_with_age(page: Page, wire: Wire) -> None:
    ages = {"turn": 75, "queue": 85, "model_call": 95}
    slow = [{"kind": kind, "since": time.time() - age} for kind, age in ages.items()]
    wire.say("session_update", session={**IDLE, "slow": slow})
    words = r"turn running for 1:[123]\d · message waiting for 1:[2345]\d · model silent for 1:[345]\d"
    await expect(page.locator(".run-slow")).to_have_text(re.compile(words))
    wire.say("session_update", session={**IDLE, "slow": []})
    await expect(page.locator(".run-slow")).to_have_text("")


async def test_learnings_are_shown_as_chat_notice(page: Page, wire: Wire) -> None:
    learning = {"id": 1, "type": "preference", "content": "Prefers tea to coffee"}
    wire.say("memory_update", curation_id=7, learnings=[learning], files=["user.md"], drift=[])
    notice = page.locator(".notice.learned")
    await expect(notice).to_contain_text("Sprite learned 1 thing")
    await expect(notice).to_contain_text("Prefers tea to coffee")
    await expect(notice.get_by_role("button", name="user.md")).to_be_visible()
    await shoot(page, "learned")


@pytest.mark.parametrize(("button", "action"), [("Yes", "confirm"), ("No", "retire")])
async def test_chat_notice_asks_about_unverified_learning(button: str, action: str, page: Page, wire: Wire) -> None:
    number = len(action)
    asked = {"id": number, "type": "FACT", "content": f"Prefers {action} tea", "proposed": "PREFERENCE"}
    asked |= {"superseded_by": None, "origin": "codex"}
    others = [{"id": 90 + each, "type": "FACT", "content": f"Fact {each}", "superseded_by": None} for each in range(5)]
    wire.say("memory_update", curation_id=70 + number, learnings=[*others, asked], files=[], drift=[])
    notice = page.locator(".notice.learned", has_text=f"{action} tea")
    # It comes first, and the notice is open for it.
    first = notice.get_by_role("listitem").first
    await expect(first).to_contain_text("Is this right?")
    await shoot(page, f"asked-{action}")
    wire.answered = {**asked, "type": "PREFERENCE", "proposed": None, "origin": "user"}
    if action == "retire":
        wire.answered = {**asked, "superseded_by": 0}
    await first.get_by_role("button", name=button).click()
    await expect(notice).not_to_contain_text("Is this right?")
    await expect(notice.get_by_text("No longer true")).to_have_count(int(action == "retire"))
    # Curations without a message in between, such as those of an import, share one notice.
    await expect(page.locator(".notice.learned")).to_have_count(1)
    await expect(page.locator(".toast").last).to_contain_text("Confirmed" if action == "confirm" else "no longer true")
    assert [message["payload"] for message in wire.asked] == [{"op": "learning", "id": number, "action": action}]


async def test_quarantined_turn_can_be_retried(page: Page, wire: Wire) -> None:
    wire.quarantined = [{"turn_id": 12, "reason": "The model refused it.", "at": time.time()}]
    # Check everything together: a paused agent with background work, learnings, and turns by others than the person.
    paused = {"why": "Sprite went on by itself for 5 turns.", "by": "turns", "since": time.time()}
    work = {"id": "b1", "kind": "command", "title": "npm test", "since": time.time()}
    wire.say("session_update", session={**IDLE, "paused": paused, "background": [work]})
    wire.attention = ["the disk is nearly full: 20 MiB are free"]
    wire.plan = [{"name": "five hour", "used": 0.42, "resets_at": time.time() + 3600}]
    await page.get_by_role("tab", name="Memory").locator("visible=true").click()
    await page.get_by_role("tab", name="Health").click()
    aside = page.get_by_role("group", name="Turn 12, set aside")
    await expect(aside).to_contain_text("The model refused it.")
    await expect(page.get_by_role("alert").filter(has_text="This needs your attention")).to_contain_text(
        "20 MiB are free"
    )
    # The limits of a plan replace the spend.
    await expect(page.locator(".health-part", has_text="Claude plan")).to_contain_text("five hour 42 % resets")
    await expect(page.get_by_role("heading", name="Spend")).to_have_count(0)
    assert await violations(page) == []
    await aside.get_by_role("button", name="Try again").click()
    await expect(page.locator(".toast", has_text="Turn 12 waits to be learned from again.")).to_be_visible()
    await expect(aside).to_have_count(0)
    assert wire.asked[-1]["payload"] == {"op": "retry", "turn_id": 12}
