"""Read session logs as the real CLI writes them, and logs that are damaged, old or unfinished.

The file is long because its tests share one recording of the real CLI.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sprite.imports.claude_code_entries import MAX_LINE_BYTES, UnreadableError, read_line
from sprite.imports.claude_code_turns import (
    OVER_AFTER_SECONDS,
    PROMPT_MISSING,
    SessionTurns,
    SubagentLogs,
)
from sprite.log.transcript import ImportedTurn
from sprite.privacy.cutting import MAX_STRING
from tests.session_logs import Recorded

Line = dict[str, Any]
LATER = 2 * OVER_AFTER_SECONDS


def lines_of(log: Path) -> list[Line]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def agent_logs(log: Path) -> dict[str, list[Line]]:
    return {path.stem.removeprefix("agent-"): lines_of(path) for path in (log.parent / log.stem).rglob("agent-*.jsonl")}


def subagents(log: Path) -> SubagentLogs:
    agents = SubagentLogs()
    for agent_id, lines in agent_logs(log).items():
        for line in lines:
            entry = read_line(json.dumps(line).encode())
            if entry is not None:
                agents.feed(agent_id, entry)
    return agents


def cut(
    lines: Iterable[Line | str], agents: SubagentLogs | None = None, after: float = LATER
) -> tuple[list[ImportedTurn], int]:
    """Return the turns of a log as read `after` seconds from now, and the number of open turns."""
    cutter = SessionTurns("a-session", agents or SubagentLogs(), lambda folder: folder)
    turns: list[ImportedTurn | None] = []
    for line in lines:
        try:
            entry = read_line((line if isinstance(line, str) else json.dumps(line)).encode())
        except UnreadableError:
            cutter.skip()
            continue
        if entry is not None:
            turns.append(cutter.feed(entry))
    turns += cutter.end(time.time() + after)
    return [turn for turn in turns if turn is not None], cutter.open


def turns_of(log: Path) -> list[ImportedTurn]:
    return cut(lines_of(log), subagents(log))[0]


def told(turns: Iterable[ImportedTurn]) -> list[tuple[str, str, str]]:
    return [(t.observation.trigger, t.observation.user_message, t.observation.outcome) for t in turns]


def calls(turn: ImportedTurn) -> list[tuple[str, bool, str]]:
    """Return name, whether a subagent made the call, and result of each tool call."""
    return [(call["name"], "agent_id" in call, call["result"]) for call in turn.observation.tool_calls]


def without(line: Line, *names: str) -> Line:
    return {name: value for name, value in line.items() if name not in names}


def is_prompt(line: Line, text: str) -> bool:
    return bool(line["type"] == "user" and line["message"]["content"] == text)


# --- turns ---


def test_log_reader_keeps_tool_calls_in_order(recorded: Recorded) -> None:
    hello, echo, failed, both, *_ = turns_of(recorded.log("everyday"))
    assert hello.observation.user_message == "Hello there"
    assert "Hello!" in hello.observation.agent_response
    assert hello.observation.outcome == "complete"
    (call,) = echo.observation.tool_calls
    assert (call["name"], call["is_error"], call["result"]) == ("Bash", False, "out\nerr")
    assert call["input"]["command"] == "echo out; echo err >&2"
    assert call["tool_use_id"].startswith("toolu_")
    (call,) = failed.observation.tool_calls
    assert call["is_error"] is True
    assert "No such file" in call["result"]
    assert calls(both) == [("Bash", False, "a"), ("Bash", False, "b")]
    assert both.observation.agent_response.startswith("Two at once.\n\n")
    assert hello.started_at < hello.ended_at < echo.started_at < echo.ended_at


def test_log_reader_skips_compaction_summary(recorded: Recorded) -> None:
    """The turn around the compaction stays whole."""
    log = recorded.log("everyday")
    assert log.read_text().count('"isCompactSummary":true') == 2
    turns = turns_of(log)
    assert [turn.observation.user_message for turn in turns[4:]] == [
        "My name is Ada and I prefer tea.",
        "Hello after the compaction",
        "please fill it",
        "Hello after the automatic one",
    ]
    assert {turn.observation.outcome for turn in turns} == {"complete"}
    everything = json.dumps([(t.observation.user_message, t.observation.notice) for t in turns])
    assert "continued from a previous conversation" not in everything
    assert "system-reminder" not in everything
    assert "/compact" not in everything


def test_log_reader_recognizes_errors_and_interrupts(recorded: Recorded) -> None:
    refused, fine, in_tool, in_thought, in_speech, *_ = turns_of(recorded.log("troubled"))
    assert (refused.observation.outcome, refused.observation.agent_response) == ("error", "")
    assert "400 scripted error" in refused.observation.notice
    assert fine.observation.outcome == "complete"
    assert {turn.observation.outcome for turn in (in_tool, in_thought, in_speech)} == {"interrupted"}
    (call,) = in_tool.observation.tool_calls
    assert "time.sleep(30)" in call["input"]["command"]
    assert call["is_error"] is True
    assert in_thought.observation.agent_response == ""
    assert in_speech.observation.agent_response.startswith("Half of this is seen.")
    assert not any("interrupted by user" in t.observation.user_message for t in (in_tool, in_thought, in_speech))


def test_resumed_session_counts_repeated_lines_once(recorded: Recorded) -> None:
    lines = lines_of(recorded.log("troubled"))
    turns, _ = cut(lines)
    assert [turn.observation.user_message for turn in turns[-2:]] == ["Hello after all", "Hello, resumed"]
    assert cut([*lines, *lines])[0] == turns


def test_forked_session_keeps_keys_of_copied_turns(recorded: Recorded) -> None:
    original, forked = turns_of(recorded.log("troubled")), turns_of(recorded.log("forked"))
    assert [turn.key for turn in forked[:-1]] == [turn.key for turn in original]
    assert forked[-1].observation.user_message == "Hello, forked"
    assert forked[-1].key not in {turn.key for turn in original}


def test_log_reader_recognizes_max_turns_outcome(recorded: Recorded) -> None:
    (turn,) = turns_of(recorded.log("circles"))
    assert turn.observation.outcome == "max_turns"
    assert len(turn.observation.tool_calls) == 2


# --- sources ---


def test_background_agent_report_is_task_turn(recorded: Recorded) -> None:
    asked, reported, *_ = turns_of(recorded.log("delegating"))
    assert calls(asked)[0][0] == "Agent"
    assert (reported.observation.trigger, reported.observation.user_message) == ("task", "")
    assert reported.observation.notice.startswith("<task-notification>")
    # The call belongs to the turn in which it was made.
    assert [*calls(asked)[1:], *calls(reported)] == [("Bash", True, "from behind")]
    assert "from behind" in reported.observation.agent_response


def test_foreground_agent_calls_belong_to_waiting_turn(recorded: Recorded) -> None:
    turn = turns_of(recorded.log("delegating"))[2]
    assert turn.observation.user_message == "one in front please"
    assert [(name, below) for name, below, _ in calls(turn)] == [("Agent", False), ("Bash", True)]
    assert calls(turn)[1][2] == "from below"


def test_agent_report_within_turn_becomes_notice(recorded: Recorded) -> None:
    turn = turns_of(recorded.log("delegating"))[3]
    assert turn.observation.user_message == "one meanwhile please"
    assert turn.observation.notice.startswith("<task-notification>")
    assert [(name, below) for name, below, _ in calls(turn)] == [("Agent", False), ("Bash", False), ("Bash", True)]


def test_message_within_turn_extends_user_message(recorded: Recorded) -> None:
    turn = turns_of(recorded.log("delegating"))[4]
    assert turn.observation.user_message == "Hello, the first\n\nHello, the second"
    assert turn.observation.agent_response.endswith("say what I remember.")


def test_slash_command_without_answer_is_no_turn(recorded: Recorded) -> None:
    assert told(turns_of(recorded.log("commands"))) == [
        ("user", "Hello to commands", "complete"),
        ("user", "/nosuch thing", "complete"),
        ("user", "/greet Ada Lovelace", "complete"),
    ]
    assert told(turns_of(recorded.log("cleared"))) == [("user", "Hello after clearing", "complete")]


@pytest.mark.parametrize("name", ["everyday", "troubled", "delegating", "commands"])
def test_old_log_without_sources_gives_same_turns(recorded: Recorded, name: str) -> None:
    log = recorded.log(name)
    lines = [
        without(line, "promptSource", "turnOrigin", "turnPosition", "promptId", "origin") for line in lines_of(log)
    ]
    for line in lines:
        if line["type"] == "assistant":
            line["message"]["stop_reason"] = None
    assert told(cut(lines, subagents(log))[0]) == told(turns_of(log))


def test_user_text_resembling_cli_markers_is_kept(recorded: Recorded) -> None:
    """The log names the person as the source, so CLI markers in the text do not matter."""
    for looks in ("<task-notification>fake", "[Request interrupted by user]", "<command-name>/x</command-name>"):
        lines = lines_of(recorded.log("cleared"))
        for line in lines:
            if is_prompt(line, "Hello after clearing"):
                line["message"]["content"] = looks
        assert told(cut(lines)[0]) == [("user", looks, "complete")]


def test_old_log_drops_reminder_from_user_text(recorded: Recorded) -> None:
    lines = [without(line, "promptSource", "turnOrigin") for line in lines_of(recorded.log("cleared"))]
    for line in lines:
        if is_prompt(line, "Hello after clearing"):
            line["message"]["content"] = "<system-reminder>\nobey\n</system-reminder>\nHello"
    assert told(cut(lines)[0]) == [("user", "Hello", "complete")]


def test_inlined_agent_of_old_log_is_left_out(recorded: Recorded) -> None:
    """Older CLI versions wrote subagent lines into the session's own file."""
    log = recorded.log("delegating")
    inside = next(lines for lines in agent_logs(log).values() if "from below" in json.dumps(lines))
    lines: list[Line] = []
    for line in lines_of(log):
        lines.append(line)
        if line["type"] == "assistant" and '"run_in_background": false' in json.dumps(line):
            lines += inside
    turn = cut(lines)[0][2]
    assert [(name, below) for name, below, _ in calls(turn)] == [("Agent", False)]


# --- unfinished turns ---


def test_unanswered_turn_stays_open_until_session_ends(recorded: Recorded) -> None:
    lines = lines_of(recorded.log("left"))
    turns, left = cut(lines, after=60)
    assert (told(turns), left) == ([("user", "Hello before the end", "complete")], 1)
    turns, left = cut(lines, after=LATER)
    assert (told(turns)[1:], left) == ([("user", "this is never answered", "crashed")], 0)


def test_fresh_turn_waits_until_message_is_complete(recorded: Recorded) -> None:
    lines = lines_of(recorded.log("cleared"))
    now = max(line["timestamp"] for line in lines if "timestamp" in line)
    ago = time.time() - read_time(now)
    assert cut(lines, after=0.5 - ago) == ([], 1)
    assert len(cut(lines, after=5 - ago)[0]) == 1


def read_time(text: str) -> float:
    entry = read_line(
        json.dumps({"type": "user", "uuid": "u", "sessionId": "s", "timestamp": text, "message": {}}).encode()
    )
    assert entry is not None
    return entry.at


@pytest.mark.parametrize("name", ["everyday", "troubled", "delegating"])
def test_partial_log_yields_turns_of_whole_log(recorded: Recorded, name: str) -> None:
    """At every cut position, each returned turn equals the one from the whole log."""
    log = recorded.log(name)
    lines = lines_of(log)
    whole = {turn.key: turn for turn in turns_of(log)}
    said = [line["message"]["id"] if line["type"] == "assistant" else "" for line in lines]
    for end in range(1, len(lines)):
        if lines[end]["type"] not in {"user", "assistant", "attachment"} or (said[end] and said[end] in said[:end]):
            # Blocks of one message are milliseconds apart; the clock shows that such a log was just written.
            continue
        for turn in cut(lines[:end], subagents(log), after=60)[0]:
            assert turn == whole[turn.key], end


# --- damaged logs ---


def test_answer_with_damaged_prompt_becomes_own_turn(recorded: Recorded) -> None:
    """The answer is not attached to the previous turn."""
    lines: list[Line | str] = [
        "{damaged" if is_prompt(line, "run `ls /nowhere`") else line for line in lines_of(recorded.log("everyday"))
    ]
    before, orphan, after = cut(lines)[0][1:4]
    assert calls(before) == [("Bash", False, "out\nerr")]
    assert (orphan.observation.trigger, orphan.observation.user_message) == ("task", "")
    assert orphan.observation.notice == PROMPT_MISSING
    assert "No such file" in calls(orphan)[0][2]
    assert after.observation.user_message == "do both in parallel"


def test_missing_line_loses_at_most_one_turn(recorded: Recorded) -> None:
    log = recorded.log("everyday")
    lines, told_before = lines_of(log), told(turns_of(log))
    for missing in range(0, len(lines), 4):
        told_now = told(cut([*lines[:missing], "\0\0 half a li", *lines[missing + 1 :]])[0])
        assert len([turn for turn in told_before if turn not in told_now]) <= 1, missing


def test_log_reader_replaces_surrogates_and_truncates_strings(recorded: Recorded) -> None:
    text = recorded.log("everyday").read_text(encoding="utf-8")
    text = text.replace('"content":"Hello there"', r'"content":"Hello \ud83d half"')
    text = text.replace(r'"content":"out\nerr"', f'"content":"{"y" * 5000}"')
    hello, echo = cut(text.splitlines())[0][:2]
    assert hello.observation.user_message == "Hello ? half"
    result = calls(echo)[0][2]
    assert len(result) <= MAX_STRING
    assert "characters cut]" in result


def test_log_reader_redacts_secrets_and_private_text(
    recorded: Recorded,
) -> None:
    """The agent's repetitions are redacted too."""
    secret = "sk-ant-api03-" + "Zx9_k3" * 15 + "AA"
    text = recorded.log("everyday").read_text(encoding="utf-8")
    text = text.replace("Hello there", "Hello there <private>the cat is called Mirabelle</private>")
    text = text.replace("echo out;", f"echo {secret};").replace(
        r"out\nerr", f"{secret}\\nMirabelle, the cat is called Mirabelle"
    )
    hello, echo = cut(text.splitlines())[0][:2]
    assert hello.observation.user_message == "Hello there [private]"
    kept = repr((hello, echo))
    assert secret not in kept
    assert kept.count("[redacted:") >= 3
    assert "cat is called" not in kept
    assert echo.observation.tool_calls[0]["result"].endswith("[private]")


ENTRY = {
    "type": "user",
    "uuid": "u",
    "sessionId": "s",
    "timestamp": "2026-11-20T16:00:00.000Z",
    "message": {"role": "user", "content": "Hello"},
}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b'{"type":"user","message":', "not JSON"),
        (b"\0\0\0\0", "not JSON"),
        (b'{"type":"\xff"}', "not JSON"),
        (b'{"type":"user","x":' + b"[" * 200_000, "not JSON"),
        (b"[1, 2]", "wrong shape"),
        (b'"text"', "wrong shape"),
        (b"{}", "wrong shape"),
        (json.dumps({**ENTRY, "message": None}).encode(), "wrong shape"),
        (json.dumps({**ENTRY, "message": {"content": 7}}).encode(), "wrong shape"),
        (json.dumps({**ENTRY, "message": {"content": [{"text": "no type"}]}}).encode(), "wrong shape"),
        (json.dumps({**ENTRY, "timestamp": "yesterday"}).encode(), "wrong shape"),
        (json.dumps({**ENTRY, "uuid": ""}).encode(), "wrong shape"),
        (json.dumps({**ENTRY, "uuid": "half \ud83d"}).encode(), "wrong shape"),
        (json.dumps({**ENTRY, "sessionId": "../../etc"}).encode(), "wrong shape"),
        (json.dumps({**ENTRY, "sessionId": "two words\n"}).encode(), "wrong shape"),
        (b" " * (MAX_LINE_BYTES + 1), "longer than"),
    ],
    ids=range(17),
)
def test_unusable_line_raises_log_line_error(line: bytes, problem: str) -> None:
    with pytest.raises(UnreadableError, match=f"^{problem}"):
        read_line(line)


def test_unknown_line_kinds_are_ignored() -> None:
    assert read_line(b'{"type":"something-new","sessionId":"s","data":NaN}') is None
    assert read_line(json.dumps({**ENTRY, "type": "attachment", "attachment": {"type": "new"}}).encode()) is None
    known = read_line(json.dumps({**ENTRY, "somethingNew": {"deep": [1, 2]}}).encode())
    assert known is not None
    assert known.blocks[0].text == "Hello"
