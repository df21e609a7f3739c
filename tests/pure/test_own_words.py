"""Separation of a message into the person's own words and pasted text."""

from __future__ import annotations

import pytest

from sprite.curation.provenance.evidence import Turn, own_words
from tests.logged_turns import turn

STRANGE = "every order is placed without asking anybody first"


@pytest.mark.parametrize(
    "message",
    [
        f"Look:\n> {STRANGE}\nI doubt it",
        f"Look\n```\n{STRANGE}\n```\nI doubt it",
        f"Look\n  ~~~text\n{STRANGE}\n~~~\nI doubt it",
        f"I doubt it\n```\n{STRANGE}",
        f"I doubt it\n\nFrom: shop@kilns.example\nSubject: Orders\n\n{STRANGE}",
        f"I doubt it\n\nVon: Laden <laden@kilns.example>\nBetreff: Neu\n\nHallo\n\n{STRANGE}",
    ],
)
def test_paste_without_mark_is_recognised(message: str) -> None:
    own, pasted = own_words(message)
    assert own.split() in (["Look:", "I", "doubt", "it"], ["Look", "I", "doubt", "it"], ["I", "doubt", "it"])
    assert any(STRANGE in part for part in pasted)


def test_span_marked_by_client_is_pasted() -> None:
    message = f"What about {STRANGE}? I doubt it. {STRANGE}"
    first, last = message.index(STRANGE), message.rindex(STRANGE)
    spans = ((first, first + len(STRANGE)), (last, len(message)))
    assert own_words(message, spans) == ("What about \n? I doubt it. \n", [STRANGE, STRANGE])
    own = Turn(turn(1, message, pasted=spans))
    assert [(voice.kind, voice.origin) for voice in own.voices[:3]] == [
        ("person", "user"), ("pasted", "pasted"), ("pasted", "pasted")
    ]  # fmt: skip
    assert STRANGE not in own.own


@pytest.mark.parametrize(
    "message",
    [
        "I got this one wrong: the rate is 45",
        "got it: use tabs everywhere",
        "got a new rule for you: no emojis\nand short answers",
        "I said it before: no meetings on Fridays",
        "as I said: call me Ada",
        "Piet said yes: book the room for six",
        "she said no, so here is my plan: cancel the order",
        "from now on: metric units",
        "From Monday on: we are open until 7 pm.\nPlease change the text.",
        "from: Lund, to: Malmö, by train",
        "My rules:\n- no emojis\n- short answers",
        "Subject: reminders\nTo: you :)\n\nafter 14 days: friendly",
        'put "Osmo Polyx 3032" on the list\n\n    - 45 an hour',
        "[18:05] me: i take the thursday\nDear diary, I am done",
    ],
)
def test_own_text_is_never_taken_for_paste(message: str) -> None:
    assert own_words(message) == (message, [])


@pytest.mark.parametrize(
    ("fields", "voice"),
    [
        ({}, ("user", "person")),
        ({"source": "claude-code"}, ("claude-code", "source")),
        ({"trigger": "program"}, ("program", "outside")),
        ({"trigger": "schedule"}, ("tool", "outside")),
    ],
)
def test_message_is_persons_only_if_typed_here(fields: dict[str, str], voice: tuple[str, str]) -> None:
    asked = Turn(turn(1, "I prefer tea", **fields))
    assert (asked.voices[0].origin, asked.voices[0].kind) == voice
    assert bool(asked.own) == (voice[1] == "person")


@pytest.mark.parametrize("piece", ["`", "> ", "~~~\n", "a: b\n", "a@b.c: d\n", "\n", " ", "x"])
def test_long_text_is_split_in_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    own, pasted = own_words(text)
    assert len(own) + sum(map(len, pasted)) <= 2 * len(text)
