"""The fake model as verifier: the person's messages and proposed lines in, one verdict per line out (pure).

It agrees to the lines that the fake curator would learn from these messages, and to no others.
"""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bridge.fake_model import curator
from bridge.fake_model.curator import Finding, Turn
from bridge.fake_model.words import normalised

_MESSAGE = re.compile(r'<message(?: id="t(?P<id>\d+)"[^>]*)?>(?P<text>.*?)</message>', re.DOTALL)
_END_OF_MESSAGES = "</messages>"
_LINE = re.compile(r"^(?P<number>\d+)\. (?P<proposed>(?P<kind>[a-z]+): (?P<text>.*))$", re.MULTILINE)
_OLD = re.compile(r"\A(?P<new>.*) \(instead of: (?P<old>.*)\)\Z")
#: Types of findings that carry a kind of line; any type carries the other kinds.
_TYPES = {"preference": {"PREFERENCE"}, "correction": {"CORRECTION"}, "action": {"ACTION"}, "supersede": {"CORRECTION"}}


@dataclass(frozen=True, slots=True)
class ProposedLine:
    """A numbered line of a request; `proposed` is the whole line, with its kind."""

    number: str
    proposed: str
    kind: str
    text: str


def verify(request: str) -> str:
    """Answer the user content of a verification request by the rules by which the fake model learns."""
    shown = request.partition(_END_OF_MESSAGES)[0]
    messages = [Turn(found["id"] or "", "user", html.unescape(found["text"])) for found in _MESSAGE.finditer(shown)]
    return answer((line, _flaw(line, messages)) for line in proposed_lines(request))


def proposed_lines(request: str) -> Iterator[ProposedLine]:
    """Yield the lines to verify. Messages are escaped, so none of them can end their element."""
    for found in _LINE.finditer(request.partition(_END_OF_MESSAGES)[2]):
        yield ProposedLine(found["number"], found["proposed"], found["kind"], found["text"])


def answer(flaws: Iterator[tuple[ProposedLine, str | None]]) -> str:
    """Return the verdicts; a line without a flaw is a yes."""
    return "\n".join(f"{line.number} {'yes' if flaw is None else f'no {flaw}'}" for line, flaw in flaws)


def _flaw(line: ProposedLine, messages: Sequence[Turn]) -> str | None:
    """Return why the messages do not support a proposed line, or None if they do."""
    if line.kind == "keep":
        asked = any(f"t{turn.id}" == line.text and curator.asks_to_forget(turn.user) for turn in messages)
        return "the user asks not to keep it" if asked else None
    if line.kind in {"done", "delete"}:
        # The fake curator closes no action, and deletes no line.
        return "the messages do not end it"
    changed = _OLD.match(line.text)
    new, old = (changed["new"], changed["old"]) if changed else (line.text, None)
    types = _TYPES.get(line.kind)
    said = [found for turn in messages for found in curator.findings(turn) if types is None or found.type in types]
    return None if any(_carries(found, new, old) for found in said) else "the messages do not say it"


def _carries(found: Finding, new: str, old: str | None) -> bool:
    """Return whether the fake curator would propose `new` for this finding, in place of `old` if that is given."""
    if old is not None and not (
        curator.same_subject(new, old) or curator.related(new, old) or curator.related(found.content, old)
    ):
        return False
    statement = normalised(new)
    if found.content.startswith("It should be "):
        # "It" is what the old line or learning says, which is not always shown.
        return statement.endswith(normalised(found.detail))
    return statement == normalised(found.content)
