"""Pasted spans: checked, moved by redaction and edits, and never shorter than the words that were pasted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.terminal.terminal import PastedSpans
from sprite.memory.words import given as from_memory
from sprite.memory.words import marked_without_memory
from sprite.privacy.private_text import PrivateText
from sprite.protocol.pasted import Marked, own_text, problem_of

KEY = "sk-ant-api03-" + "Ab3dEf9hIjKlMnOpQrStUvWxYz" * 3
#: Pieces of a message; each typed piece and each pasted piece has a word of its own.
PIECES = st.sampled_from(
    [" ", "\n", "\U0001f600", "é", KEY, f"key: {KEY}", "<private>", "</private>", "hunter2", "we leave Acme in May"]
)
MESSAGES = st.lists(st.tuples(st.booleans(), st.lists(PIECES, max_size=4)), max_size=6)


def message_of(parts: list[tuple[bool, list[str]]]) -> Marked:
    """Join parts of (is pasted, pieces), each between words that tell where it stands."""
    text, pasted = "", []
    for number, (is_pasted, pieces) in enumerate(parts):
        word = "PASTED" if is_pasted else "TYPED"
        start = len(text)
        text += f"{word}{number} {''.join(pieces)} {word}{number}\n"
        if is_pasted:
            pasted.append((start, len(text)))
    return Marked(text, tuple(pasted))


@pytest.mark.parametrize(
    "spans",
    [
        ((2, 2),),
        ((3, 2),),
        ((-1, 2),),
        ((0, 6),),
        ((2, 4), (0, 1)),
        ((0, 3), (2, 4)),
        ((0, 1),) * 1001,
    ],
)
def test_problem_of_bad_spans_names_them(spans: tuple[tuple[int, int], ...]) -> None:
    problem = problem_of("Hello", spans)
    assert problem is not None
    assert "`pasted`" in problem


def test_touching_and_whole_spans_are_valid() -> None:
    assert problem_of("H\U0001f600llo", ((0, 2), (2, 5))) is None
    assert problem_of("", ()) is None


def test_own_text_replaces_spans_by_newlines() -> None:
    assert own_text("I like this: tea. Thanks", ((13, 18),)) == "I like this: \nThanks"
    assert own_text("all", ((0, 3),)) == "\n"
    assert own_text("none", ()) == "none"


@given(MESSAGES)
def test_redaction_keeps_words_on_their_side(parts: list[tuple[bool, list[str]]]) -> None:
    message, private_text = message_of(parts), PrivateText()
    private_text.hear("<private>we leave Acme in May</private> The password is hunter2")
    left = private_text.marked(message)
    assert left.text == private_text.person(message.text)
    assert problem_of(left.text, left.pasted) is None
    assert "PASTED" not in left.own
    # A private passage that begins in one part may end in another; the mark for both counts as pasted.
    if "<private>" not in message.text:
        assert left.own.count("TYPED") == message.text.count("TYPED")


def test_edit_across_a_span_end_widens_the_span() -> None:
    message = Marked("my key is sk-1234 ok", ((0, 12),))
    assert message.replaced([(10, 17, "[redacted]")]) == Marked("my key is [redacted] ok", ((0, 20),))
    assert message.replaced([(12, 17, "")]) == Marked("my key is sk ok", ((0, 12),))


def test_memory_part_inside_a_paste_stays_pasted() -> None:
    part = from_memory(None, "Likes tea")
    left = marked_without_memory(Marked(f"See: {part}!", ((5, 5 + len(part)),)))
    assert left.own == "See: \n!"


@given(st.text("ab ", max_size=8), st.text("ab ", max_size=8), st.text("ab ", max_size=8), st.text("ab ", max_size=4))
def test_rewritten_text_never_frees_pasted_words(before: str, pasted: str, after: str, new: str) -> None:
    """Wherever a part of the text is replaced, the rest of the paste stays covered."""
    message = Marked(before + pasted + after, ((len(before), len(before + pasted)),) if pasted else ())
    for start in range(len(message.text) + 1):
        for end in range(start, len(message.text) + 1):
            left = message.rewritten(message.text[:start] + new + message.text[end:])
            assert problem_of(left.text, left.pasted) is None
            kept_before = message.text[len(before) : min(start, len(before + pasted))]
            covered = {at for span in left.pasted for at in range(*span)}
            assert set(range(len(before), len(before + kept_before))) <= covered


def test_terminal_line_keeps_spans_through_edits() -> None:
    line = PastedSpans()

    def own(text: str, *, is_paste: bool = False, cursor: int | None = None) -> str:
        line.changed(text, len(text) if cursor is None else cursor, is_paste=is_paste)
        return own_text(text, line.spans)

    for end in range(1, 5):
        own("See "[:end])
    assert own("See tea", is_paste=True) == "See \n"
    assert own("See teaa") == "See \na"
    assert own("See tXeaa", cursor=6) == "See \na"
    # Two deletions of equal characters, told apart by the cursor.
    assert own("See tXea", cursor=8) == "See \n"
    assert own("See") == "See"
    line.changed("", 0)
    # The kill ring, or the line history.
    assert own("I prefer milk") == "\n"
    assert own("I prefer milk!") == "\n!"


def test_stripped_moves_spans() -> None:
    assert Marked(" \n tea  ", ((2, 8),)).stripped() == Marked("tea", ((0, 3),))
    assert Marked("  ", ((0, 2),)).stripped() == Marked("")
