"""How well turns and learnings answer a question, from which of them hold its words (pure).

A word's weight is its rarity (Lucene's inverse document frequency, which is never negative), a text's score the
share of the question's weight that it has, saturated by BM25's formula, with words that stand close by counted at
less. A conversation says things once: who asks names the subject, who answers says "it".

All numbers here are round figures, chosen on the four conversations of LoCoMo in the evaluation set, and none of them
matters by itself: over 324 settings around these, recall at 5 / 10 / 20 was 73.1 to 76.7 / 80.4 to 83.6 / 87.0 to
88.9 %. With the settings chosen on three conversations and measured on the fourth it was 76.6 / 83.2 / 88.2
(benchmarks/bench_locomo.py --leave-one-out). Tried without gain: phrases of two words, a word's number within a turn,
other weights for the date or for captions, turns with words of time for questions with "when", a turn after a question,
fewer hits from one place, neighbours' scores added up instead of their words.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sprite.database.turn_index import Outline, Postings

K1 = 1.2
B = 0.75
#: What a word counts that stands so many turns before (-) or after (+) a turn of the same session.
NEIGHBOURS = {-3: 0.1, -2: 0.25, -1: 0.5, 0: 1.0, 1: 0.4, 2: 0.2}
REACH = 3
#: A word that only tools said: files and pages have every word sooner or later.
TOOL_WORD = 0.3
#: The subject of the conversation: words within so many turns on each side, and what they weigh beside the turn's own.
SUBJECT_TURNS = 10
SUBJECT_WEIGHT = 0.5
SUBJECT_SATURATION = 2.0
#: A turn whose speaker the question names, and one that ends with a question: it asks, where others answer.
NAMED_SPEAKER = 1.5
ASKS = 0.85
#: Longer turns say more, slowly.
LENGTH_POWER = 0.1
#: What a learning adds to the turn it cites.
CITED = 0.3


@dataclass(frozen=True, slots=True)
class Words:
    """Where the question's words stand: for each its weight, and the turns with what it counts there."""

    weights: list[float]
    places: list[dict[int, float]]

    @property
    def total(self) -> float:
        """The weight of the whole question."""
        return sum(self.weights) or 1.0


def weigh(postings: Sequence[Postings], turns: int) -> Words:
    """Weights and places of a question's words among so many turns."""
    weights = [weight(turns, found.turns) for found in postings]
    places = [{**dict.fromkeys(found.tools, TOOL_WORD), **dict.fromkeys(found.spoken, 1.0)} for found in postings]
    return Words(weights, places)


def weight(texts: int, having: int) -> float:
    """What a word says that so many of the texts have."""
    return math.log1p((max(texts - having, 0) + 0.5) / (having + 0.5))


def seeds(words: Words, number: int) -> list[int]:
    """The turns with most of the question's weight; the newest of equals."""
    own: dict[int, float] = {}
    for word_weight, places in zip(words.weights, words.places, strict=True):
        for turn, count in places.items():
            own[turn] = own.get(turn, 0.0) + word_weight * count
    # Weights are added in the same order for every turn, so that equals are equal to the last bit.
    return [turn for _, turn in heapq.nlargest(number, zip(own.values(), own.keys(), strict=True))]


def own_shares(words: Words, turns: Collection[int]) -> dict[int, float]:
    """The share of the question that each turn has by itself."""
    shares, total = dict.fromkeys(turns, 0.0), words.total
    for word_weight, places in zip(words.weights, words.places, strict=True):
        for turn in places.keys() & shares.keys():
            shares[turn] += word_weight * places[turn] / total
    return shares


def with_neighbours(turns: Iterable[int], reach: int) -> set[int]:
    """Turns and those that may be next to them."""
    return {turn + step for turn in turns for step in range(-reach, reach + 1)}


def score_turns(words: Words, anchors: set[int], outlines: Mapping[int, Outline]) -> dict[int, float]:
    """The share of the question that each anchor has, with its neighbours; `outlines` has both."""
    sessions = {turn: outline.session_id for turn, outline in outlines.items()}
    chars = {turn: outline.chars for turn, outline in outlines.items()}
    session_of, steps = sessions.get, list(NEIGHBOURS.items())
    lengths = {
        anchor: sum(chars[anchor + step] for step, _ in steps if session_of(anchor + step) == sessions[anchor])
        for anchor in anchors & sessions.keys()
    }
    average = sum(lengths.values()) / max(1, len(lengths)) or 1.0
    norms = {anchor: K1 * (1 - B + B * length / average) for anchor, length in lengths.items()}
    scores = dict.fromkeys(lengths, 0.0)
    for word_weight, places in zip(words.weights, words.places, strict=True):
        counts: dict[int, float] = {}
        # By turn, not by anchor: most words stand in few turns.
        for turn in places.keys() & sessions.keys():
            session, here = sessions[turn], places[turn]
            for step, share in steps:
                if session_of(turn - step) == session:
                    counts[turn - step] = counts.get(turn - step, 0.0) + share * here
        for anchor in scores.keys() & counts.keys():
            scores[anchor] += word_weight * (K1 + 1) * counts[anchor] / (counts[anchor] + norms[anchor])
    total = words.total
    return {anchor: score / total for anchor, score in scores.items()}


def score_subject(words: Words, turns: Sequence[int]) -> dict[int, float]:
    """The share of the question that the conversation around each turn has, weighed to be added to its own."""
    scores = dict.fromkeys(turns, 0.0)
    for word_weight, places in zip(words.weights, words.places, strict=True):
        ordered = sorted(places)
        for turn in turns:
            count = bisect_right(ordered, turn + SUBJECT_TURNS) - bisect_left(ordered, turn - SUBJECT_TURNS)
            scores[turn] += word_weight * count / (count + SUBJECT_SATURATION)
    total = words.total
    return {turn: SUBJECT_WEIGHT * score / total for turn, score in scores.items()}


def standing(outline: Outline, average_chars: float, *, named: bool) -> float:
    """The factor by which a turn's own nature counts, whatever is asked."""
    length: float = ((outline.chars or 1) / (average_chars or 1.0)) ** LENGTH_POWER
    return length * (NAMED_SPEAKER if named else 1.0) * (ASKS if outline.asks else 1.0)


def average_chars(outlines: Mapping[int, Outline]) -> float:
    """The mean length of turns."""
    return sum(outline.chars for outline in outlines.values()) / max(1, len(outlines))


def score_texts(postings: Sequence[Sequence[int]], lengths: Mapping[int, int], texts: int) -> dict[int, float]:
    """The share of the question that each of some short texts has, by BM25."""
    weights = [weight(texts, len(found)) for found in postings]
    average = sum(lengths.values()) / max(1, len(lengths)) or 1.0
    scores = dict.fromkeys(lengths, 0.0)
    for word_weight, found in zip(weights, postings, strict=True):
        for text in found:
            if text in lengths:
                scores[text] += word_weight * (K1 + 1) / (1 + K1 * (1 - B + B * lengths[text] / average))
    return {text: score / (sum(weights) or 1.0) for text, score in scores.items()}
