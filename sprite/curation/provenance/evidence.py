"""Find the evidence of a proposed line in the log (pure): the cited turn, the quote and its speaker.

A line about the work is never shown to the verifier. It is a stranger's if strangers used its words first. Tools may be
reported in the curator's words (versions, paths, results), but no sentence of theirs may be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from zoneinfo import ZoneInfo

from sprite.curation.provenance.checks import Given, disguise, short_numbers
from sprite.curation.provenance.quotes import find_quote
from sprite.curation.provenance.voices import UNTRUSTED, Turn, Voice
from sprite.log.transcript import Observation
from sprite.memory.words import Run, content_words, plain, run_words, runs


@dataclass(frozen=True, slots=True)
class Evidence:
    """The turn of a memory line, and who says its quote there; `quote` is the turn's own wording."""

    turn: Turn
    voice: Voice
    quote: str


@dataclass(frozen=True, slots=True)
class Around:
    """A turn with the person's messages just before and after it in its session, oldest first.

    `question` is the agent's reply that a short message answers. With `is_led`, the agent had read untrusted text
    before it asked.
    """

    messages: list[Turn]
    question: str
    is_led: bool


#: A message of up to this many words may only agree to a question, or pick from a list.
_SHORT_WORDS = 25
_QUESTION_CHARS = 1_500
#: Of a question that outside text may have led, little is shown.
_LED_CHARS = 400
#: Messages around a cited one that may carry a line together with it, or revoke it.
_BEFORE, _AFTER = 4, 4


class Turns:
    """The turns of a batch and the turns before them, in order."""

    def __init__(self, batch: Iterable[Observation], earlier: Iterable[Observation]) -> None:
        self.batch = {turn.id: Turn(turn) for turn in batch}
        # A turn of the batch may be from long before: one that is shown again.
        self.all = dict(sorted({**{turn.id: Turn(turn) for turn in earlier}, **self.batch}.items()))

    @cached_property
    def first_use(self) -> FirstUse:
        """Return the index that finds who used a word first in these turns: the person, the agent or a tool."""
        return FirstUse(self.all.values())

    def find(self, turn_id: int | None, quote: str | None) -> Evidence | None:
        """Return the evidence for a quote, or None.

        If the cited turn does not have it, the only other turn of the batch that has it counts.
        """
        if not quote:
            return None
        cited = self.batch.get(turn_id) if turn_id is not None else None
        if cited is not None and (found := find_quote(quote, cited.voices)) is not None:
            return Evidence(cited, found[0], found[1])
        others = [
            Evidence(turn, found[0], found[1])
            for turn in self.batch.values()
            if turn is not cited and (found := find_quote(quote, turn.voices)) is not None
        ]
        return others[0] if len(others) == 1 else None

    def in_work(self, evidence: Evidence) -> Evidence | None:
        """Return the agent's input or a local result of the turn that contains the quoted words, too."""
        voices = [voice for voice in evidence.turn.voices if voice.kind in {"input", "result"}]
        found = find_quote(evidence.quote, voices)
        return None if found is None else Evidence(evidence.turn, found[0], found[1])

    def around(self, turn: Turn) -> Around:
        """Return the messages around a turn, and the question before it."""
        same = [known for known in self.all.values() if known.logged.session_id == turn.logged.session_id]
        before = [known for known in same if known.logged.id < turn.logged.id]
        after = [known for known in same if known.logged.id > turn.logged.id and known.own]
        messages = [*[known for known in before if known.own][-_BEFORE:], turn, *after[:_AFTER]]
        # The first turns of the session have to be known.
        is_led = not before or before[0].logged.sequence_num > 1 or any(known.reads_untrusted for known in before)
        question = ""
        if before and before[-1].is_persons and len(turn.own.split()) <= _SHORT_WORDS:
            question = before[-1].logged.agent_response[-(_LED_CHARS if is_led else _QUESTION_CHARS) :].strip()
        return Around(messages, question, is_led)

    def spoken(self, evidence: Evidence) -> list[str]:
        """Return the texts in which the numbers and addresses of a line have to stand."""
        around = self.around(evidence.turn)
        said = [known.own for known in around.messages]
        if evidence.voice.kind != "person":
            return [*said, *(voice.text for voice in evidence.turn.voices if voice.kind not in {"reply", "memory"})]
        if around.question:
            said.append(short_numbers(around.question) if around.is_led else around.question)
        return said


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
    may_name_files = is_fact and evidence.voice.kind != "person"
    lacking = given.lacks(text, day_of(evidence.turn, zone), may_name_files=may_name_files)
    return disguise(text, given) or (f"{lacking} stands neither in its quote nor in the messages" if lacking else None)


def day_of(turn: Turn | None, zone: str) -> date | None:
    """Return the day of a turn in a time zone."""
    return None if turn is None else datetime.fromtimestamp(turn.logged.timestamp, ZoneInfo(zone)).date()


#: A line is a stranger's if more of its words were first used by strangers.
MAX_FOREIGN = 1 / 3
#: A path, a package, a version: words bound by signs without a space. They have many words and say nothing.
_BOUND = re.compile(r"(?<!\w)[~.]{0,3}/?\w++(?:[-/._:=@+~]++\w++)+/?")
#: An e-mail address, a URL or a handle. A bare host looks like a file's name.
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]*@[\w.-]*\w|\b(?:https?://|www\.)[^\s<>\"')\]]*[\w/]", re.IGNORECASE)


class FirstUse:
    """The first users of words in these turns: strangers, or the person and the agent."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        voices = [voice for turn in turns for voice in turn.voices]
        own = [voice.text for voice in voices if voice.kind == "person"]
        #: The person's words, whenever they said them, and those that the agent used before strangers did.
        trusted = {word for text in own for word in content_words(text)}
        trusted_runs = {run for text in own for run in _runs(text)}
        named = {address for text in own for address in _addresses(text)}
        self._foreign: set[str] = set()
        #: Those of them that a document used: what stands in a file here may be told, in other words.
        self._documents: set[str] = set()
        self._shown_runs: set[Run] = set()
        #: Addresses that a tool or a stranger named first.
        self._shown_addresses: set[str] = set()
        for voice in voices:
            words, found, addresses = content_words(voice.text), set(_runs(voice.text)), _addresses(voice.text)
            if voice.kind == "input":
                named |= addresses - self._shown_addresses
            elif voice.kind != "person":
                self._shown_addresses |= addresses
            if voice.kind in UNTRUSTED:
                (self._documents if voice.kind in {"printed", "document"} else self._foreign).update(words - trusted)
            elif voice.kind != "memory":
                trusted |= words - self._foreign - self._documents
            # Whoever chose the words of a link or of a file's name, the agent did not say them.
            names = _BOUND.findall(plain(voice.text))
            self._shown_runs |= {run for name in names for run in runs(run_words(name))} - trusted_runs
            if voice.kind in UNTRUSTED | {"result"}:
                self._shown_runs |= found - trusted_runs
            elif voice.kind != "memory":
                trusted_runs |= found - self._shown_runs
        self._shown_addresses -= named

    def copied(self, text: str, after: str = "") -> str | None:
        """Return what a text copies from a stranger or a tool's result, also with the text before it, or None."""
        accepted = set(_runs(after))
        new = (run for run in _runs(f"{after} {text}") if run not in accepted)
        found = next((run for run in new if run in self._shown_runs), None)
        return None if found is None else f"it repeats word for word: {' '.join(found)}"

    def strangers(self, line: str, *, may_tell_documents: bool = False) -> str | None:
        """Return why a line's words come from an untrusted source, or None.

        With `may_tell_documents`, words of documents are allowed.
        """
        if (copied := self.copied(line)) is not None:
            return copied
        address = next((known for known in _ADDRESS.findall(line) if known.casefold() in self._shown_addresses), None)
        if address is not None:
            return f"nobody but others gave the address {address}"
        words = content_words(line)
        foreign = words & (self._foreign if may_tell_documents else self._foreign | self._documents)
        if len(foreign) > MAX_FOREIGN * len(words):
            return f"nobody but others said {', '.join(sorted(foreign)[:10])}"
        return None


def _runs(text: str) -> Iterable[Run]:
    return runs(run_words(_BOUND.sub(" ", plain(text))))


def _addresses(text: str) -> set[str]:
    return {address.casefold() for address in _ADDRESS.findall(text)}
