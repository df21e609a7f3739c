"""Find the evidence of a proposed line in the log (pure): the cited turn, the quote and its speaker."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from zoneinfo import ZoneInfo

from sprite.curation.provenance.checks import Given, disguise, short_numbers
from sprite.curation.provenance.quotes import Spoken, quote_of
from sprite.curation.provenance.voices import Turn, Voice
from sprite.curation.provenance.work import FirstUse
from sprite.log.transcript import Observation


@dataclass(frozen=True, slots=True)
class Evidence:
    """The turn of a line and the voice that says its quote; `quote` is the turn's own wording."""

    turn: Turn
    voice: Voice
    quote: str

    @property
    def is_persons(self) -> bool:
        """Return whether the person says it."""
        return self.voice.kind == "person"

    @property
    def is_claimed(self) -> bool:
        """Return whether it is a message for which no client proves that a human typed it."""
        return self.voice.kind == "source" or self.voice.origin == "program"


#: A message of up to this many words may only agree to a question, or pick from a list.
_SHORT_WORDS = 25
_QUESTION_CHARS = 1_500
#: Of a question that outside text may have led, little is shown.
_LED_CHARS = 400
#: A sentence is not quoted from text that writes it in so many times fewer words.
_IN_ONE_WORD = 2
#: Messages around a cited one that may carry a line together with it, or revoke it.
_BEFORE, _AFTER = 4, 4


class Turns:
    """The turns of a batch and the turns before them, in order."""

    def __init__(self, batch: Sequence[Observation], earlier: Sequence[Observation]) -> None:
        self.batch = {turn.id: Turn(turn) for turn in batch}
        self.all = {**{turn.id: Turn(turn) for turn in earlier}, **self.batch}

    @cached_property
    def first_use(self) -> FirstUse:
        """Return who used words first in these turns."""
        return FirstUse(self.all.values())

    def find(self, turn_id: int | None, quote: str | None) -> Evidence | None:
        """Return the evidence for a quote, or None.

        If the cited turn does not have it, the only other turn of the batch that has it counts.
        """
        if not quote:
            return None
        cited = self.batch.get(turn_id) if turn_id is not None else None
        if cited is not None and (found := _said(quote, cited)) is not None:
            return found
        others = [found for turn in self.batch.values() if turn is not cited and (found := _said(quote, turn))]
        return others[0] if len(others) == 1 else None

    def in_work(self, evidence: Evidence) -> Evidence | None:
        """Return the agent's input or a local result that has the quote of the person's words as well."""
        voices = [voice for voice in evidence.turn.voices if voice.kind in {"input", "result"}]
        return _said(evidence.quote, evidence.turn, voices)

    def messages(self, turn: Turn) -> list[Turn]:
        """Return the turn and the person's messages just before and after it in its session, oldest first."""
        said = [known for known in self._before(turn) if known.own][:_BEFORE]
        same = (known for known in self.all.values() if known.logged.session_id == turn.logged.session_id)
        after = [known for known in same if known.logged.id > turn.logged.id and known.own][:_AFTER]
        return [*reversed(said), turn, *after]

    def question(self, turn: Turn) -> str:
        """Return the agent's reply to the person that a short message answers."""
        before = self._before(turn)
        if not before or not before[0].is_persons or len(turn.own.split()) > _SHORT_WORDS:
            return ""
        return before[0].logged.agent_response[-(_LED_CHARS if self.is_led(turn) else _QUESTION_CHARS) :].strip()

    def is_led(self, turn: Turn) -> bool:
        """Return whether text of any author may have led the question that a turn answers."""
        before = self._before(turn)
        # The first turns of the session have to be known.
        return not before or before[-1].logged.sequence_num > 1 or any(known.reads_untrusted for known in before)

    def spoken(self, evidence: Evidence) -> list[str]:
        """Return the texts in which the numbers and addresses of a line have to stand."""
        turn = evidence.turn
        said = [known.own for known in self.messages(turn)]
        if evidence.is_persons:
            question = self.question(turn)
            return [*said, short_numbers(question) if self.is_led(turn) else question]
        return [*said, *(voice.text for voice in turn.voices if voice.kind not in {"reply", "memory"})]

    def _before(self, turn: Turn) -> list[Turn]:
        """Return the earlier turns of the same session, newest first."""
        same = [known for known in self.all.values() if known.logged.session_id == turn.logged.session_id]
        return [known for known in reversed(same) if known.logged.id < turn.logged.id]


def _said(quote: str, turn: Turn, voices: Sequence[Voice] | None = None) -> Evidence | None:
    """Find a quote by the strictest comparison in which any of the voices says it, by default of the whole turn."""
    # The curator is shown turns as XML, and may copy the escaped text.
    wordings = [quote_of(wording) for wording in dict.fromkeys((quote, html.unescape(quote)))]
    if not any(wording.words for wording in wordings):
        return None
    for read in (Spoken.as_it_is, Spoken.in_parts, Spoken.nearly):
        for voice in turn.voices if voices is None else voices:
            for wording in wordings:
                for places in read(voice.spoken, wording):
                    found = voice.spoken.wording(places)
                    # The words of an address or a path are no sentence.
                    if _IN_ONE_WORD * len(found.split()) >= len(quote.split()):
                        return Evidence(turn, voice, found)
    return None


def flaw(
    text: str, evidence: Evidence, turns: Turns, zone: str, type_: str, due: str = "", old: Sequence[str] = ()
) -> str | None:
    """Return why a learning cannot rest on its evidence, or None: it hides something, or has a number from elsewhere.

    An action may repeat its time `due`, which the verifier checks. A fact may name what the turn's work shows. `old`
    are the user's learnings that it supersedes: it may keep parts of them.
    """
    is_fact = type_ not in {"PREFERENCE", "CORRECTION", "ACTION"}
    worked = evidence.turn.worked if is_fact else []
    given = Given([*turns.spoken(evidence), *worked, *old, due.replace("-", " ").replace("T", " ")])
    lacking = given.lacks(text, day_of(evidence.turn, zone), may_name_files=is_fact and not evidence.is_persons)
    return disguise(text, given) or (f"{lacking} stands neither in its quote nor in the messages" if lacking else None)


def day_of(turn: Turn | None, zone: str) -> date | None:
    """Return the day of a turn in a time zone."""
    return None if turn is None else datetime.fromtimestamp(turn.logged.timestamp, ZoneInfo(zone)).date()
