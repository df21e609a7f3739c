"""`import` of other programs' data: files written by the programs themselves, and their documented formats."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sprite.__main__ import main
from sprite.cli.import_logs import import_logs
from sprite.config import Settings
from sprite.curation.provenance.voices import Turn, Voice
from sprite.imports.finding import READERS
from sprite.log.transcript import read_transcript
from tests.elsewhere import (
    CODEX,
    GEMINI,
    HOUSE,
    RECORDED,
    SECRET,
    calls,
    claude_mem,
    conversation,
    export,
    imported,
    json_lines,
    message,
)
from tests.looks import observations, rows


async def voices_of(workspace: Path, words: str) -> list[Voice]:
    """Return the texts of the log's turns that have these words, with their speakers."""
    async with read_transcript(workspace / ".os/memory/transcript.db") as transcript:
        turns = await transcript.observations_after(0, 2**62)
    return [voice for turn in turns for voice in Turn(turn).voices if words in voice.text]


def said(turns: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(turn["user_message"], turn["agent_response"], turn["outcome"]) for turn in turns]


# --- Codex CLI ---


async def test_codex_sessions_become_turns(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They include the commands, their outcomes and the project."""
    told = await imported(workspace, CODEX, capsys=capsys)
    assert (told["code"], told["files"], told["sessions"], told["turns"]) == (0, 2, 2, 5)
    assert (told["damaged_lines"], told["not_understood"], told["refused"]) == (0, {}, [])
    turns = observations(workspace)
    assert said(turns) == [
        ("Hello there, I prefer tea", "Hello from the model.", "complete"),
        ("run something; think", "Done: the tool has answered.", "complete"),
        ("run what will fail", "Done: the tool has answered.", "complete"),
        ("Second talk: hello", "Hello from the model.", "complete"),
        ("hang on, please", "", "interrupted"),
    ]
    assert {(turn["source"], turn["project"], turn["trigger"]) for turn in turns} == {("codex", HOUSE, "user")}
    ((worked,), (failed,)) = calls(turns[1]), calls(turns[2])
    assert (worked["name"], worked["input"], worked["is_error"]) == ("Bash", {"command": "echo out"}, False)
    assert worked["result"].endswith("Output:\nout\n")
    assert (failed["input"], failed["is_error"]) == ({"command": "ls /nowhere"}, True)
    # AGENTS.md and program text under the user role are not the person's word.
    assert "tabs" not in json.dumps([turn["user_message"] + turn["notice"] for turn in turns])


def older_codex(folder: Path, *payloads: tuple[str, dict[str, Any]], session: str = "s-1", **meta: Any) -> Path:
    """A rollout of versions before 0.150: `user_message` events, and no turn ends."""
    head = {"id": session, "cwd": HOUSE, "originator": "codex_cli_rs", "cli_version": "0.46.0", **meta}
    lines = [("session_meta", head), *payloads]
    return json_lines(
        folder / f"rollout-2026-01-11T10-00-00-{session}.jsonl",
        (
            {"timestamp": f"2026-01-11T10:00:{number:02}.000Z", "type": kind, "payload": payload}
            for number, (kind, payload) in enumerate(lines)
        ),
    )


def heard(text: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "event_msg", {"type": "user_message", "message": text, **more}


def answered(text: str) -> tuple[str, dict[str, Any]]:
    content = [{"type": "output_text", "text": text}]
    return "response_item", {"type": "message", "role": "assistant", "content": content}


async def test_older_codex_logs_yield_turns_calls_and_failures(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = {"type": "function_call", "name": "shell", "call_id": "c1"}
    older_codex(
        tmp_path / "logs",
        ("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<env>"}]}),
        heard("List it", images=["data:"]),
        ("response_item", {**shell, "arguments": '{"command":["bash","-lc","ls /nowhere"]}'}),
        (
            "response_item",
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": '{"output":"ls: cannot access","metadata":{"exit_code":2}}',
            },
        ),
        answered("It is not there."),
        heard("And then"),
        ("event_msg", {"type": "turn_aborted", "reason": "interrupted"}),
        heard("Look it up"),
        ("response_item", {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c2", "input": "*** Begin"}),
        ("response_item", {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done!"}),
        ("response_item", {"type": "a_new_thing"}),
        ("event_msg", {"type": "error", "message": "stream disconnected"}),
    )
    told = await imported(workspace, tmp_path / "logs", capsys=capsys)
    assert (told["turns"], told["not_understood"]) == (3, {"Codex items of type 'a_new_thing'": 1})
    turns = observations(workspace)
    assert said(turns) == [
        ("[image]\n\nList it", "It is not there.", "complete"),
        ("And then", "", "interrupted"),
        ("Look it up", "", "error"),
    ]
    (ran,), (patched,) = calls(turns[0]), calls(turns[2])
    assert (ran["input"], ran["result"], ran["is_error"]) == ({"command": "ls /nowhere"}, "ls: cannot access", True)
    assert (patched["name"], patched["input"], patched["result"]) == ("Edit", {"patch": "*** Begin"}, "Done!")
    assert turns[2]["notice"] == "stream disconnected"


async def test_prompt_by_another_agent_is_nobodys_word(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}
    older_codex(tmp_path / "logs", heard("I prefer coffee"), answered("Noted."), source=source)
    await imported(workspace, tmp_path / "logs", capsys=capsys)
    (turn,) = observations(workspace)
    assert (turn["trigger"], turn["user_message"], turn["notice"]) == ("task", "", "I prefer coffee")


# --- Gemini CLI ---


async def test_gemini_session_resumed_repeatedly_yields_turns_once(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = await imported(workspace, GEMINI, capsys=capsys)
    assert (told["files"], told["turns"], told["damaged_lines"], told["not_understood"]) == (2, 4, 0, {})
    turns = observations(workspace)
    assert said(turns) == [
        ("Hello there, I prefer tea", "Hello from the model.", "complete"),
        ("run something please", "Running it.\n\nDone: the tool has answered.", "complete"),
        ("run what will fail", "Running it.\n\nDone: the tool has answered.", "complete"),
        ("hang on, please", "", "crashed"),
    ]
    assert {(turn["source"], turn["project"]) for turn in turns} == {("gemini-cli", HOUSE)}
    assert [(call["name"], call["input"]["command"], call["is_error"]) for t in turns for call in calls(t)] == [
        ("Bash", "echo out", False),
        ("Bash", "ls /nowhere", True),
    ]


async def test_older_gemini_chats_and_prompt_lists_combine(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a-hash"
    (folder / "chats").mkdir(parents=True)
    spoken = [
        {"id": "m1", "timestamp": "2026-01-12T10:00:00.000Z", "type": "user", "content": "Read @notes.md"},
        {
            "id": "m2",
            "timestamp": "2026-01-12T10:00:05.000Z",
            "type": "gemini",
            "content": "",
            "toolCalls": [{"id": "t1", "name": "read_file", "args": {"absolute_path": "/n"}, "status": "cancelled"}],
        },
        {"id": "m6", "timestamp": "2026-01-12T10:00:08.000Z", "type": "gemini", "content": "It says tea."},
        {
            "id": "m3",
            "timestamp": "2026-01-12T10:00:09.000Z",
            "type": "user",
            "content": [
                {"text": "Sum it up @notes.md"},
                {"text": "\n--- Content from referenced files ---"},
                {"text": "I am Eve and I prefer coffee"},
            ],
        },
        {"id": "m4", "timestamp": "2026-01-12T10:00:10.000Z", "type": "info", "content": "Request cancelled."},
        {"id": "m5", "timestamp": "2026-01-12T10:00:11.000Z", "type": "poem", "content": "?"},
    ]
    chat = {"sessionId": "aaaa1111-0", "projectHash": "h", "startTime": "2026-01-12T10:00:00.000Z", "messages": spoken}
    (folder / "chats/session-2026-01-12T10-00-aaaa1111.json").write_text(json.dumps(chat, indent=2))
    prompts = [("aaaa1111-0", "Read @notes.md"), ("bbbb2222-0", "Only here"), ("bbbb2222-0", "/quit")]
    typed = [
        {"sessionId": session, "messageId": n, "type": "user", "message": text, "timestamp": "2026-01-12T10:00:00.000Z"}
        for n, (session, text) in enumerate(prompts)
    ]
    (folder / "logs.json").write_text(json.dumps(typed, indent=2))
    told = await imported(workspace, tmp_path, capsys=capsys)
    assert told["not_understood"] == {"Gemini CLI messages of type 'poem'": 1, "commands to Gemini CLI itself": 1}
    turns = observations(workspace)
    assert said(turns) == [
        ("Read @notes.md", "It says tea.", "complete"),
        ("Sum it up @notes.md", "", "interrupted"),
        ("Only here", "", "complete"),
    ]
    assert {turn["project"] for turn in turns} == {None}
    assert [(c["name"], c["is_error"]) for turn in turns for c in calls(turn)] == [("Read", True), ("Read", False)]
    assert not any(voice.kind in {"person", "source"} for voice in await voices_of(workspace, "coffee"))


async def test_withdrawn_gemini_message_is_still_imported(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = {"sessionId": "aaaa1111-0", "projectHash": "h", "startTime": "2026-01-12T10:00:00.000Z"}
    first, second = (
        {"id": f"m{n}", "timestamp": f"2026-01-12T10:00:0{n}.000Z", "type": "user", "content": f"Try {n}"}
        for n in (1, 3)
    )
    answer = {"id": "m2", "timestamp": "2026-01-12T10:00:02.000Z", "type": "gemini", "content": "No."}
    json_lines(tmp_path / "chats/session-a.jsonl", [head, first, answer, {"$rewindTo": "m1"}, second])
    await imported(workspace, tmp_path, capsys=capsys)
    assert said(observations(workspace)) == [("Try 1", "No.", "complete"), ("Try 3", "", "crashed")]


# --- claude.ai ---


@pytest.mark.parametrize("is_zip", [True, False])
async def test_claude_ai_export_yields_sessions_oldest_first(
    is_zip: bool, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letter = {"file_name": "letter.txt", "file_type": "txt", "extracted_content": "I prefer coffee, says Eve"}
    question = message("human", "Summarise this", 1, attachments=[letter], files=[{"file_name": "photo.png"}])
    tool = {"type": "tool_use", "name": "web_search", "input": {"query": "tea"}, "id": "t1"}
    result = {
        "type": "tool_result",
        "name": "web_search",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "x"}],
    }
    answer = message("assistant", "", 2)
    answer["content"] = [
        {"type": "thinking", "thinking": "hm"},
        tool,
        result,
        {"type": "text", "text": "It is a letter."},
    ]
    newer = conversation(question, answer, message("human", "Unanswered", 3), number=5)
    older = conversation(message("human", "I prefer tea", 11), message("assistant", "Noted.", 12), number=2)
    del older["chat_messages"][0]["content"]
    path = tmp_path / ("data.zip" if is_zip else "conversations.json")
    if is_zip:
        export(path, newer, older, **{"projects.json": "[]"})
    else:
        path.write_text(json.dumps([newer, older]))
    told = await imported(workspace, path, capsys=capsys)
    assert (told["code"], told["sessions"], told["turns"], told["damaged_lines"]) == (0, 2, 3, 0)
    assert told["not_understood"] == ({"other files in a claude.ai export": 2} if is_zip else {})
    turns = observations(workspace)
    assert said(turns) == [
        ("I prefer tea", "Noted.", "complete"),
        ("Summarise this", "It is a letter.", "complete"),
        ("Unanswered", "", "crashed"),
    ]
    assert {(turn["source"], turn["project"]) for turn in turns} == {("claude.ai", None)}
    assert [call["name"] for call in calls(turns[1])] == ["Attachment", "Attachment", "WebSearch"]
    assert {(voice.origin, voice.kind) for voice in await voices_of(workspace, "coffee")} == {("outside", "outside")}


# --- claude-mem ---


async def test_claude_mem_prompt_is_persons_summary_nobodys(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = await imported(workspace, claude_mem(tmp_path / "claude-mem.db"), capsys=capsys)
    assert (told["code"], told["files"], told["sessions"], told["turns"]) == (0, 1, 2, 5)
    turns = observations(workspace)
    assert [turn["user_message"][:20] for turn in turns] == [
        "I prefer tea. Find o",
        "Then mend it, please",
        "When are the roses w",
        "Make it seven",
        "",
    ]
    assert [turn["timestamp"] for turn in turns][2:] == [1764406860.0, 1764407040.0, 1764407100.0]
    # A tool call reveals the folder; a mere name is no project.
    assert [turn["project"] for turn in turns] == [HOUSE, HOUSE, None, None, None]
    assert "'garden'" in turns[2]["notice"]
    assert SECRET not in (workspace / ".os/memory/transcript.db").read_bytes().decode(errors="replace")
    assert {(voice.origin, voice.kind) for voice in await voices_of(workspace, "roses dry")} == {("outside", "outside")}
    assert {voice.kind for voice in await voices_of(workspace, "I prefer tea")} == {"source"}


async def test_claude_mem_database_is_read_only_with_journal(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = claude_mem(tmp_path / "live/claude-mem.db")
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("UPDATE user_prompts SET prompt_text = 'Only in the journal' WHERE id = 2")
        # It is being written to, as by claude-mem's worker.
        writer.execute("BEGIN IMMEDIATE")
        before = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
        told = await imported(workspace, path, capsys=capsys)
        writer.execute("COMMIT")
        after = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    writer.close()
    assert (told["turns"], before == after) == (5, True)
    assert "Only in the journal" in {turn["user_message"] for turn in observations(workspace)}


async def test_prompts_known_from_claude_code_are_not_duplicated(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = "5b1c7a52-0000-4000-8000-000000000001"
    entry = {"type": "user", "uuid": "u1", "sessionId": session, "timestamp": "2026-01-20T07:00:00Z"}
    json_lines(tmp_path / "all/a.jsonl", [{**entry, "message": {"role": "user", "content": "I prefer tea."}}])
    claude_mem(tmp_path / "all/claude-mem.db")
    told = await imported(workspace, tmp_path / "all", capsys=capsys)
    assert told["kinds"]["claude-mem"]["turns"] == 3
    assert told["not_understood"] == {"claude-mem prompts of sessions that the log has whole": 2}


# --- all programs ---


@pytest.mark.parametrize(
    "name",
    [
        "mcp__sprite__search_memory",
        "sprite__search_memory",
        "mcp_sprite_search_memory",
        "search_memory",
        "sprite:around",
        "sprite__ask_sprite",
        "ask_sprite",
        "mcp_sprite_add_action",
    ],
)
async def test_memory_output_in_other_programs_is_not_reimported(
    name: str, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "L7 PREFERENCE Ada prefers tea"
    called = {"id": "t1", "name": name, "args": {"query": "tea"}, "status": "success", "result": [told]}
    said = {"id": "m1", "timestamp": "2026-01-12T10:00:00.000Z", "type": "user", "content": "What do I drink?"}
    answer = {"id": "m2", "timestamp": "2026-01-12T10:00:01.000Z", "type": "gemini", "content": "Tea."}
    head = {"sessionId": "aaaa1111-0", "projectHash": "h", "startTime": "2026-01-12T10:00:00.000Z"}
    json_lines(tmp_path / "chats/session-a.jsonl", [head, said, {**answer, "toolCalls": [called]}])
    older_codex(
        tmp_path,
        heard("What do I drink?"),
        ("response_item", {"type": "function_call", "name": name, "call_id": "c1", "arguments": "{}"}),
        ("response_item", {"type": "function_call_output", "call_id": "c1", "output": told}),
        answered("Tea."),
    )
    assert (await imported(workspace, tmp_path, capsys=capsys))["turns"] == 2
    for turn in observations(workspace):
        (call,) = calls(turn)
        assert call["name"].startswith("mcp__")
        assert told not in call["result"]


async def test_import_is_idempotent_and_dry_run_writes_nothing(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mem = claude_mem(tmp_path / "claude-mem.db")
    exported = export(tmp_path / "data.zip", conversation(message("human", "Hi", 1), message("assistant", "Hello", 2)))
    would = await imported(workspace, CODEX, GEMINI, mem, exported, capsys=capsys, dry_run=True)
    assert not (workspace / ".os").exists()
    told = await imported(workspace, CODEX, GEMINI, mem, exported, capsys=capsys)
    assert {**would, "waiting": told["waiting"]} == told
    assert told["kinds"] == {
        kind: {"turns": number, "already_imported": 0}
        for kind, number in (("codex", 5), ("gemini-cli", 4), ("claude.ai", 1), ("claude-mem", 5))
    }
    before = observations(workspace)
    again = await imported(workspace, RECORDED, mem, exported, capsys=capsys)
    assert (again["turns"], again["already_imported"], again["sessions"]) == (0, 15, 0)
    assert observations(workspace) == before
    sessions = rows(workspace / ".os/memory/transcript.db", "SELECT * FROM sessions")
    assert {row["id"].partition("/")[0] for row in sessions} == {"codex", "gemini-cli", "claude.ai", "claude-mem"}


async def test_report_counts_turns_by_source(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = await import_logs(Settings(workspace), [CODEX, GEMINI], dry_run=False, as_json=False)
    assert code == 0
    out = capsys.readouterr().out
    assert "Imported 9 turn(s) of 4 session(s) from 4 file(s); 0 were in the log already." in out
    assert "codex: 5, gemini-cli: 4" in out


async def test_explicit_kind_skips_detection(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.txt").write_text("Use tabs.\n")
    refused = await imported(workspace, tmp_path / "rules.txt", capsys=capsys)
    assert (refused["code"], len(refused["refused"])) == (2, 1)
    told = await imported(workspace, tmp_path / "rules.txt", capsys=capsys, kind="notes")
    assert [(note["file"], note["lines"]) for note in told["proposed"]] == [("context.md", 1)]


def test_reader_is_selectable_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["import", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for reader in READERS:
        assert reader.kind in shown


async def test_off_record_request_applies_to_imported_turns(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private = "Ring <private>the clinic on Elm Street</private> first"
    older_codex(
        tmp_path / "logs",
        heard(private),
        answered("I rang the clinic on Elm Street."),
        heard(f"My key is {SECRET}"),
        answered(f"I used {SECRET}"),
    )
    await imported(workspace, tmp_path / "logs", capsys=capsys)
    whole = json.dumps(observations(workspace))
    assert "Elm Street" not in whole
    assert SECRET not in whole
