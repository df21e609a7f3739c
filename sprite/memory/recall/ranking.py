"""How well turns and learnings answer a question, from which of them hold its words, and how often (pure).

A turn has two sides, the person's words and the reply, each with its own length. A word's weight is its rarity
(Lucene's inverse document frequency, which is never negative); what it counts in a turn is saturated by BM25's formula,
with what is said close by added at less: a conversation says things once, who asks names the subject, who answers says
"it". How much a turn needs those around it falls with its length, since a page stands alone.

One set of numbers for people who chat and for people with an assistant, all of them round, none chosen for one set of
questions alone (benchmarks/bench_retrieval.py --leave-one-out). Tried without gain: passages, best sentence, words that
stand close by, prefixes, rarity by side, words that occur together, recency, diversity, scores of whole sessions.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sprite.database.turn_index import Counts, Means, Outline, Postings

#: BM25's own; less than the usual 0.75 for length, since long turns do say more.
K1 = 1.2
B = 0.4
#: What a word counts that stands so many turns before (-) or after (+) a turn of the same session.
NEIGHBOURS = {-3: 0.1, -2: 0.25, -1: 0.5, 1: 0.4, 2: 0.2}
REACH = 3
#: Words at which a turn needs those around it only by 1/e: an exchange of people has 20, an assistant's page 700.
STANDS_ALONE = 300.0
#: Below this share what stands close by is not worth counting exactly.
COUNTED_SHARE = 0.05
#: A word that only tools said: files and pages have every word sooner or later.
TOOL_WORD = 0.3
#: A word that names the turn's date: nobody said it.
DATED = 0.5
#: A word of asking about a talk ("mentioned", "list"): it stands in the question for another reason than its subject.
ASKING = 0.5
#: The subject of the conversation: words within so many turns on each side, and what they weigh beside the turn's own.
SUBJECT_TURNS = 10
SUBJECT_WEIGHT = 0.25
SUBJECT_SATURATION = 2.0
#: A turn whose speaker the question names.
NAMED_SPEAKER = 1.5
#: Of turns that need each other, the longer ones say more, slowly.
LENGTH_POWER = 0.2
#: A turn of the time that the question is about; of turns that fit alike, the first or the latest where that is asked.
IN_TIME = 1.5


@dataclass(frozen=True, slots=True)
class Words:
    """Where the question's words stand: for each its weight and its turns; `reply` is what one of a reply counts."""

    weights: list[float]
    places: list[Postings]
    means: Means
    reply: float

    @property
    def total(self) -> float:
        """The weight of the whole question."""
        return sum(self.weights) or 1.0


def weigh(postings: Sequence[Postings], turns: int, means: Means, asking: Sequence[bool]) -> Words:
    """Weights and places of a question's words among so many turns."""
    weights = [
        weight(turns, found.turns) * (ASKING if asks else 1.0) for found, asks in zip(postings, asking, strict=True)
    ]
    # What is said at length is worth less a word; of people who chat both sides are worth the same.
    return Words(weights, list(postings), means, min(1.0, means.person / means.reply) if means.reply else 1.0)


def weight(texts: int, having: int) -> float:
    """What a word says that so many of the texts have."""
    return math.log1p((max(texts - having, 0) + 0.5) / (having + 0.5))


def seeds(words: Words) -> dict[int, float]:
    """How much of the question's weight turns have, by which words stand in them."""
    own: dict[int, float] = {}
    reply = words.reply
    for word_weight, found in zip(words.weights, words.places, strict=True):
        both = found.person & found.reply
        other = (found.tools | found.dated) - found.person - found.reply
        for turns, count in (
            (found.person - both, 1.0),
            (found.reply - both, reply),
            (both, 1.0 + reply),
            (other, TOOL_WORD * reply),
        ):
            worth = word_weight * count / (count + K1)
            for turn in turns:
                own[turn] = own.get(turn, 0.0) + worth
    return own


def best(scores: Mapping[int, float], number: int) -> list[int]:
    """The best of them, the newest of equals: weights are added in the same order for every one of them."""
    return [key for _, key in heapq.nlargest(number, zip(scores.values(), scores.keys(), strict=True))]


def own_shares(words: Words, turns: Collection[int]) -> dict[int, float]:
    """The share of the question that each turn has by itself."""
    shares, total = dict.fromkeys(turns, 0.0), words.total
    for word_weight, found in zip(words.weights, words.places, strict=True):
        spoken = found.person | found.reply | found.dated
        for turn in spoken & shares.keys():
            shares[turn] += word_weight / total
        for turn in (found.tools - spoken) & shares.keys():
            shares[turn] += word_weight * TOOL_WORD / total
    return shares


def lifts(cited: Mapping[int, float], own: Mapping[int, float]) -> dict[int, float]:
    """What learnings add to the turns they cite, of the share of the question that a turn lacks.

    What it says itself does not count again: it would push out a turn that says as much and has no learning, as few of
    the agent's replies have.
    """
    return {turn: cited.get(turn, 0.0) * (1 - share) for turn, share in own.items()}


def with_neighbours(turns: Iterable[int], reach: int) -> set[int]:
    """Turns and those that may be next to them."""
    return {turn + step for turn in turns for step in range(-reach, reach + 1)}


def presence(words: Words, turns: Collection[int]) -> list[Counts]:
    """Counts of 0 and 1: all that is known from where words stand."""
    wanted = set(turns)
    return [
        {
            turn: (float(turn in found.person), float(turn in found.reply))
            for turn in (found.person | found.reply) & wanted
        }
        for found in words.places
    ]


def needs_others(outline: Outline) -> float:
    """How much a turn needs the turns around it, from 1 (it says next to nothing) to 0."""
    return math.exp(-(outline.person + outline.reply) / STANDS_ALONE)


def worth_counting(turns: Iterable[int], outlines: Mapping[int, Outline]) -> set[int]:
    """Turns, and those around them that have a say in their scores."""
    found = set()
    for turn in turns:
        found.add(turn)
        needs, session = needs_others(outlines[turn]), outlines[turn].session_id
        for step, share in NEIGHBOURS.items():
            other = outlines.get(turn + step)
            if other is not None and other.session_id == session and share * needs >= COUNTED_SHARE:
                found.add(turn + step)
    return found


def score_turns(
    words: Words, counts: Sequence[Counts], turns: Collection[int], outlines: Mapping[int, Outline]
) -> dict[int, float]:
    """The share of the question that each turn has, with its neighbours; `outlines` has both."""
    scores = {turn: 0.0 for turn in turns if turn in outlines}
    needs = {turn: needs_others(outlines[turn]) for turn in scores}
    session_of, steps = {turn: outlines[turn].session_id for turn in scores}.get, list(NEIGHBOURS.items())
    for word_weight, amounts in zip(words.weights, _amounts(words, counts, outlines), strict=True):
        near: dict[int, float] = {}
        # By turn, not by the turn beside it: most words stand in few turns.
        for turn, amount in amounts.items():
            session = outlines[turn].session_id
            for step, share in steps:
                if session_of(turn - step) == session:
                    near[turn - step] = near.get(turn - step, 0.0) + share * amount
        for turn in scores.keys() & (amounts.keys() | near.keys()):
            count = amounts.get(turn, 0.0) + needs[turn] * near.get(turn, 0.0)
            scores[turn] += word_weight * (K1 + 1) * count / (count + K1)
    total = words.total
    return {turn: score / total for turn, score in scores.items()}


def _amounts(words: Words, counts: Sequence[Counts], outlines: Mapping[int, Outline]) -> list[dict[int, float]]:
    """For each word what it counts in the turns that have it, for how long they are."""
    person_mean, reply_mean = words.means.person or 1.0, words.means.reply or 1.0
    amounts = []
    for found, counted in zip(words.places, counts, strict=True):
        amount: dict[int, float] = {}
        for turn in counted.keys() | ((found.tools | found.dated) & outlines.keys()):
            if turn not in outlines:
                continue
            outline = outlines[turn]
            person, reply = counted.get(turn, (0.0, 0.0))
            if turn in found.tools:
                reply += TOOL_WORD
            amount[turn] = (
                person / (1 - B + B * outline.person / person_mean)
                + words.reply * reply / (1 - B + B * outline.reply / reply_mean)
                + (DATED if turn in found.dated else 0.0)
            )
        amounts.append(amount)
    return amounts


def score_subject(words: Words, turns: Sequence[int], outlines: Mapping[int, Outline]) -> dict[int, float]:
    """The share of the question that the conversation around each turn has, weighed to be added to its own."""
    scores = dict.fromkeys(turns, 0.0)
    for word_weight, found in zip(words.weights, words.places, strict=True):
        ordered = sorted(found.person | found.reply)
        if not ordered:
            continue
        for turn in turns:
            count = bisect_right(ordered, turn + SUBJECT_TURNS) - bisect_left(ordered, turn - SUBJECT_TURNS)
            scores[turn] += word_weight * count / (count + SUBJECT_SATURATION)
    factor = SUBJECT_WEIGHT * (K1 + 1) / words.total
    return {turn: factor * needs_others(outlines[turn]) ** 3 * score for turn, score in scores.items()}


def standing(outline: Outline, means: Means, *, named: bool) -> float:
    """The factor by which a turn's own nature counts, whatever is asked."""
    share = max(1, outline.person + outline.reply) / ((means.person + means.reply) or 1.0)
    length: float = share ** (LENGTH_POWER * needs_others(outline))
    return length * (NAMED_SPEAKER if named else 1.0)


def by_time(turns: Mapping[int, float], at: Mapping[int, float], *, first: bool) -> dict[int, float]:
    """A factor for each scored turn, the larger the nearer it is to the first or the latest that fit about as well."""
    most = max(turns.values(), default=0.0)
    fitting = sorted((turn for turn, score in turns.items() if score >= most / 2), key=lambda turn: at[turn])
    ordered = fitting[::-1] if first else fitting
    step = (IN_TIME - 1) / max(1, len(ordered) - 1)
    return {turn: 1 + step * place for place, turn in enumerate(ordered)}


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


def have_most(postings: Sequence[Sequence[int]], texts: int, number: int) -> list[int]:
    """The short texts with most of the question's weight; the newest of equals."""
    own: dict[int, float] = {}
    for found in postings:
        word_weight = weight(texts, len(found))
        for text in found:
            own[text] = own.get(text, 0.0) + word_weight
    return best(own, number)
