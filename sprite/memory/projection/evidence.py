"""Where a learning's evidence stands: whose words carry it, and how far it can be trusted (pure).

The curator cites a turn and may quote it; whether that is so is decided here, in code, from the log.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sprite.database.transcript import Observation
from sprite.memory.curation.answer import ParsedLearning
from sprite.memory.projection.guards import (
    MAX_FOREIGN,
    Sources,
)
from sprite.memory.words import Text, content_words, run_words, runs
from sprite.protocol.tools import SEARCH_CALL

#: `none`: a quote that is nowhere in the cited turn. `memory`: only memory's own echo says it.
Origin = Literal["user", "assistant", "tool", "web", "memory", "none"]

#: How sure a learning is, by its evidence: quoted words of the person's, words of others, a mere citation.
QUOTED_USER = 0.9
QUOTED_OTHER = 0.6
CITED_ONLY = 0.5
UNVERIFIED = 0.1

#: What only these tools said came from outside and may be anybody's words.
WEB_TOOLS = frozenset({"WebFetch", "WebSearch"})
#: What memory itself put into the conversation proves nothing: it would confirm itself for ever.
ECHO_TOOLS = frozenset({SEARCH_CALL})
#: Only the person's own words make these; from anyone else's mouth the same sentence is a mere FACT.
PERSONAL_TYPES = frozenset({"PREFERENCE", "CORRECTION"})
#: Whose words are neither the person's nor the agent's.
STRANGERS: frozenset[Origin] = frozenset({"tool", "web", "memory"})
#: A tool's input says here what the agent does; anywhere else it may hold a text that the agent was given.
_ACTS = frozenset({"command", "file_path", "path", "notebook_path", "pattern", "query", "url"})
#: A longer act is a text in disguise.
_LONGEST_ACT_CHARS = 400

_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?。!?])\s+|\n+")
#: What a person marks as not their own words: quoted lines and fenced blocks.
_PASTED = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>.*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a learning rests on: its turn, whose words, how sure, and the type it may have."""

    turn: Observation | None
    origin: Origin
    confidence: float
    type: str
    quote: str | None


class Provenance:
    """Who said what: in a batch's turns, and in those just before it, whose words are still in the air."""

    def __init__(self, turns: Sequence[Observation], earlier: Sequence[Observation] = ()) -> None:
        self.turns = turns
        heard = (*earlier, *turns)
        #: The person's own words, sentence by sentence.
        self.person = [Text(said) for turn in heard for said in _SENTENCE_END.split(_own_words(turn))]
        #: What the agent did: commands, paths, questions.
        self.acts = [Text(act) for turn in heard for act in _acts(turn)]
        #: What tools and pages said, and the CLI's own notices: not trusted.
        self.strangers = [
            (origin, Text(said)) for turn in heard for origin, said in _voices(turn) if origin in STRANGERS
        ]
        self._sources = Sources([*self.person, *self.acts], [text for _, text in self.strangers])
        self._vouched = frozenset[str]().union(*(text.words for text in (*self.person, *self.acts)))

    def stranger_behind(self, content: str) -> Origin | None:
        """The tool or page whose words a learning really has, where neither the person nor the agent used them first.

        Whatever turn it cites: a true quote of somebody's greeting carries no stranger's sentence.
        """
        if self._sources.say(content):
            return None
        words = content_words(content)
        copied = [text for run in runs(run_words(content)) if (text := self._sources.copied_from(run)) is not None]
        for origin, text in self.strangers:
            if len((words & text.words) - self._vouched) > MAX_FOREIGN * len(words) or text in copied:
                return origin
        return None


def weigh(learning: ParsedLearning, provenance: Provenance) -> Evidence:
    """Judges one learning against the batch it was drawn from."""
    turn = _cited(learning, provenance.turns)
    if turn is None:
        return Evidence(None, "none", UNVERIFIED, _allowed(learning.type, "none"), learning.quote)
    origin = _spoken_by(learning.quote, turn) if learning.quote else _closest_voice(learning.content, turn)
    if origin in {"user", "assistant"}:
        origin = provenance.stranger_behind(learning.content) or origin
    return Evidence(turn, origin, _confidence(origin, learning.quote), _allowed(learning.type, origin), learning.quote)


def _confidence(origin: Origin, quote: str | None) -> float:
    if origin in {"none", "memory"}:
        return UNVERIFIED
    if quote is None:
        return CITED_ONLY
    return QUOTED_USER if origin == "user" else QUOTED_OTHER


def _allowed(type_: str, origin: Origin) -> str:
    return "FACT" if type_ in PERSONAL_TYPES and origin != "user" else type_


def _cited(learning: ParsedLearning, turns: Sequence[Observation]) -> Observation | None:
    if learning.turn_id is not None:
        return next((turn for turn in turns if turn.id == learning.turn_id), None)
    # An answer without citations is in the format too: the turn that shares most words is taken.
    words = content_words(learning.content)
    return max(turns, key=lambda turn: len(words & content_words(" ".join(_all_text(turn)))), default=None)


def _spoken_by(quote: str, turn: Observation) -> Origin:
    # The curator is shown turns as XML, and may copy what it sees.
    wanted = {_folded(quote), _folded(html.unescape(quote))}
    for origin, text in (*_voices(turn), *_as_shown(turn)):
        said = _folded(text)
        if any(words in said for words in wanted):
            return origin
    return "none"


def _closest_voice(content: str, turn: Observation) -> Origin:
    words = content_words(content)
    scored = [(len(words & content_words(text)), origin) for origin, text in _voices(turn)]
    # max keeps the first of equals, and voices come with the person's first.
    best = max(scored, key=lambda pair: pair[0], default=(0, "none"))
    return best[1] if best[0] else "none"


# --- voices ---


def _voices(turn: Observation) -> Iterable[tuple[Origin, str]]:
    """Every text of a turn with its speaker, in the order in which a quote is looked for."""
    yield "user", _own_words(turn)
    # What a person pastes is shown by them, not said by them; and in a turn of the CLI's own the person said nothing.
    yield "tool", turn.user_message if turn.trigger == "task" else "\n".join(_PASTED.findall(turn.user_message))
    yield "assistant", turn.agent_response
    for call in turn.tool_calls:
        # What the agent asked of a tool is its own words; what came back is the tool's.
        yield "assistant", text_of(call.get("input"))
        yield _source(call), text_of(call.get("result"))
    yield "tool", turn.notice


def _as_shown(turn: Observation) -> Iterable[tuple[Origin, str]]:
    """Inputs and results that are no text, as the curator sees them: a quote may reach across their fields."""
    for call in turn.tool_calls:
        for origin, value in (("assistant", call.get("input")), (_source(call), call.get("result"))):
            if isinstance(value, dict | list):
                yield origin, json.dumps(value, ensure_ascii=False)  # type: ignore[misc]


def _source(call: dict[str, Any]) -> Origin:
    name = str(call.get("name", ""))
    return "memory" if name in ECHO_TOOLS else "web" if name in WEB_TOOLS else "tool"


def _own_words(turn: Observation) -> str:
    return "" if turn.trigger == "task" else _PASTED.sub("\n", turn.user_message)


def _acts(turn: Observation) -> Iterable[str]:
    for call in turn.tool_calls:
        given = call.get("input")
        for name, value in given.items() if isinstance(given, dict) else ():
            if name in _ACTS and isinstance(value, str) and len(value) <= _LONGEST_ACT_CHARS:
                yield value


def _all_text(turn: Observation) -> Iterable[str]:
    return (text for _, text in _voices(turn))


def text_of(value: Any) -> str:
    """The readable text of a tool's input or result."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(text_of(v) for v in value.values())
    if isinstance(value, list):
        return "\n".join(text_of(v) for v in value)
    return "" if value is None else json.dumps(value)


def _folded(text: str) -> str:
    """A quote is verbatim but for case, white space and typographic quotes."""
    plain = text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
    return _SPACE.sub(" ", plain).strip().casefold()
