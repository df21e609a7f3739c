"""Terminal commands for memory and canvas: the messages each one sends and the text it prints."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridge.terminal.terminal import state_line
from sprite.agent.rules import row_of
from sprite.protocol.events import Started, TextDelta, Thinking
from sprite.protocol.memory import ForgetResult, RulesResult
from sprite.protocol.messages import (
    Ack,
    MemoryUpdate,
    PermissionRequest,
    RuleApplied,
    RuleOffered,
    StandingRule,
    Status,
)
from sprite.protocol.shapes import Cost, Costs, Forgotten, MemoryState, Place, PlanLimit, RuleExample, Spend
from tests.chat_stage import Chat, in_a_pipe, in_a_terminal
from tests.chat_stand_in import state_sync

PNG = b"\x89PNG\r\n\x1a\n"
FISH = Forgotten("text", turns=[3, 5], learnings=1, curations=1, lines=2, cards=0, still=[Place("soul.md", "deployed")])
QUESTION = "Forget it?"


async def asked(chat: Chat, kind: str = "memory") -> tuple[str, dict[str, Any]]:
    """Return the id and the payload of the terminal's next request."""
    message = await chat.visitor.receive(kind)
    return message["id"], message["payload"]


async def previewed(chat: Chat) -> None:
    """Drive `/forget fish` up to its preview."""
    used, payload = await asked(chat)
    assert payload == {"op": "forget", "text": "fish", "preview": True}
    await chat.visitor.send(ForgetResult(FISH, done=False), reply_to=used)
    await chat.until_seen(QUESTION)


async def test_forget_previews_and_needs_plain_yes() -> None:
    async with in_a_terminal() as chat:
        chat.type("/forget fish\r")
        await previewed(chat)
        for words in (
            "2 turns, 1 learning, 2 curated lines",
            "Turns 3, 5.",
            "It stays in these places:",
            "soul.md: ",
            "deployed",
        ):
            assert words in chat.seen
        chat.type("yes\r")
        used, payload = await asked(chat)
        assert payload == {"op": "forget", "text": "fish", "yes": True}
        await chat.visitor.send(ForgetResult(FISH, done=True), reply_to=used)
        await chat.until_seen("Forgotten.")


@pytest.mark.parametrize("answer", ["no\r", "y\r", "yes please\r", "\x03"])
async def test_other_answer_cancels_forget(answer: str) -> None:
    async with in_a_terminal() as chat:
        chat.type("/forget fish\r")
        await previewed(chat)
        chat.type(answer)
        await chat.until_seen("Nothing was forgotten.")
        await chat.mission("the next thing that is sent")


async def test_early_yes_does_not_confirm_forget() -> None:
    """The terminal sends it as a message."""
    async with in_a_terminal() as chat:
        chat.type("/forget fish\ryes\r")
        await previewed(chat)
        chat.type("no\r")
        await chat.until_seen("Nothing was forgotten.")
        assert (await chat.visitor.receive("mission"))["payload"]["text"] == "yes"


async def test_permission_yes_does_not_confirm_forget() -> None:
    async with in_a_terminal() as chat:
        chat.type("/forget fish\r")
        await previewed(chat)
        await chat.visitor.send(PermissionRequest("r1", "m1", "Bash", {"command": "make"}))
        await chat.until_seen("May the agent use")
        chat.type("yes\r")
        assert (await asked(chat, "permission"))[1] == {"request_id": "r1", "decision": "allow"}
        chat.type("no\r")
        await chat.until_seen("Nothing was forgotten.")


async def test_forget_removes_text_from_input_history(tmp_path: Path) -> None:
    history = tmp_path / "chat_history"
    async with in_a_terminal(history=history) as chat:
        await chat.answer(await chat.mission("I like Fish"), "Noted.")
        await chat.until_seen("Noted.")
        await chat.answer(await chat.mission("and tea"), "Noted, too.")
        await chat.until_seen("Noted, too.")
        chat.type("/forget fish\r")
        await previewed(chat)
        assert "I like Fish" in history.read_text()
        chat.type("yes\r")
        used, _ = await asked(chat)
        await chat.visitor.send(ForgetResult(FISH, done=True), reply_to=used)
        await chat.until_seen("Forgotten.")
        chat.type("\x1b[A\x1b[A\r")
        assert (await chat.visitor.receive("mission"))["payload"]["text"] == "and tea"
    assert "fish" not in history.read_text().lower()


async def test_status_shows_spend_by_part() -> None:
    costs = Costs(Cost(1.25, 0.5), schedules=Cost(0.25), memory=Cost(0.125))
    status = Status("status", state_sync().session, memory(), None, "ask", None, spend=Spend(costs, costs, Cost(0.5)))
    async with in_a_pipe() as chat:
        chat.type("/status\n")
        used, _ = await asked(chat, "system")
        await chat.visitor.send(status, reply_to=used)
        await chat.until_seen("last turn")
    parts = "$1.6250 + $0.5000 estimated (agent $1.2500 + $0.5000 estimated, schedules $0.2500, memory $0.1250)"
    # The pipe wraps lines.
    assert f"spent today {parts} this session {parts} last turn $0.5000" in " ".join(chat.seen.split())


async def test_status_shows_plan_instead_of_spend() -> None:
    costs = Costs(Cost(), Cost(), Cost())
    spend = Spend(costs, costs, plan=[PlanLimit("five hour", 0.42, 1.8e9)])
    status = Status("status", state_sync().session, memory(), None, "ask", None, spend=spend)
    async with in_a_pipe() as chat:
        chat.type("/status\n")
        used, _ = await asked(chat, "system")
        await chat.visitor.send(status, reply_to=used)
        await chat.until_seen("five hour 42%, resets 2027-01-15")
    assert "spent today" not in chat.seen


async def test_standing_rules_are_listed_and_revoked() -> None:
    rules = [
        StandingRule("a1", "this command", "make \u202eclean\x1b[2K", 1.0),
        StandingRule("b2", "writing files in documents/ and its folders", "", 2.0),
    ]
    status = Status("status", state_sync().session, memory(), None, "ask", None, rules=rules)
    async with in_a_pipe() as chat:
        chat.type("/permissions revoke 1\n")
        await chat.until_seen("/permissions lists them by number")
        chat.type("/permissions\n")
        used, payload = await asked(chat, "system")
        assert payload == {"action": "status"}
        await chat.visitor.send(status, reply_to=used)
        await chat.until_seen("2  writing files in documents/ and its folders")
        assert "make <U+202E>clean<U+001B>[2K" in chat.seen
        chat.type("/permissions revoke 2\n")
        used, payload = await asked(chat, "system")
        assert payload == {"action": "revoke", "rule_id": "b2"}
        await chat.visitor.send(msgspec.structs.replace(status, rules=rules[:1]), reply_to=used)
        chat.type("/permissions revoke all\n")
        used, payload = await asked(chat, "system")
        assert payload == {"action": "revoke"}
        await chat.visitor.send(msgspec.structs.replace(status, rules=[]), reply_to=used)
        await chat.until_seen("nothing is always allowed")


async def test_always_answer_uses_offered_rule() -> None:
    """Without an offered rule, the terminal allows the request once."""
    async with in_a_terminal() as chat:
        for number, (always, sent, seen) in enumerate(
            [("this command", "always", "always allowed: this command"), (None, "allow", "✓ allowed")]
        ):
            question = PermissionRequest(f"r{number}", "m1", "Bash", {"command": f"make {number}"}, always=always)
            await chat.visitor.send(question)
            await chat.until_seen(f"make {number}")
            chat.type("a\r")
            assert (await asked(chat, "permission"))[1] == {"request_id": f"r{number}", "decision": sent}
            await chat.until_seen(seen)
        # A redacted copy of a question is not asked.
        await chat.visitor.send(PermissionRequest("r9", "m1", "Bash", {"command": "make 9"}, redacted=True))
        await chat.mission("a message")
        assert "make 9" not in chat.seen


def memory(*drift: str) -> MemoryState:
    return MemoryState([], 0, 12, 0, 0.0, drift=list(drift))


async def test_drift_is_announced() -> None:
    status = Status("status", state_sync().session, memory("user.md"), None, "ask", None)
    async with in_a_pipe(state_sync(memory=memory("user.md"))) as chat:
        await chat.until_seen("user.md changed on disk")
        chat.type("/status\n")
        used, _ = await asked(chat, "system")
        await chat.visitor.send(status, reply_to=used)
        await chat.until_seen("(accept or discard the change on your page)")
        await chat.visitor.send(MemoryUpdate([], [], 7, drift=["user.md", "context.md"]), seq=9)
        await chat.until_seen("context.md changed on disk")
        # An action's change arrives as an update without learnings.
        await chat.visitor.send(MemoryUpdate([], [], 8, drift=["user.md", "context.md"]), seq=10)
        await chat.visitor.send(MemoryUpdate(["tools.md"], [], 9, drift=["user.md", "context.md"]), seq=11)
        await chat.until_seen("✎ tools.md updated")
    assert chat.seen.count("✎") == 1


async def test_state_line_shows_drifted_files() -> None:
    async with in_a_terminal(state_sync(memory=memory("user.md"))) as chat:
        await chat.until_seen("discard the change on your page")
        await chat.until(lambda now: "1 file waits for your decision (on your page)" in state_line(now))


async def test_interactive_commands_are_refused_in_pipe() -> None:
    async with in_a_pipe() as chat:
        chat.type("/forget fish\n")
        used, payload = await asked(chat)
        assert payload["preview"]
        await chat.visitor.send(ForgetResult(FISH, done=False), reply_to=used)
        await chat.until_seen("/forget needs a person at a terminal")
        await chat.mission("the next line goes on")


async def test_model_and_effort_are_chosen() -> None:
    session = msgspec.structs.replace(state_sync().session, model="claude-opus-4-8", effort="low")
    status = Status("model", session, memory(), None, "ask", None, models=["claude-haiku-4-5", "claude-opus-4-8"])
    async with in_a_pipe() as chat:
        for line, sent, seen in [
            ("/model claude-opus-4-8", {"action": "model", "model": "claude-opus-4-8"}, "model: claude-opus-4-8"),
            ("/model default", {"action": "model", "model": None}, "model: claude-opus-4-8"),
            ("/model nope", {"action": "model", "model": "nope"}, "nope is not listed and may fail; known are claude-"),
            ("/model", {"action": "status"}, "known are claude-haiku-4-5"),
            ("/effort low", {"action": "model", "effort": "low"}, "effort: low"),
        ]:
            chat.type(f"{line}\n")
            used, payload = await asked(chat, "system")
            assert payload == sent
            await chat.visitor.send(status, reply_to=used)
            await chat.until_seen(seen)
        chat.type("/effort endless\n")
        await chat.until_seen("/effort low|medium|high|xhigh|max|default")


async def test_attached_picture_goes_with_next_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The printed lines are wrapped, so a test must not print its folder.
    monkeypatch.chdir(tmp_path)
    Path("a cat.png").write_bytes(PNG)
    Path("b.png").write_bytes(b"no picture")
    async with in_a_pipe() as chat:
        for name, seen in [
            ("b.png", "b.png is not a picture"),
            (".", ". is not a picture"),
            ("c.png", "c.png cannot be read: No such file"),
        ]:
            chat.type(f"/attach {name}\n")
            await chat.until_seen(seen)
        chat.type("/attach 'a cat.png'\n")
        used, upload = await asked(chat, "file_upload")
        assert (upload["name"], base64.b64decode(upload["data"])) == ("a cat.png", PNG)
        await chat.visitor.send(Ack("done", path="documents/a cat.png", upload_id=upload["upload_id"]), reply_to=used)
        await chat.until_seen("attached: documents/a cat.png")
        for text, images in [("What is this?", [{"path": "documents/a cat.png"}]), ("And now?", [])]:
            chat.type(f"{text}\n")
            mission_id, mission = await asked(chat, "mission")
            assert (mission["text"], mission.get("images", [])) == (text, images)
            await chat.visitor.send(Ack(status="accepted", position=0), reply_to=mission_id)
            await chat.event("started", mission_id)
            await chat.answer(mission_id, "A cat.")


async def test_state_line_shows_thinking_and_its_time() -> None:
    async with in_a_terminal() as chat:
        await chat.visitor.send(Started("m1", "agent", session_id="s1"))
        await chat.visitor.send(Thinking("m1", "Perhaps a parrot."))
        await chat.until(lambda now: "Thinking 0:42" in state_line(now, time.monotonic() + 42))
        await chat.visitor.send(TextDelta("m1", "A bird."))
        await chat.until(lambda now: "Thinking" not in state_line(now))
    assert "parrot" not in chat.seen


async def test_rules_are_offered_listed_and_decided() -> None:
    rule = row_of('stop when command "touch": Make no files.', 3, "no files")
    rule.id, rule.checked, rule.stops = 7, 12, 1
    rule.examples = [RuleExample(2, 0.0, "Bash", {"command": "touch a"}, asked=False, certain=True)]
    async with in_a_terminal() as chat:
        await chat.visitor.send(RuleOffered(rule))
        await chat.until_seen("/rules accept 7, or /rules dismiss 7")
        assert "Make it a rule? stop when command" in chat.seen
        assert "it would have stopped 1 of 12 past calls" in chat.seen
        assert 'you said: "no files"' in chat.seen
        assert "touch a" in chat.seen
        chat.type("/rules accept 7\r")
        used, payload = await asked(chat, "rule")
        assert payload == {"action": "accept", "id": 7}
        await chat.visitor.send(Ack("done"), reply_to=used)
        used, payload = await asked(chat)
        assert payload == {"op": "rules"}
        await chat.visitor.send(RulesResult([msgspec.structs.replace(rule, status="active")]), reply_to=used)
        await chat.until_seen("active")
        await chat.visitor.send(RuleApplied(7, "m", "stopped", "Stopped by your rule of 14 March: x"))
        await chat.until_seen("/rules override 7 lets this call run once")
        chat.type("/rules override 7\r")
        used, payload = await asked(chat, "rule")
        assert payload == {"action": "override", "id": 7}
        await chat.visitor.send(Ack("done"), reply_to=used)
        await chat.until_seen("The same call may run once.")
        chat.type('/rules stop when tool "Write": No.\r')
        _, payload = await asked(chat, "rule")
        assert payload == {"action": "propose", "text": 'stop when tool "Write": No.'}
