"""The verifier: a second look at lines about the person, by a model that sees only the person's own messages.

A stranger's text can fool the curator, which reads everything. The verifier's request holds no tool result, page, file
or words of another agent. A question that the agent asked after it had read such text is marked.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files as resources
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from sprite.curation.provenance.evidence import Turn, Turns
from sprite.memory.words import plain
from sprite.protocol.framing import on_one_line

Verdict = Literal["yes", "no", "unsure"]
#: Of a longer message, the request shows its beginning, its end and the surroundings of each quote.
_MESSAGE_CHARS, _EDGE_CHARS, _AROUND_CHARS = 4_000, 800, 600
_ANSWER = re.compile(r"\s*(\d{1,4})[.):]?\s+(yes|no|unsure)\b[ \t:,.\u2013-]*(.*)", re.IGNORECASE)
MAX_REASON_CHARS = 200
#: The line of a question whether a message may be kept, up to the turn's number.
KEEP = "keep: t"


@dataclass(frozen=True, slots=True)
class Item:
    """A line to verify. `kind` says what it is, `turn` is the cited turn, `old` the line that it replaces.

    Without a turn, `quote` is what the person said earlier.
    """

    kind: str
    line: str
    turn: int | None = None
    quote: str = ""
    old: str = ""


class Ruling(msgspec.Struct, frozen=True):
    """The verdict on one line, with the reason of a refusal."""

    line: str
    verdict: Verdict
    reason: str = ""


class Verification(msgspec.Struct, frozen=True):
    """A verifier's answer, as the log keeps it. `model` is None where no model was asked."""

    request_sha256: str
    answer: str
    rulings: list[Ruling]
    model: str | None = None
    usage: dict[str, Any] = {}
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One call of the verifier's model: two texts, and the lines in their order."""

    system: str
    user: str
    lines: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Return the hash of both texts, in hex."""
        return hashlib.sha256(f"{self.system}\0{self.user}".encode()).hexdigest()


@dataclass(slots=True)
class Rulings:
    """The verdicts that a decision may use. Lines without a verdict are collected in `asked`.

    They count as `otherwise`: "yes" in a trial run that collects the lines, "unsure" in the decision itself.
    """

    known: Mapping[str, Ruling]
    otherwise: Verdict = "unsure"
    asked: dict[str, Item] = field(default_factory=dict)
    #: Without a verifier, a line of user.md has to be a literal sentence of the person's.
    is_off: bool = False

    def of(self, item: Item) -> Ruling:
        """Return the verdict on a line. Without one, add the line to `asked`, and return `otherwise`."""
        key = f"{item.kind}: {item.line}" + (f" (instead of: {item.old})" if item.old else "")
        if (ruling := self.known.get(key)) is not None:
            return ruling
        if self.is_off:
            is_told = item.kind != "line" or is_literal(item.line, [item.quote])
            return Ruling(key, "yes" if is_told else "no", "without a verifier, only the user's own sentences count")
        self.asked.setdefault(key, item)
        return Ruling(key, self.otherwise, "the verifier was not asked about it")

    def objection(self, item: Item, otherwise: str) -> str | None:
        """Return why a line is refused, or None; `otherwise` stands for a missing reason."""
        ruling = self.of(item)
        return None if ruling.verdict == "yes" else ruling.reason or otherwise


def is_literal(line: str, messages: Iterable[str]) -> bool:
    """Return whether a line is word for word a sentence of these messages; case and spaces may differ."""
    said = " ".join(plain(line.lstrip("-* ")).rstrip(".!").split())
    return bool(said) and any(said in " ".join(plain(message).split()) for message in messages)


def keep_item(turn_id: int) -> Item:
    """Return the item that asks the verifier whether a message may be kept."""
    return Item("keep", f"t{turn_id}", turn_id)


@cache
def system_prompt() -> str:
    """Return the instructions shipped in `prompts/verifier.md`."""
    return resources("sprite.curation").joinpath("prompts/verifier.md").read_text("utf-8")


def build_request(asked: Mapping[str, Item], turns: Turns) -> Request:
    """Build the request for these items; their keys are the lines."""
    quotes: dict[int, list[str]] = {}
    shown: dict[int, Turn] = {}
    earlier = dict.fromkeys(item.quote for item in asked.values() if item.turn is None and item.quote)
    for item in asked.values():
        turn = turns.all.get(item.turn or 0)
        if turn is not None:
            quotes.setdefault(turn.logged.id, []).append(item.quote)
            shown.update({known.logged.id: known for known in turns.around(turn).messages if known.own})
    messages = "".join(f"<message>{_escape(quote)}</message>\n" for quote in earlier)
    messages += "".join(_message(shown[number], quotes.get(number), turns) for number in sorted(shown))
    numbered = "\n".join(f"{number}. {on_one_line(line)}" for number, line in enumerate(asked, start=1))
    return Request(system_prompt(), f"<messages>\n{messages}</messages>\n\nLines:\n{numbered}", tuple(asked))


def _message(turn: Turn, quotes: Sequence[str] | None, turns: Turns) -> str:
    """Return a message for the verifier, with the agent's question before it.

    `quotes` are the quotes from it, None if no line cites the message.
    """
    at = datetime.fromtimestamp(turn.logged.timestamp, ZoneInfo(turns.tz) if turns.tz else None)
    said = _escape(_cut(turn.own, quotes or ()))
    message = f'<message id="t{turn.logged.id}" at="{at:%a %Y-%m-%d %H:%M}">{said}</message>\n'
    around = turns.around(turn)
    question = "" if around.is_led and quotes is None else around.question
    tag = "untrusted-question" if around.is_led else "question"
    return f"<{tag}>{_escape(question)}</{tag}>\n{message}" if question else message


def _cut(message: str, quotes: Sequence[str]) -> str:
    if len(message) <= _MESSAGE_CHARS:
        return message
    spans = [(0, _EDGE_CHARS), (len(message) - _EDGE_CHARS, len(message))]
    for quote in quotes[: (_MESSAGE_CHARS - 2 * _EDGE_CHARS) // (2 * _AROUND_CHARS)]:
        at = message.find(quote)
        if quote and at >= 0:
            spans.append((max(0, at - _AROUND_CHARS), min(len(message), at + len(quote) + _AROUND_CHARS)))
    parts: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        parts += ["" if start <= end else " […] ", message[max(start, end) : stop]]
        end = max(end, stop)
    return "".join(parts)


def read_answer(answer: str, lines: Sequence[str]) -> list[Ruling]:
    """Read the verdicts on these lines. A line without a readable verdict is "unsure"."""
    found: dict[int, Ruling] = {}
    for text in answer.split("\n"):
        match = _ANSWER.match(text)
        if match is None or not 1 <= (number := int(match[1])) <= len(lines) or number in found:
            continue
        verdict: Verdict = "yes" if match[2].lower() == "yes" else "no" if match[2].lower() == "no" else "unsure"
        found[number] = Ruling(lines[number - 1], verdict, on_one_line(match[3])[:MAX_REASON_CHARS])
    return [found.get(number, Ruling(line, "unsure")) for number, line in enumerate(lines, start=1)]


def off_record(rulings: Iterable[Ruling]) -> list[int]:
    """Return the turns that the person asked not to keep."""
    return [
        int(each.line.removeprefix(KEEP)) for each in rulings if each.verdict == "no" and each.line.startswith(KEEP)
    ]


def _escape(text: str) -> str:
    return html.escape(text, quote=False)
