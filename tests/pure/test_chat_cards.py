"""Rendering of the terminal client, as the text that a person sees."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console, Group

from bridge.terminal import drawing, memory_views
from bridge.terminal.drawing import clean, draw_card
from bridge.terminal.turn import StreamedReply
from sprite.protocol.messages import MemoryUpdate, PermissionRequest, Status
from sprite.protocol.shapes import Block, ChatMessage, FileState, MemoryState, SearchHit, SessionState
from tests.chat_stand_in import learned

if TYPE_CHECKING:
    from rich.console import RenderableType

BLOCKS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("heading", {"text": "Totals", "level": 2}, ["Totals"]),
    ("stat", {"label": "open invoices", "value": 12, "description": "since May"}, ["12", "open", "since May"]),
    ("key-value", {"pairs": [{"key": "Owner", "value": "Ada"}, {"key": "Due", "value": None}]}, ["Owner   Ada"]),
    ("table", {"columns": ["Item", "Price"], "rows": [["Tea", 3.5], ["Milk", 12]]}, ["Item", "Tea   "]),
    ("table", {"columns": ["Item"], "rows": []}, ["Item"]),
    ("badge", {"text": "paid", "variant": "success"}, ["paid"]),
    ("progress", {"value": 50, "label": "half way"}, ["50%  half way"]),
    ("text", {"content": "a **bold** word"}, ["a bold word"]),
    ("separator", {}, ["────"]),
    ("document", {"path": "documents/a.pdf", "title": "Lease", "excerpt": "The parties"}, ["Lease", "The parties"]),
    ("note", {"content": "call back"}, ["call back"]),
    ("hologram", {"x": 1}, ['hologram {"x":1}']),
    ("table", {"nothing": "fits"}, ['table {"nothing":"fits"}']),
]


def text_of(thing: RenderableType, *, width: int = 80) -> str:
    console = Console(file=io.StringIO(), record=True, width=width, color_system=None)
    console.print(Group(thing))
    return console.export_text()


@pytest.mark.parametrize(("kind", "data", "shown"), BLOCKS, ids=[f"{b[0]}-{i}" for i, b in enumerate(BLOCKS)])
def test_block_is_rendered_with_its_content(kind: str, data: dict[str, Any], shown: list[str]) -> None:
    drawn = text_of(draw_card("Budget", [Block("b1", kind, data)]))
    assert "Budget" in drawn
    for words in shown:
        assert words in drawn


def test_rows_of_other_length_are_rendered() -> None:
    table = Block("b", "table", {"columns": ["A"], "rows": [["1", "2", {"x": True}], []]})
    assert '{"x":true}' in text_of(draw_card("Odd", [table]))


def test_control_sequences_and_markup_stay_text() -> None:
    nasty = "\x1b]0;pwned\x07\x1b[2J\x9b31m[red]rm[/red]\u202e\u061c"
    drawn = text_of(draw_card(nasty, [Block("b", "note", {"content": nasty})]))
    assert "[red]rm[/red]" in drawn
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u061c"} & set(drawn)


def test_cleaning_keeps_text_emoji_tabs_and_newlines() -> None:
    assert clean("a\tb\nc 👩‍🔬 ü\r\x00") == "a\tb\nc 👩‍🔬 ü"


def test_link_shows_its_target() -> None:
    drawn = text_of(draw_card("L", [Block("b", "text", {"content": "[bank](https://evil.example)"})]))
    assert "https://evil.example" in drawn


def test_streamed_reply_prints_each_finished_block_once() -> None:
    reply = StreamedReply()
    whole = "# Title\n\nA first paragraph.\n\n- one\n\n  still one\n- two\n\nEnd."
    pieces: list[str] = []
    for character in whole[:-1]:
        pieces += reply.feed(character)
    assert pieces == ["# Title", "A first paragraph.", "- one\n\n  still one\n- two"]
    assert reply.tail == "End"
    assert reply.feed(".") + reply.finish() == ["End."]


def test_blank_line_inside_fence_ends_no_block() -> None:
    reply = StreamedReply()
    assert reply.feed("```py\na = 1\n\nb = 2\n```\n\nDone") == ["```py\na = 1\n\nb = 2\n```"]
    assert reply.finish() == ["Done"]


def test_line_mode_prints_reply_verbatim() -> None:
    reply = StreamedReply(by_line=True)
    assert reply.feed("a\n\n* b") == ["a", ""]
    assert reply.feed("\n") + reply.finish() == ["* b"]


@pytest.mark.parametrize(
    ("name", "tool_input", "shown"),
    [
        ("Bash", {"command": "ls -la\n  /tmp", "description": "List"}, "▸ Bash  ls -la /tmp"),
        ("Read", {"file_path": "/a/b.txt", "limit": 3}, "▸ Read  /a/b.txt"),
        ("mcp__sprite__search_memory", {"query": "dates"}, "▸ search_memory  dates"),
        ("Odd", {"n": 1}, '▸ Odd  {"n":1}'),
        ("None", {}, "▸ None"),
    ],
)
def test_tool_call_is_one_descriptive_line(name: str, tool_input: dict[str, Any], shown: str) -> None:
    assert text_of(drawing.tool_started(name, tool_input)).strip() == shown


def test_long_tool_line_is_cut_to_width() -> None:
    lines = text_of(drawing.tool_ended("", "x" * 500, is_error=True), width=40).splitlines()
    assert [len(line) for line in lines] == [40]
    assert lines[0].endswith("…")


def test_permission_request_is_shown_whole() -> None:
    command = "\n".join(f"step {number}" for number in range(500))
    drawn = text_of(drawing.question(PermissionRequest("r", "m", "Bash", {"command": command})))
    assert "May the agent use Bash?" in drawn
    assert all(f"step {number}⏎" in drawn for number in range(499))
    assert drawn.index("step 499") < drawn.index("characters in 500 lines: scroll up") < drawn.index("y allow")
    long = text_of(drawing.question(PermissionRequest("r", "m", "Bash", {"command": f"# {'x ' * 1500}\nrm -rf ."})))
    assert "rm -rf ." in long


def test_question_shows_every_character_in_place() -> None:
    command = "echo \u202eolleh\u2066;\x1b[2K\r\ttouch\u00a0a\u200b\U000e0041\ufe0f\u3164\n"
    drawn = text_of(drawing.question(PermissionRequest("r", "m", "Bash", {"command": command})))
    assert "echo <U+202E>olleh<U+2066>;<U+001B>[2K<U+000D>⇥" in drawn
    assert "touch<U+00A0>a<U+200B><U+E0041><U+FE0F><U+3164>⏎" in drawn
    assert not set(command) - set("\n") & set(drawn) & set("\u202e\u2066\x1b\r\u00a0\u200b\ufe0f")


def test_question_shows_full_input_then_agents_words() -> None:
    tool_input = {"description": "Lists files", "command": "rm -rf .", "run_in_background": True}
    request = PermissionRequest("r", "m", "Bash", tool_input, folder="documents", always="this command in documents/")
    drawn = text_of(drawing.question(request))
    assert re.search(r"in folder +documents(?s:.)*command +rm -rf \.(?s:.)*background +true(?s:.)*Lists files", drawn)
    assert "y allow   n deny   a always allow this command in documents/   then Enter" in drawn
    write = PermissionRequest("r", "m", "Write", {"content": "x\n" * 900, "file_path": "/w/a"}, real_path="/etc/a")
    drawn = text_of(drawing.question(write))
    assert drawn.index("/etc/a") < drawn.index("/w/a") < drawn.index("content")


def test_always_is_offered_only_for_narrow_rules() -> None:
    drawn = text_of(drawing.question(PermissionRequest("r", "m", "WebFetch", {"url": "https://example.org"})))
    assert "y allow   n deny   then Enter" in drawn


def test_host_question_offers_turn_session_and_always() -> None:
    request = PermissionRequest("r", "m", "network", {"host": "xn--pple-43d.com"}, always="a.com", session="a.com")
    drawn = text_of(drawing.question(request))
    assert "May the agent reach xn--pple-43d.com?" in drawn
    assert re.search(r"y allow in this turn +n deny +s allow in this session +a always allow a\.com", drawn)


def test_learning_notice_is_one_line() -> None:
    update = MemoryUpdate(["user.md"], [learned(1, "FACT", "One"), learned(2, "FACT", "Two")], curation_id=1)
    assert text_of(drawing.remembered([update])).strip() == "✎ remembered 2 things · user.md updated"


def test_history_shows_last_messages_shortened() -> None:
    chat = [ChatMessage(i, "user", f"line {i}\nb\nc\nd", 0.0, None) for i in range(9)]
    drawing_of = drawing.history(chat)
    assert drawing_of is not None
    drawn = text_of(drawing_of)
    assert "3 more before" in drawn
    assert "line 2" not in drawn
    assert "line 8" in drawn
    assert "d" not in drawn.splitlines()[-1].split()
    assert drawing.history([]) is None


def test_memory_files_show_lines_and_limit() -> None:
    states = [FileState("user.md", 190, 200, "curated", 0.0), FileState("soul.md", 40, 0, "deploy", None)]
    drawn = text_of(memory_views.files(states), width=100)
    assert "190/200" in drawn
    assert "soul.md" in drawn


def test_status_shows_forgets_pending_in_replica() -> None:
    """Once the replica has confirmed them, the status does not mention them."""

    def drawn(unshipped: int) -> str:
        memory = MemoryState([], 3, 9, 0, 0.0, unshipped_forgets=unshipped)
        state = Status("status", SessionState(None, None, 0, None, 0), memory, None, "ask", None)
        return text_of(memory_views.status(state, link="ready"), width=100)

    assert "here (1 forget); the bridge's replica still contains it" in drawn(1)
    assert "2 forgets" in drawn(2)
    assert "forg" not in drawn(0)


def test_hits_show_kind_and_unsearched_count() -> None:
    found = [
        SearchHit("learning", 1, "FACT", 0.0, "s1", 3, "Born [b]in[/b] May"),
        SearchHit("turn", 7, "TURN", 0.0, "s1", 7, "x" * 400),
    ]
    drawn = text_of(memory_views.hits(found, waiting=2), width=100)
    assert "FACT" in drawn
    assert "Born [b]in[/b] May" in drawn
    assert "turn 7" in drawn
    assert "2 turns not learned from" in drawn
    assert "Nothing found." in text_of(memory_views.hits([], waiting=0))
    elsewhere = [SearchHit("turn", 8, "TURN", 0.0, "s1", 8, "With make ship.", project="/home/ada/web")]
    assert "With make ship.  project /home/ada/web" in text_of(memory_views.hits(elsewhere, waiting=0), width=100)
    noted = text_of(memory_views.hits(found, waiting=0, notes=["also: invoice"]), width=100)
    assert "also: invoice" in noted


def test_hit_with_tool_calls_is_plain() -> None:
    said = 'User: Write {"a"}\nTools: mcp__sprite__create_card {"title": "Ships", "rows": [1]} ; Bash {"command": "ls"}'
    hit = SearchHit("turn", 8, "TURN", 0.0, "s1", 8, said)
    drawn = text_of(memory_views.hits([hit], waiting=0), width=150)
    assert 'User: Write {"a"} Tools: create card title: Ships, rows: 1 ; Bash command: ls' in drawn


def test_learning_shows_its_quote() -> None:
    assert 'turn 1  "Likes tea"' in text_of(memory_views.learnings([learned(1, "FACT", "Likes tea")]), width=100)
