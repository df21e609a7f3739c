"""Memory at the start of a Claude Code session, in pieces that it displays completely."""

from __future__ import annotations

import json
import re

import pytest

from sprite.memory.files import estimate_tokens
from sprite.memory.words import TAKEN_OUT, without_memory
from tests.claude_code import PLUGIN, REMOTE_PLUGIN, session_start_script

#: Output limit of a Claude Code hook, and the largest session memory.
SHOWN_CHARS = 10_000
BOOT_TOKENS = 8_000
SCRIPT = session_start_script()
BEGIN, END = '<sprite_memory project="/home/ada/code" >\n', "</sprite_memory>\n"
ENTRY = '<memory_file name="user.md">\n' + "A line of it that goes on for a while\n" * 20 + "</memory_file>\n"


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def parts(text: str) -> list[str]:
    """Return the hook's outputs for a text, one command after another, until the text ends."""
    found: list[str] = []
    while part := SCRIPT.part_of(text, len(found) + 1):
        found.append(part)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "Short.\n",
        "One line of many\n" * 1500,
        "x" * 25_000 + "\n",
        "\N{TEACUP WITHOUT HANDLE}" * 9_000 + "\n",
        "a\N{TEACUP WITHOUT HANDLE}" * 7_000 + "\n",
        ENTRY * 30,
        "</memory_file>\n" * 2000,
    ],
    ids=["short", "lines", "one line", "astral", "mixed", "entries", "ends alone"],
)
def test_parts_are_shown_whole_and_form_text(text: str) -> None:
    found = parts(f"{BEGIN}{text}{END}")
    assert all(utf16(part) < SHOWN_CHARS for part in found)
    assert all(part.startswith(BEGIN) and part.endswith(f"\n{END}") for part in found)
    bodies = [part.removeprefix(BEGIN).removesuffix(END) for part in found]
    if len(found) > 1:
        assert [body.splitlines()[0] for body in bodies] == [
            f"(Part {n + 1} of {len(found)})" for n in range(len(found))
        ]
        bodies = [body.partition("\n")[2] for body in bodies]
    assert "".join("".join(bodies).split()) == "".join(text.split())


def test_longest_memory_fits_hook_parts() -> None:
    hooks = json.loads((PLUGIN / "hooks/hooks.json").read_text())["hooks"]["SessionStart"][0]["hooks"]
    numbers = [int(hook["args"][-1]) for hook in hooks]
    assert numbers == list(range(1, len(hooks) + 1))
    for unit in (ENTRY, "word " * 15 + "\n", "\N{LATIN SMALL LETTER E WITH ACUTE}" * 70 + "\n", "x" * 3000 + "\n"):
        text = unit * (BOOT_TOKENS // estimate_tokens(unit))
        for begin in (BEGIN, BEGIN.replace("/code", "/" + "c" * (SCRIPT.MOST_TAG_CHARS - len(BEGIN)))):
            assert len(parts(f"{begin}{text}{END}")) <= len(hooks)


def test_memory_size_bounds_number_of_parts() -> None:
    blocks = [int(found) for found in re.findall(r"least=(\d+)", (PLUGIN / "scripts/session-start").read_text())]
    tag = BEGIN.replace("/code", "/" + "c" * (SCRIPT.MOST_TAG_CHARS - len(BEGIN)))
    for begin in (BEGIN, tag):
        for count, size in enumerate(blocks, start=1):
            for filling in ("x", "words in a line\n", ENTRY):
                body = (filling * 20_000)[: size * 512 - len(begin) - len(END) - 1]
                text = f"{begin}{body}\n{END}"
                assert len(text.encode()) == size * 512
                assert len(parts(text)) <= count


def test_parts_end_at_delimiters_of_memory() -> None:
    found = parts(f"{BEGIN}{ENTRY * 30}{END}")
    assert len(found) == 3
    assert all("\n<memory_file" in part[:100] and part.endswith(f"</memory_file>\n{END}") for part in found)


def test_part_is_not_learned_in_recorded_session() -> None:
    for part in parts(f"{BEGIN}{ENTRY * 30}{END}"):
        assert without_memory(part).strip() == TAKEN_OUT


@pytest.mark.parametrize(
    "text", ["", "words", f"{BEGIN}cut off", f"words {BEGIN}{END}", BEGIN, END, "<sprite_memory " * 9999]
)
def test_foreign_text_is_not_shown(text: str) -> None:
    assert parts(text) == []


def test_both_plugins_start_sessions_identically() -> None:
    for name in ("hooks/hooks.json", "scripts/session_start.py", "skills/remember/SKILL.md"):
        assert (PLUGIN / name).read_bytes() == (REMOTE_PLUGIN / name).read_bytes()


def test_plugins_add_nothing_to_prompts_and_tools() -> None:
    for plugin in (PLUGIN, REMOTE_PLUGIN):
        assert list(json.loads((plugin / "hooks/hooks.json").read_text())["hooks"]) == ["SessionStart"]


def test_private_way_is_https_or_this_machine() -> None:
    """Other addresses cross a network where the token could be read."""
    for url in (
        "https://a.example",
        "HTTPS://a.example",
        "http://127.0.0.1",
        "http://localhost:8000/x",
        "http://[::1]:1",
    ):
        assert SCRIPT.is_private_way(url), url
    for host in ("0.0.0.0:8000", "a.example"):
        for url in (
            *(f"http://{host}", f"HTTP://{host}", host, f"//{host}", f"http:{host}", f"file://{host}"),
            *(f"http://127.0.0.1:1@{host}", f"http://localhost@{host}/", f"http://{host}#@127.0.0.1", "http://["),
        ):
            assert not SCRIPT.is_private_way(url), url
