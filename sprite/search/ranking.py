"""Rank turns and learnings by the question's words in them and their counts (pure).

BM25 over two sides with separate lengths, the user's words and the reply; neighbouring turns add a smaller count.
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sprite.log.turn_index import Counts, Means, Outline, Postings
from sprite.storage.full_text import UNSPACED

# The same round numbers serve all conversations; none is tuned to one set of questions (benchmarks/bench_retrieval.py
# --leave-one-out). Tried without gain: passages, best sentence, adjacent words, prefixes, rarity by side, recency,
# co-occurring words, diversity, scores of whole sessions.
#: BM25's parameters. B is below the usual 0.75, since long turns do contain more.
K1 = 1.2
B = 0.4
#: Weight of a word by its distance in turns of the same session, before (-) or after (+): the next says "it" of it.
NEIGHBOURS = {-3: 0.1, -2: 0.25, -1: 0.5, 1: 0.4, 2: 0.2}
REACH = 3
#: Words at which a turn needs its neighbours only by 1/e. An exchange between people has 20, an assistant's page 700.
STANDS_ALONE = 300.0
#: Neighbours with a smaller share are not counted exactly.
COUNTED_SHARE = 0.05
#: Weight of a word in tool output only: files and pages contain every word sooner or later. It falls with the word's
#: rarity there: the paths in all of a project's turns contain its name.
TOOL_WORD = 0.3
#: Weight of a word that matches the turn's date only.
DATED = 0.5
#: Weight of a word about the conversation ("mentioned", "list"), which is not the subject of the question.
ASKING = 0.5
#: The conversation's subject: words within this many turns on each side, their weight and their saturation.
SUBJECT_TURNS = 10
SUBJECT_WEIGHT = 0.25
SUBJECT_SATURATION = 2.0
#: Factor for a turn whose speaker the question names.
NAMED_SPEAKER = 1.5
#: Exponent for length: longer turns contain slightly more.
LENGTH_POWER = 0.2
#: Factor for turns of the question's period.
IN_TIME = 1.5


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a question: the turns in which each occurs, and its weight."""

    weights: list[float]
    #: The weights of the words in tool output, relative to those in speech.
    tools: list[float]
    places: list[Postings]
    means: Means
    #: Factor for words in a reply.
    reply: float

    @property
    def total(self) -> float:
        """Return the weight of the whole question."""
        return sum(self.weights) or 1.0


def weigh(postings: Sequence[Postings], turns: int, means: Means, asking: Sequence[bool]) -> Words:
    """Return the words of a question with their weights and their places among all turns."""
    weights = [
        weight(turns, found.turns) * (ASKING if asks else 1.0) for found, asks in zip(postings, asking, strict=True)
    ]
    tools = [TOOL_WORD * weight(turns, max(it.turns, len(it.tools))) / weight(turns, it.turns) for it in postings]
    # Words count less on the more verbose side. Between people both sides count the same.
    return Words(weights, tools, list(postings), means, min(1.0, means.person / means.reply) if means.reply else 1.0)


def weight(texts: int, having: int) -> float:
    """Return the weight of a search word that occurs in `having` of the texts."""
    return math.log1p((max(texts - having, 0) + 0.5) / (having + 0.5))


def seeds(words: Words) -> dict[int, float]:
    """Return a first score of each turn with a word of the question: the total weight of the words in it."""
    own: dict[int, float] = {}
    reply = words.reply
    for word_weight, tool, found in zip(words.weights, words.tools, words.places, strict=True):
        both = found.person & found.reply
        other = (found.tools | found.dated) - found.person - found.reply
        for turns, count in (
            (found.person - both, 1.0),
            (found.reply - both, reply),
            (both, 1.0 + reply),
            (other, tool * reply),
        ):
            worth = word_weight * count / (count + K1)
            for turn in turns:
                own[turn] = own.get(turn, 0.0) + worth
    return own


def best(scores: Mapping[int, float], number: int) -> list[int]:
    """Return the keys with the highest scores; the newest among equals."""
    return [key for _, key in heapq.nlargest(number, zip(scores.values(), scores.keys(), strict=True))]


def own_shares(words: Words, turns: Collection[int]) -> dict[int, float]:
    """Return for each turn the share of the question's weight that the turn's own words cover."""
    shares, total = dict.fromkeys(turns, 0.0), words.total
    for word_weight, tool, found in zip(words.weights, words.tools, words.places, strict=True):
        spoken = found.person | found.reply | found.dated
        for turn in spoken & shares.keys():
            shares[turn] += word_weight / total
        for turn in (found.tools - spoken) & shares.keys():
            shares[turn] += word_weight * tool / total
    return shares


def lifts(cited: Mapping[int, float], own: Mapping[int, float]) -> dict[int, float]:
    """Return the scores that learnings add to the turns that they cite: less, the more a turn's own words cover.

    Otherwise such a turn would displace equal turns without a learning, such as most replies of the agent.
    """
    return {turn: cited.get(turn, 0.0) * (1 - share) for turn, share in own.items()}


def with_neighbours(turns: Iterable[int], reach: int) -> set[int]:
    """Return the turns and all ids within reach."""
    return {turn + step for turn in turns for step in range(-reach, reach + 1)}


def presence(words: Words, turns: Collection[int]) -> list[Counts]:
    """Return for each word the turns that contain it, with a count of 0 or 1 for each side."""
    wanted = set(turns)
    return [
        {
            turn: (float(turn in found.person), float(turn in found.reply))
            for turn in (found.person | found.reply) & wanted
        }
        for found in words.places
    ]


def needs_others(outline: Outline) -> float:
    """Return how much a turn's score depends on its neighbours, from 1 (almost empty) to 0."""
    return math.exp(-(outline.person + outline.reply) / STANDS_ALONE)


def worth_counting(turns: Iterable[int], outlines: Mapping[int, Outline]) -> set[int]:
    """Return the turns and those neighbours that affect their scores."""
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
    """Return for each turn the share of the question's weight that it covers with its neighbours in `outlines`."""
    scores = {turn: 0.0 for turn in turns if turn in outlines}
    needs = {turn: needs_others(outlines[turn]) for turn in scores}
    session_of, steps = {turn: outlines[turn].session_id for turn in scores}.get, list(NEIGHBOURS.items())
    for word_weight, amounts in zip(words.weights, _amounts(words, counts, outlines), strict=True):
        near: dict[int, float] = {}
        # Iterate over the turns with the word, not over all neighbours: most words occur in few turns.
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
    """Return each word's length-normalised count in its turns."""
    person_mean, reply_mean = words.means.person or 1.0, words.means.reply or 1.0
    amounts = []
    for found, tool, counted in zip(words.places, words.tools, counts, strict=True):
        amount: dict[int, float] = {}
        for turn in counted.keys() | ((found.tools | found.dated) & outlines.keys()):
            if turn not in outlines:
                continue
            outline = outlines[turn]
            person, reply = counted.get(turn, (0.0, 0.0))
            if turn in found.tools:
                reply += tool
            amount[turn] = (
                person / (1 - B + B * outline.person / person_mean)
                + words.reply * reply / (1 - B + B * outline.reply / reply_mean)
                + (DATED if turn in found.dated else 0.0)
            )
        amounts.append(amount)
    return amounts


def score_subject(words: Words, turns: Sequence[int], outlines: Mapping[int, Outline]) -> dict[int, float]:
    """Return for each turn a score for the question's words in the conversation around it."""
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
    """Return the factor for a turn's score that depends on its length and speaker, not on the question's words."""
    share = max(1, outline.person + outline.reply) / ((means.person + means.reply) or 1.0)
    length: float = share ** (LENGTH_POWER * needs_others(outline))
    return length * (NAMED_SPEAKER if named else 1.0)


def score_texts(postings: Sequence[Sequence[int]], lengths: Mapping[int, int], texts: int) -> dict[int, float]:
    """Return the BM25 score of each short text, such as a learning, for the question."""
    weights = [weight(texts, len(found)) for found in postings]
    average = sum(lengths.values()) / max(1, len(lengths)) or 1.0
    scores = dict.fromkeys(lengths, 0.0)
    for word_weight, found in zip(weights, postings, strict=True):
        for text in found:
            if text in lengths:
                scores[text] += word_weight * (K1 + 1) / (1 + K1 * (1 - B + B * lengths[text] / average))
    return {text: score / (sum(weights) or 1.0) for text, score in scores.items()}


def have_most(postings: Sequence[Sequence[int]], texts: int, number: int) -> list[int]:
    """Return the short texts whose words have the most weight in the question; the newest among equals."""
    own: dict[int, float] = {}
    for found in postings:
        word_weight = weight(texts, len(found))
        for text in found:
            own[text] = own.get(text, 0.0) + word_weight
    return best(own, number)


#: About two sentences: enough to judge whether the rest is worth reading.
PASSAGE_CHARS = 280
CUT = "…"

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_SIGN = re.compile(f"[{UNSPACED}]")
_ENDING = re.compile(r"(?<=...)(?:ings?|ied|ies|i?ly|ed|e?s|y|e)$")
_DOUBLED = re.compile(r"([bdfglmnprt])\1$")
#: Where a sentence or a line may begin.
_BEGINS = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[\u3002\uff01\uff1f])")


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Return a word without accents and ending, close to the index's own stemming."""
    plain = word.casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFD", plain) if not unicodedata.combining(c))
    return _DOUBLED.sub(r"\1", _ENDING.sub("", plain))


def stems(phrases: Iterable[str]) -> list[str]:
    """Return the stem for each FTS5 phrase, which is a word or a character pair."""
    return [stem(phrase.strip('"').replace(" ", "")) for phrase in phrases]


def best_passage(
    text: str,
    weights: Mapping[str, float],
    chars: int = PASSAGE_CHARS,
    index_stems: Callable[[list[str]], list[str]] | None = None,
) -> tuple[int, int]:
    """Return the window of at most this many characters with the most weight; each stem counts once.

    It starts and ends at word borders, unless a word is longer. Where no word has a stem of `weights`, `index_stems`
    finds the words that only the index takes for the same.
    """
    if len(text) <= chars:
        return 0, len(text)
    found = list(_WORD.finditer(text))
    # The first letter excludes nearly every word without computing its stem.
    initials = {initial for key in weights for initial in (key[:1], key[:1].upper())}
    hits = [
        (match, key)
        for place, match in enumerate(found)
        if ((word := match[0])[0] in initials or not word.isascii()) and (key := _key(found, place)) in weights
    ]
    if index_stems is not None and not hits:
        distinct = list({match[0] for match in found if match[0][0] in initials})
        known = {word: its for word, its in zip(distinct, index_stems(distinct), strict=True) if its in weights}
        hits = [(match, known[match[0]]) for match in found if match[0] in known]
    first, last = _best_run(hits, weights, chars)
    # A third of the remaining room stands before the hits, because an answer follows.
    start = _begin(text, found, first - max(0, chars - last + first) // 3, first)
    inside = [match.end() for match in found if start < match.end() <= start + chars]
    if start + chars >= len(text):
        return start, len(text)
    return start, inside[-1] if inside and inside[-1] >= min(last, start + chars) else start + chars


def _key(found: Sequence[re.Match[str]], place: int) -> str:
    """Return the stem of a word; in a script without spaces, a character joined with the next one."""
    word, following = found[place][0], found[place + 1] if place + 1 < len(found) else None
    if following is not None and _SIGN.fullmatch(word) and following.start() == found[place].end():
        return word + following[0]
    return stem(word)


def _best_run(hits: Sequence[tuple[re.Match[str], str]], weights: Mapping[str, float], chars: int) -> tuple[int, int]:
    """Return the start of the first and the end of the last search word in the best window, (0, 0) without any."""
    inside: dict[str, int] = {}
    worth = best = 0.0
    left = 0
    run = (0, 0)
    for match, key in hits:
        inside[key] = inside.get(key, 0) + 1
        worth += weights[key] if inside[key] == 1 else 0.0
        while hits[left][0] is not match and match.end() - hits[left][0].start() > chars:
            gone = hits[left][1]
            inside[gone] -= 1
            worth -= 0.0 if inside[gone] else weights[gone]
            left += 1
        if worth > best + 1e-9:
            best, run = worth, (hits[left][0].start(), match.end())
    return run


def _begin(text: str, found: Sequence[re.Match[str]], earliest: int, first: int) -> int:
    """Return the place of the first sentence, else of the first word, that begins between `earliest` and `first`."""
    if earliest <= 0:
        return 0
    sentence = _BEGINS.search(text, earliest - 1, first)
    return sentence.end() if sentence else next(word.start() for word in found if word.start() >= earliest)
