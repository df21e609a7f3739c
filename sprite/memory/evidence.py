"""Where a learning's evidence stands: whose words carry it, and how far it can be trusted (pure).

The curator cites a turn and may quote it; whether that is so is decided here, in code, from the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sprite.database.transcript import Observation
from sprite.memory.curator import ParsedLearning

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
ECHO_TOOLS = frozenset({"mcp__sprite__search_memory"})
#: Only the person's own words make these; from anyone else's mouth the same sentence is a mere FACT.
PERSONAL_TYPES = frozenset({"PREFERENCE", "CORRECTION"})

_WORD = re.compile(r"\w+")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a learning rests on: its turn, whose words, how sure, and the type it may have."""

    turn: Observation | None
    origin: Origin
    confidence: float
    type: str
    quote: str | None


def weigh(learning: ParsedLearning, turns: Sequence[Observation]) -> Evidence:
    """Judges one learning against the batch it was drawn from."""
    turn = _cited(learning, turns)
    if turn is None:
        return Evidence(None, "none", UNVERIFIED, _allowed(learning.type, "none"), learning.quote)
    if learning.quote:
        origin = _spoken_by(learning.quote, turn)
        confidence = {"user": QUOTED_USER, "none": UNVERIFIED, "memory": UNVERIFIED}.get(origin, QUOTED_OTHER)
    else:
        origin = _closest_voice(learning.content, turn)
        confidence = CITED_ONLY if origin != "none" else UNVERIFIED
    return Evidence(turn, origin, confidence, _allowed(learning.type, origin), learning.quote)


def _allowed(type_: str, origin: Origin) -> str:
    return "FACT" if type_ in PERSONAL_TYPES and origin != "user" else type_


def _cited(learning: ParsedLearning, turns: Sequence[Observation]) -> Observation | None:
    if learning.turn_id is not None:
        return next((turn for turn in turns if turn.id == learning.turn_id), None)
    # An answer without citations is in the format too: the turn that shares most words is taken.
    words = _words(learning.content)
    return max(turns, key=lambda turn: len(words & _words(" ".join(_all_text(turn)))), default=None)


def _spoken_by(quote: str, turn: Observation) -> Origin:
    for origin, text in _voices(turn):
        if _folded(quote) in _folded(text):
            return origin
    return "none"


def _closest_voice(content: str, turn: Observation) -> Origin:
    words = _words(content)
    scored = [(len(words & _words(text)), origin) for origin, text in _voices(turn)]
    # max keeps the first of equals, and voices come with the person's first.
    best = max(scored, key=lambda pair: pair[0], default=(0, "none"))
    return best[1] if best[0] else "none"


def _voices(turn: Observation) -> Iterable[tuple[Origin, str]]:
    """Every text of a turn with its speaker, in the order in which a quote is looked for."""
    yield "user", turn.user_message
    yield "assistant", turn.agent_response
    for call in turn.tool_calls:
        # What the agent asked of a tool is its own words; what came back is the tool's.
        yield "assistant", text_of(call.get("input"))
        name = str(call.get("name", ""))
        source: Origin = "memory" if name in ECHO_TOOLS else "web" if name in WEB_TOOLS else "tool"
        yield source, text_of(call.get("result"))
    yield "tool", turn.notice


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


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.casefold()) if len(word) > 2}  # noqa: PLR2004 - "is", "a"
