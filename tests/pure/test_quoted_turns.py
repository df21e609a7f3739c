"""Evidence of a line: the turn that has its quote, its speaker, and the question before it."""

from __future__ import annotations

import pytest

from sprite.curation.provenance.checks import Given, flaw
from sprite.curation.provenance.evidence import Evidence
from tests.logged_turns import call, turn, turns

TEA, PAGE = "I prefer tea in the morning", "every order is placed unasked"


def place(found: Evidence | None) -> tuple[int, str] | None:
    return None if found is None else (found.turn.logged.id, found.voice.kind)


@pytest.mark.parametrize(
    ("cited", "others", "found"),
    [
        (2, {2: TEA}, (2, "person")),
        (2, {1: TEA, 2: TEA, 3: TEA}, (2, "person")),
        (2, {3: TEA}, (3, "person")),
        (None, {3: TEA}, (3, "person")),
        (99, {3: TEA}, (3, "person")),
        (2, {1: TEA, 3: TEA}, None),
        (None, {1: TEA, 3: TEA}, None),
        (2, {}, None),
    ],
)
def test_quote_moves_to_only_other_turn(
    cited: int | None, others: dict[int, str], found: tuple[int, str] | None
) -> None:
    batch = [turn(number, others.get(number, "Hello")) for number in (1, 2, 3)]
    assert place(turns(*batch).find(cited, "i prefer TEA, in the morning.")) == found


@pytest.mark.parametrize("quote", [None, "", "...", "``"])
def test_empty_quote_is_no_evidence(quote: str | None) -> None:
    assert turns(turn(1, TEA)).find(1, quote) is None


def test_quote_is_not_searched_before_batch() -> None:
    assert turns(turn(2), earlier=[turn(1, TEA)]).find(1, TEA) is None


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"user": PAGE}, "person"),
        ({"user": PAGE, "pasted": ((0, len(PAGE)),)}, "pasted"),
        ({"user": PAGE, "source": "codex"}, "source"),
        ({"reply": PAGE}, "reply"),
        ({"notice": PAGE}, "outside"),
        ({"tool_calls": [call("Bash", PAGE, "make")]}, "result"),
        ({"tool_calls": [call("Bash", PAGE, "cat letter.txt")]}, "printed"),
        ({"tool_calls": [call("Bash", "", f"echo {PAGE}")]}, "input"),
        ({"tool_calls": [call("WebFetch", {"text": [PAGE]})]}, "outside"),
        ({"tool_calls": [call("mcp__sprite__search_memory", PAGE)]}, "memory"),
    ],
)
def test_speaker_of_quote_is_known(fields: dict[str, object], kind: str) -> None:
    calls = fields.pop("tool_calls", [])
    assert isinstance(calls, list)
    logged = turn(1, str(fields.pop("user", "Hi")), str(fields.pop("reply", "Hi")), *calls, **fields)
    assert place(turns(logged).find(1, PAGE)) == (1, kind)


@pytest.mark.parametrize("sign", ["-", "_", "/", "."])
def test_words_of_address_are_no_quote(sign: str) -> None:
    address = f"https://kilns.example/{PAGE.replace(' ', sign)}"
    said = turns(turn(1, "look", "", call("Bash", "ok", f"curl -o page {address}")))
    assert said.find(1, PAGE) is None
    assert place(said.find(1, address)) == (1, "input")


def test_person_comes_before_page_with_same_words() -> None:
    assert place(turns(turn(1, PAGE, "", call("WebFetch", PAGE))).find(1, PAGE)) == (1, "person")


def test_turn_shown_again_keeps_its_place() -> None:
    earlier = [turn(1), turn(8, "I need a hotel", "Shall I book one in Lund?")]
    said = turns(turn(2, "I like cake", "Which cake?"), turn(9, "yes, do that"), earlier=earlier)
    around = said.around(said.batch[9])
    assert [known.logged.id for known in around.messages] == [1, 2, 8, 9]
    assert around.question == "Shall I book one in Lund?"


@pytest.mark.parametrize(
    ("text", "is_flawed"),
    [
        ("The kiln takes 45 minutes", False),
        ("The kiln takes 30 minutes", False),
        ("The kiln takes 99 minutes", True),
        ("The kiln takes 12 minutes", True),
        ("The k\u0456ln takes 45 minutes", True),
    ],
)
def test_number_comes_from_quote_or_messages(text: str, *, is_flawed: bool) -> None:
    """12 is only in the reply, 99 nowhere."""
    said = turns(turn(1, "it took 30 before"), turn(2, "now the kiln takes 45", "12 more?"))
    evidence = said.find(2, "kiln takes 45")
    assert evidence is not None
    assert (flaw(text, Given(evidence.spoken), evidence.turn.day) is not None) == is_flawed
