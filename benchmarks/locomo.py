"""LoCoMo's data (Maharana et al., ACL 2024; CC BY-NC 4.0, not ours to ship) as conversations with questions.

Each turn of a dialogue becomes a turn of the log, as its speaker said it. Learnings come from the data's own
`observation` (facts with the turns they cite) where it has them; without, a rule makes a stand-in: every statement of
at least six words in the first person, told in the third. A stand-in says nothing its turn does not say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: The categories with an answer in the text: multi-hop, temporal, open-domain, single-hop.
CATEGORIES = {1, 2, 3, 4}
STATEMENT_WORDS = 6
_ID = re.compile(r"D\d+:\d+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_THIRD = {"i": "{}", "me": "{}", "myself": "{}", "my": "{}'s", "mine": "{}'s", "i'm": "{} is", "i've": "{} has",
          "i'll": "{} will", "i'd": "{} would", "we": "they", "us": "them", "our": "their"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """One turn of a dialogue."""

    speaker: str
    text: str
    session: int
    at: float


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns that answer it, by their place in the conversation from 0."""

    text: str
    evidence: frozenset[int]


@dataclass(slots=True)
class Conversation:
    """A dialogue of two people over many sessions; learnings are (place of the turn, text)."""

    name: str
    people: tuple[str, str]
    turns: list[Said] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    learnings: list[tuple[int, str]] = field(default_factory=list)
    has_observations: bool = False


def load(path: Path) -> list[Conversation]:
    """Every conversation of a file in LoCoMo's format."""
    return [_conversation(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]


def _conversation(sample: dict[str, Any]) -> Conversation:
    said = sample["conversation"]
    found = Conversation(sample["sample_id"], (said["speaker_a"], said["speaker_b"]))
    places: dict[str, int] = {}
    sessions = sorted(int(name[1]) for key in said if (name := re.fullmatch(r"session_(\d+)", key)))
    for session in sessions:
        when = datetime.strptime(said[f"session_{session}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for second, turn in enumerate(said[f"session_{session}"]):
            picture = f" [photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            places[turn["dia_id"]] = len(found.turns)
            found.turns.append(Said(turn["speaker"], f"{turn['text']}{picture}", session, when.timestamp() + second))
    for asked in sample["qa"]:
        evidence = frozenset(
            places[name] for entry in asked["evidence"] for name in _ID.findall(entry) if name in places
        )
        if asked["category"] in CATEGORIES and evidence:
            found.questions.append(Question(asked["question"], evidence))
    found.learnings = list(_observed(sample.get("observation", {}), places))
    found.has_observations = bool(found.learnings)
    if not found.learnings:
        found.learnings = [(place, text) for place, turn in enumerate(found.turns) for text in _retold(turn)]
    return found


def _observed(observation: dict[str, Any], places: dict[str, int]) -> Iterator[tuple[int, str]]:
    for facts in observation.values():
        for spoken in facts.values():
            for text, cited in spoken:
                for name in _ID.findall(json.dumps(cited)):
                    if name in places:
                        yield places[name], text


def _retold(turn: Said) -> Iterator[str]:
    for sentence in _SENTENCE.split(turn.text):
        words = sentence.split()
        plain = [word.lower().strip(",.!") for word in words]
        if len(words) < STATEMENT_WORDS or sentence.endswith("?") or not _THIRD.keys() & set(plain):
            continue
        retold = [
            _THIRD[low].format(turn.speaker) if low in _THIRD else word for word, low in zip(words, plain, strict=True)
        ]
        text = " ".join(retold)
        yield text if turn.speaker in text else f"{turn.speaker}: {text}"
