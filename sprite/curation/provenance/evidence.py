"""Find the evidence of a proposed line in the log (pure): the cited turn, the quote and its speaker.

A quote is found by its words: a model that copies adds a full stop or leaves out a word. The speaker and the numbers
stay the same. The time is linear in the length of the text. A line about the work is a stranger's if strangers used its
words first. Tools may be reported in the curator's words, but no sentence of theirs may be copied.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, Literal
from zoneinfo import ZoneInfo

from sprite.common.recurrence import DEFAULT_ZONE
from sprite.curation.provenance import kinds
from sprite.curation.provenance.checks import short_numbers
from sprite.curation.provenance.kinds import WEB_TOOLS, kind_of
from sprite.log.transcript import Observation
from sprite.memory.words import SPACELESS, Run, content_words, plain, run_words, runs
from sprite.protocol.pasted import Spans, own_text

# --- quotes ---

#: One of this many words in a quote may be wrong; the others must be in the text in order. A word here is anything
#: between spaces, so a wrong path counts once.
ONE_WRONG_OF = 10
#: Limit of word comparisons for one quote in one text; a real quote needs a thousand.
MAX_COMPARISONS = 1_000_000
#: Words of a text that are searched for an inexact quote: a book. An answer has many quotes.
MAX_WORDS = 100_000
#: A sentence is not quoted from text that writes it in so many times fewer words.
_IN_ONE_WORD = 2
#: A word, or one character of a script without spaces.
_WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")
_ELLIPSIS = re.compile(r"\[?(?:…|\.\.\.+)\]?")

#: `person`: the person's own words. `source`: a message for which no client proves that a human typed it.
Kind = Literal["person", "source", "pasted", "reply", "input"] | kinds.Kind


@dataclass(frozen=True, slots=True)
class Voice:
    """A text of a turn with its speaker. `origin` is the origin of learnings that rest on it."""

    text: str
    origin: str
    kind: Kind


def find_quote(quote: str, voices: Sequence[Voice], joined: dict[str, str]) -> tuple[Voice, str] | None:
    """Return the voice that says a quote by the strictest comparison in which any does, and its wording there.

    `joined` keeps the words of each text for the next quote: casefolded, with a space before and after each.
    """
    # The curator is shown turns as XML, and may copy the escaped text.
    wordings = {text: _ELLIPSIS.split(text) for text in (quote, html.unescape(quote))}
    for text in (*wordings, *chain(*wordings.values()), *(voice.text for voice in voices)):
        if text not in joined:
            joined[text] = f" {' '.join(word.casefold() for word in _WORD.findall(text))} "
    # Each comparison is made only if the stricter ones find nothing.
    pairs = [(voice, joined[voice.text], text) for voice in voices for text in wordings if joined[text].strip()]
    whole = (
        (voice, [range(first, first + joined[text].count(" ") - 1)])
        for voice, said, text in pairs
        if (at := said.find(joined[text])) >= 0
        for first in [said.count(" ", 0, at)]
    )
    parts = (
        (voice, places)
        for voice, said, text in pairs
        for places in [_in_parts(said, [joined[part] for part in wordings[text]])]
        if places
    )
    nearly = ((voice, [place]) for voice, said, text in pairs for place in _nearly(said.split(), text))
    for voice, places in chain(whole, parts, nearly):
        spans = [word.span() for word in _WORD.finditer(voice.text)]
        found = " … ".join(voice.text[spans[place.start][0] : spans[place.stop - 1][1]] for place in places)
        # The words of an address or a path are no sentence.
        if _IN_ONE_WORD * len(found.split()) >= len(quote.split()):
            return voice, found
    return None


def _in_parts(said: str, parts: Sequence[str]) -> list[range]:
    """Return the words where the parts of a quote, separated by ellipses, follow each other; none for one part."""
    parts = [part for part in parts if part.strip()]
    places: list[range] = []
    at = 0
    for part in parts if len(parts) > 1 else ():
        at = said.find(part, at)
        if at < 0:
            return []
        first = said.count(" ", 0, at)
        at += len(part) - 1
        places.append(range(first, first + part.count(" ") - 1))
    return places


def _nearly(said: Sequence[str], quote: str) -> Iterator[range]:
    """Yield the passages with nearly all words of a quote in order."""
    groups = [words for group in quote.split() if (words := [word.casefold() for word in _WORD.findall(group)])]
    group_of = [number for number, words in enumerate(groups) for _ in words]
    wanted = [word for words in groups for word in words]
    may_be_wrong = len(groups) // ONE_WRONG_OF
    least = len(wanted) - sum(sorted(map(len, groups), reverse=True)[:may_be_wrong])
    numbers = {word for word in wanted if any(sign.isdigit() for sign in word)}
    width = len(wanted) + max(2, len(wanted) // 3)
    left = MAX_COMPARISONS
    for start in _stretches(said, wanted, least, width):
        left -= len(wanted) * width
        if left < 0:
            return
        pairs = _common(wanted, said[start : start + width])
        matched = {q for q, _ in pairs}
        wrong = {group for q, group in enumerate(group_of) if q not in matched}
        if not pairs or len(wrong) > may_be_wrong:
            continue
        found = range(start + pairs[0][1], start + pairs[-1][1] + 1)
        if numbers.issubset(said[found.start : found.stop]):
            yield found


def _stretches(said: Sequence[str], quote: Sequence[str], need: int, width: int) -> Iterator[int]:
    """Yield the starts of passages of `width` words with at least `need` of the quote's words.

    Each passage begins with one of the quote's first words.
    """
    wanted = Counter(quote)
    first = frozenset(quote[: len(quote) - need + 1])
    here: Counter[str] = Counter()
    enough = end = 0
    for start, leaving in enumerate(said[:MAX_WORDS]):
        for entering in said[end : start + width]:
            here[entering] += 1
            enough += here[entering] <= wanted[entering]
        end = start + width
        if enough >= need and leaving in first:
            yield start
        enough -= here[leaving] <= wanted[leaving]
        here[leaving] -= 1


def _common(quote: Sequence[str], stretch: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence of words."""
    # longest[q][s]: common words of the rest of the quote from q on and the rest of the passage from s on.
    longest = [[0] * (len(stretch) + 1) for _ in range(len(quote) + 1)]
    for q in range(len(quote) - 1, -1, -1):
        row, below = longest[q], longest[q + 1]
        for s in range(len(stretch) - 1, -1, -1):
            row[s] = below[s + 1] + 1 if quote[q] == stretch[s] else max(below[s], row[s + 1])
    places: list[tuple[int, int]] = []
    q = s = 0
    while q < len(quote) and s < len(stretch):
        if quote[q] == stretch[s]:
            places.append((q, s))
            q, s = q + 1, s + 1
        elif longest[q + 1][s] >= longest[q][s + 1]:
            q += 1
        else:
            s += 1
    return places


# --- turns and their speakers ---

#: Texts of any author. After one of them, the agent's own question may be a stranger's.
UNTRUSTED: frozenset[Kind] = frozenset({"source", "pasted", "printed", "document", "outside"})

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_QUOTED_LINE = re.compile(r"[ \t]*>")
#: A line of a mail's header: its name and its value.
_HEADER = re.compile(r"\s*[^\W\d_][\w -]{0,24}:\s+\S")
_MAIL_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.\w")


def own_words(text: str, pasted: Spans = ()) -> tuple[str, list[str]]:
    """Return a message without its pasted parts, and these parts.

    `pasted` are the spans that the client marked. Fences, `>` quotes and mails with a header need no mark.
    """
    parts = [text[start:end] for start, end in pasted]
    lines = (own_text(text, pasted) if pasted else text).split("\n")
    own: list[str] = []
    at = 0
    while at < len(lines):
        end = at
        if fence := _FENCE.match(lines[at]):
            after = range(at + 1, len(lines))
            end = next((end + 1 for end in after if lines[end].strip().startswith(fence[1])), len(lines))
        elif _QUOTED_LINE.match(lines[at]):
            end = at + 1
        elif not at or not _HEADER.match(lines[at - 1]):
            # A mail ends with the message. Its block of headers is read from the first line on.
            header = at
            while header < len(lines) and _HEADER.match(lines[header]):
                header += 1
            if header - at > 1 and any(_MAIL_ADDRESS.search(line) for line in lines[at:header]):
                end = len(lines)
        own.append(lines[at] if end == at else "")
        if end > at:
            parts.append("\n".join(lines[at:end]))
        at = max(end, at + 1)
    return "\n".join(own), [part for part in parts if part.strip()]


class Turn:
    """A logged turn, split into its speakers' texts. `day` is its day in a time zone.

    `own` are the person's own words, empty if they said nothing. `is_persons`: a person typed its message, as far as
    clients can prove it. `voices` are its texts, in the order in which a quote is looked for. Of these, `work` is what
    the agent asked its tools for, and what commands on this computer answered; `worked` are the texts of it. With
    `reads_untrusted`, the agent read text of any author.
    """

    def __init__(self, logged: Observation, tz: str | None = None) -> None:
        self.logged = logged
        self.day = datetime.fromtimestamp(logged.timestamp, ZoneInfo(tz or DEFAULT_ZONE)).date()
        self.is_persons = logged.trigger == "user" and logged.source is None
        self.own = ""
        if self.is_persons:
            own, pasted = own_words(logged.user_message, logged.pasted)
            self.own = own.strip()
            found = [Voice(self.own, "user", "person"), *(Voice(part, "pasted", "pasted") for part in pasted)]
        elif logged.trigger == "user":
            found = [Voice(logged.user_message, logged.source or "program", "source")]
        else:
            found = [Voice(logged.user_message, "program" if logged.trigger == "program" else "tool", "outside")]
        for call in logged.tool_calls:
            found += _of_call(call)
        found += [Voice(logged.agent_response, "assistant", "reply"), Voice(logged.notice, "tool", "outside")]
        self.voices = [voice for voice in found if voice.text]
        self.work = [voice for voice in self.voices if voice.kind in {"input", "result"}]
        self.worked = [voice.text for voice in self.work]
        self.reads_untrusted = any(voice.kind in UNTRUSTED for voice in self.voices)

    def done(self, shown: str = "") -> list[str]:
        """Return the inputs of the turn's successful tool calls, and of failed ones whose result contains `shown`."""
        calls = [
            call
            for call in self.logged.tool_calls
            if not call.get("is_error")
            or (shown and any(voice.kind == "result" and shown in voice.text for voice in _of_call(call)))
        ]
        return [voice.text for call in calls for voice in _of_call(call) if voice.kind == "input"]


def _of_call(call: Mapping[str, Any]) -> Iterator[Voice]:
    given, result = call.get("input"), call.get("result")
    command = given.get("command") if isinstance(given, Mapping) else None
    if isinstance(command, str):
        yield Voice(command, "assistant", "input")
    yield Voice(text_of(given), "assistant", "input")
    kind = kind_of(call)
    is_web = kind == "outside" and str(call.get("name", "")) in WEB_TOOLS
    origin = "web" if is_web else {"document": "file", "outside": "outside"}.get(kind, "tool")
    if str(call.get("origin")).startswith("tool:"):
        origin = str(call["origin"])
    yield Voice(text_of(result), origin, kind)
    # The curator is shown these as JSON, and a quote may reach across their fields.
    if isinstance(given, dict | list):
        yield Voice(json.dumps(given, ensure_ascii=False), "assistant", "input")
    if isinstance(result, dict | list):
        yield Voice(json.dumps(result, ensure_ascii=False), origin, kind)


def text_of(value: Any) -> str:
    """Return the readable text of a tool's input or result."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(text_of(item) for item in value.values())
    if isinstance(value, list):
        return "\n".join(text_of(item) for item in value)
    return "" if value is None else json.dumps(value)


# --- evidence ---


@dataclass(frozen=True, slots=True)
class Evidence:
    """The turn of a memory line, and who says its quote there; `quote` is the turn's own wording.

    The numbers and addresses of the line have to stand in `spoken`.
    """

    turn: Turn
    voice: Voice
    quote: str
    spoken: list[str]


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


@dataclass
class Turns:
    """The turns of a batch, and all turns that are read with it, by id and in order; `tz` is the person's time zone.

    `off_record` are the turns that the person asked not to keep.
    """

    batch: dict[int, Turn]
    all: dict[int, Turn]
    tz: str | None = None
    off_record: frozenset[int] = frozenset()
    _joined: dict[str, str] = field(default_factory=dict, init=False)

    @cached_property
    def first_use(self) -> FirstUse:
        """Return the index that finds who used a word first in these turns: the person, the agent or a tool."""
        return FirstUse(self.all.values())

    def find(self, turn_id: int | None, quote: str | None, *, in_work: bool = False) -> Evidence | None:
        """Return the evidence for a quote, or None.

        If the cited turn does not have it, the only other turn of the batch that has it counts. With `in_work`, it has
        to stand in the work of the cited turn.
        """
        if not quote:
            return None
        cited = [turn for turn in self.batch.values() if turn.logged.id == turn_id]
        others = [turn for turn in self.batch.values() if turn.logged.id != turn_id and not in_work]
        for turns in (cited, others):
            places = [
                (turn, *found)
                for turn in turns
                if (found := find_quote(quote, turn.work if in_work else turn.voices, self._joined)) is not None
            ]
            if len(places) == 1:
                turn, voice, words = places[0]
                around = self.around(turn)
                spoken = [known.own for known in around.messages]
                if voice.kind != "person":
                    spoken += [said.text for said in turn.voices if said.kind not in {"reply", "memory"}]
                elif around.question:
                    spoken.append(short_numbers(around.question) if around.is_led else around.question)
                return Evidence(turn, voice, words, spoken)
        return None

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
            # The agent did not choose the words of a link or of a file's name.
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
        """Return why a line's words count as a stranger's, or None; `may_tell_documents` allows words of documents."""
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
