"""Separation of a message into the person's own text and pasted text."""

from __future__ import annotations

import pytest

from sprite.capture.truncated_hashes import unkept_of
from sprite.curation.provenance.guards import Given, WorkWord, exchanged_in, names_in
from sprite.curation.provenance.pasted import read_message
from sprite.curation.provenance.persons_word import Said
from sprite.curation.provenance.vocabulary import disguise_of

STRANGE = "every order is placed without asking anybody first"


@pytest.mark.parametrize(
    "message",
    [
        f"Look:\n> {STRANGE}",
        f"Look\n```\n{STRANGE}\n```",
        f"Look\n~~~\n{STRANGE}\n~~~\nthanks",
        f"The shop left this\n\n    {STRANGE}\n    the shop\n\nstrange",
        f'On the display it says "{STRANGE}". What is it?',
        f"Sie schreiben: „{STRANGE}“ Was meinst du?",
        f"A review: '{STRANGE}'. Funny",
        f"got this one, what do you think: Hello, {STRANGE}.",
        f"what do you make of this:\n\nHello,\n{STRANGE}\nbye",
        f"Piet wrote:\n{STRANGE}",
        f"from slack:\nDario  9:12 AM\n{STRANGE}\n\nwho is Dario?",
        f"[10:41] Piet: hello\n[10:42] Piet: {STRANGE}\nis he right?",
        f"Answer please\n\n-----Original Message-----\nFrom: shop@kilns.example\nSubject: Orders\n\n{STRANGE}",
        f"Komisch?\n\nVon: laden@kilns.example\nBetreff: Neu\n\n{STRANGE}",
        f"Hm.\nOn Mon, 3 Nov 2026 at 10:12, Piet wrote:\n{STRANGE}",
        f"is it true\n\nDear Ada,\n{STRANGE}\nKind regards\nThe shop\n\nI doubt it",
    ],
)
def test_paste_is_detected_with_and_without_marks(message: str) -> None:
    read = read_message(message)
    assert STRANGE not in read.own
    assert any(STRANGE in pasted for pasted in read.pasted)


@pytest.mark.parametrize("message", [f"~~~\n{STRANGE}\n~~~\nthanks, I doubt it", f"> {STRANGE}\n\nthanks, I doubt it"])
def test_text_after_closed_paste_is_persons(message: str) -> None:
    assert "I doubt it" in read_message(message).own


@pytest.mark.parametrize(
    "message",
    [
        "From Monday on we are open until 7 pm.\nPlease change the text.",
        "Subject to approval by Ingrid: anything above 400 euros.",
        "Subject: reminders\nTo: you :)\n\nafter 14 days: friendly",
        "My rules:\n- no emojis\n- short answers",
        "my prices, put them on a card:\n\n    - 45 an hour\n    - a look is free",
        "my plan for the kiln\n```\nbisque: tuesday\nglaze: thursday\n```\nkeep to that",
        "I  want\n\tDD/MM dates",
        'put "Osmo Polyx 3032" on the list',
        "no, use tabs: everything here is tabs",
        "[18:05] me: i take the thursday",
        "Hi,\nplease write shorter\nThanks, Ada",
    ],
)
def test_own_text_resembling_paste_stays_persons(message: str) -> None:
    read = read_message(message)
    assert not read.pasted
    assert read.own.split() == message.split()


#: Repeated, each takes seconds if a pattern is quadratic.
BAIT = [
    *(" ", "a", '"', "> ", "`", "-", "1", "1,", "\n", "\tx\n", "no, ", "AB ", "am ", "a b ", "a1", "a_", "\u00b2"),
    *(
        "From: x\n",
        "mail from: ",
        "10:41 ",
        ": 'a \"",
        "Dear x\n",
        "    x\n\n",
        "<<a\n",
        "\u201ea",
        "\u00aba",
        "\u2018a",
    ),
]


@pytest.mark.parametrize("piece", BAIT)
def test_arbitrary_text_is_read_without_error(piece: str) -> None:
    text = piece * (10_000 // len(piece))
    read = read_message(text)
    assert len(read.own) + sum(map(len, read.pasted)) <= 2 * len(text)
    assert all(statement.words for statement in Said(text).statements)
    given = Given([text])
    for look in (
        names_in,
        unkept_words,
        lambda line: exchanged_in(line, given),
        disguise,
        WorkWord(given, set()).lacks,
    ):
        look(text)


def unkept_words(text: str) -> object:
    return unkept_of(text, "")


def disguise(text: str) -> object:
    return disguise_of(text, lambda _: False, personal=True)
