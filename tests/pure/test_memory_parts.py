"""What a session of Claude Code begins with, in pieces that it shows whole."""

from __future__ import annotations

import json

import pytest

from sprite.memory.tokens import estimate_tokens
from tests.claude_code import PLUGIN, REMOTE_PLUGIN, session_start_script

#: What Claude Code shows of a hook's output, and what a session begins with at most.
SHOWN_CHARS = 10_000
BOOT_TOKENS = 8_000
SCRIPT = session_start_script()
ENTRY = '<memory_file name="user.md">\n' + "A line of it that goes on for a while\n" * 20 + "</memory_file>\n"


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Short.\n",
        "One line of many\n" * 1500,
        "x" * 25_000,
        "\N{TEACUP WITHOUT HANDLE}" * 9_000,
        "a\N{TEACUP WITHOUT HANDLE}" * 7_000,
        "\n" * 25_000,
        ENTRY * 30,
        "</memory_file>\n" * 2000,
    ],
    ids=["none", "short", "lines", "one line", "astral", "mixed", "empty lines", "entries", "ends alone"],
)
def test_every_piece_is_shown_whole_and_together_they_are_the_text(text: str) -> None:
    pieces = SCRIPT.cut(text)
    assert "".join(pieces) == text or (not text.strip() and not "".join(pieces).strip())
    assert all(utf16(SCRIPT.part_of(text, number)) < SHOWN_CHARS for number in range(1, len(pieces) + 2))


def test_the_longest_memory_fits_into_the_hooks_parts() -> None:
    hooks = json.loads((PLUGIN / "hooks/hooks.json").read_text())["hooks"]["SessionStart"][0]["hooks"]
    numbers = [int(hook["args"][-1]) for hook in hooks]
    assert numbers == list(range(1, len(hooks) + 1))
    for unit in (ENTRY, "word " * 15 + "\n", "\N{LATIN SMALL LETTER E WITH ACUTE}" * 70 + "\n"):
        text = unit * (BOOT_TOKENS // estimate_tokens(unit))
        assert len(SCRIPT.cut(text)) <= len(hooks)


def test_a_short_memory_is_printed_as_it_is_and_a_long_ones_parts_are_numbered() -> None:
    assert SCRIPT.part_of("Short.\n", 1) == "Short.\n"
    assert SCRIPT.part_of("Short.\n", 2) == ""
    assert SCRIPT.part_of("line\n" * 4000, 2).startswith("(Memory, part 2 of 3)\nline\n")


def test_pieces_end_where_a_delimited_part_ends() -> None:
    pieces = SCRIPT.cut(ENTRY * 30)
    assert len(pieces) == 3
    assert all(piece.startswith("<memory_file") and piece.endswith("</memory_file>\n") for piece in pieces)


def test_both_plugins_begin_sessions_alike() -> None:
    for name in ("hooks/hooks.json", "scripts/session_start.py", "skills/remember/SKILL.md"):
        assert (PLUGIN / name).read_bytes() == (REMOTE_PLUGIN / name).read_bytes()


def test_the_plugins_add_nothing_to_prompts_and_tools() -> None:
    for plugin in (PLUGIN, REMOTE_PLUGIN):
        assert list(json.loads((plugin / "hooks/hooks.json").read_text())["hooks"]) == ["SessionStart"]
