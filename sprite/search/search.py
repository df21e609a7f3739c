"""search_memory: learnings and raw turns in one ranked list, and how far the learnings reach."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from sprite.log.transcript import Observation, TranscriptDB
from sprite.log.turn_index import MAX_POSTINGS, Opening, TurnLook
from sprite.memory.database import MemoryDB
from sprite.memory.learning_index import TRUSTED, UNTRUSTED, LearningLook, LearningsLooked
from sprite.memory.query import Query, parse_query
from sprite.protocol.framing import set_in
from sprite.protocol.shapes import LearningRow, SearchHit
from sprite.search import ranking
from sprite.search.meaning.meaning import Meaning
from sprite.search.meaning.vectors import NOTHING_NEAR, Near
from sprite.search.ranking import CUT, PASSAGE_CHARS, best_passage, stems
from sprite.storage.full_text import OWN, Filters, Index, index_stems

#: Texts up to this length are shown whole, longer ones by their best passage. `around:` widens it.
SNIPPET_CHARS = 300
#: Characters shown of the turn that `around:` names.
AROUND_CHARS = 6000


@dataclass(frozen=True, slots=True)
class Found:
    """Search hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet."""

    hits: list[SearchHit]
    indexed_through: int
    waiting: int
    #: The filter that excluded all hits, and how far the search by meaning reaches.
    notes: tuple[str, ...] = ()


def learning_hit(learning: LearningRow, weights: Mapping[str, float] | None = None) -> SearchHit:
    """Convert a learning to a hit. Long ones show the passage with the most weight (by stems)."""
    return SearchHit(
        kind="learning",
        id=learning.id,
        type=learning.type,
        at=learning.created_at,
        session_id=learning.session_id,
        turn_id=learning.source_observation_id,
        text=_cut(learning.content, weights or {}),
        superseded_by=learning.superseded_by,
        origin=learning.origin,
        project=learning.project,
        unverified=learning.is_unverified,
    )


def turn_hit(turn: Observation, weights: Mapping[str, float] | None = None, *, wide: bool = False) -> SearchHit:
    """Convert a turn to a hit. Long turns show the passage with the most weight (by stems), longer if `wide`."""
    return SearchHit(
        kind="turn",
        id=turn.id,
        type="TURN",
        at=turn.timestamp,
        session_id=turn.session_id,
        turn_id=turn.id,
        text=_shown(turn, weights or {}, wide=wide),
        project=turn.project,
    )


def _shown(turn: Observation, weights: Mapping[str, float], *, wide: bool) -> str:
    text = ""
    begins: list[tuple[int, str]] = []
    asker = "User" if turn.asked_by is None else f"Program {turn.asked_by}"
    for name, part in ((asker, turn.user_message), ("Agent", turn.agent_response), ("Tools", _tools(turn))):
        if part:
            text += "\n" if text else ""
            begins.append((len(text), f"{name}: "))
            # JSON can hold half of a surrogate pair, the wire format cannot.
            text += f"{name}: {set_in(part.encode('utf-8', 'replace').decode())}"
    return _cut(text, weights, begins, wide=wide)


def _cut(
    text: str, weights: Mapping[str, float], begins: Sequence[tuple[int, str]] = ((0, ""),), *, wide: bool = False
) -> str:
    if len(text) <= (AROUND_CHARS if wide else SNIPPET_CHARS):
        return text
    start, end = best_passage(text, weights, AROUND_CHARS if wide else PASSAGE_CHARS, index_stems)
    # Name the speaker of a cut passage, too.
    begin, name = max(begin for begin in begins if begin[0] <= start)
    whose = f"{name}{CUT}" if start > begin else ""
    return f"{whose}{text[start:end].strip()}{CUT if end < len(text) else ''}"


def _tools(turn: Observation) -> str:
    logged: Any = turn.tool_calls  # any JSON, if another program wrote it
    calls = [call for call in logged if isinstance(call, dict)] if isinstance(logged, list) else []
    return "; ".join(
        " ".join(_plain(call[key]) for key in ("name", "input", "result") if call.get(key)) for call in calls
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


DEFAULT_LIMIT = 10
MAX_LIMIT = 100
#: Turns shown on each side of `around:<turn>`.
AROUND = 5
#: Multiple of the limit that is ranked in full. On LoCoMo the 50 turns with most of the words, with their neighbours,
#: contained every result of a full ranking.
POOL = 3
MIN_POOL = 30
#: A learning with this share of its turn's match counts as equal: a turn has more words for the same.
SAYS_AS_MUCH = 0.7
#: Distance within which a turn without the question's words may be the answer to one that has them.
NEAR = 2
#: A learning without evidence (confidence 0.1) counts 0.64, one that quotes the user (0.9) counts 0.96.
CONFIDENCE = 0.4
#: Factor for a superseded learning, relative to its replacement.
SUPERSEDED = 0.4
#: From this many words on it is a question, which a turn may answer without any of them. Fewer words must occur in the
#: turn.
QUESTION_WORDS = 3
#: The speaker stands before the first colon of a turn, within this many characters.
OPENING_CHARS = 80

#: Projects compared with a folder's name, and projects listed if none matches.
MOST_PROJECTS, PROJECTS_NAMED = 1_000, 8

#: Scores are compared to nine digits.
TIE_BREAK = 2e-9

TURN = "TURN"
#: Origin of the learnings that rest on the person's own words.
PERSON = "user"


async def search(
    transcript: TranscriptDB,
    memory: MemoryDB,
    text: str,
    limit: int = DEFAULT_LIMIT,
    names: frozenset[str] = frozenset(),
    *,
    project: str | None = None,
    own_project: str | None = None,
    meaning: Meaning | None = None,
) -> Found:
    """Return hits for a question in natural language, best first; `limit` is clamped to 1 to 100.

    `names` are the words of the user's name. `project` is a filter, as in the question.
    `own_project` is the key that means the user's own memory.
    """
    limit = max(1, min(limit, MAX_LIMIT))
    # Without a fixed offset each date gets its own. With November's offset, July would begin an hour late.
    query = parse_query(text, datetime.now(), names)  # noqa: DTZ005
    if project is not None:
        query = replace(query, project=project)
    notes: tuple[str, ...] = ()
    near = NOTHING_NEAR
    reach: tuple[str, ...] = ()
    if meaning is not None and query.around is None and len(query.text.split()) >= QUESTION_WORDS:
        near, reach = await meaning.near(query.text)
    if query.project is not None:
        known = [key for key, _, _ in await transcript.projects(MOST_PROJECTS)]
        query = replace(query, projects=projects_meant(query.project, known, own_project))
        if not query.projects and query.around is None:
            through, waiting = await transcript.reach()
            return Found([], through, waiting, (_no_such_project(query.project or "", known),))
    if query.around is not None:
        weights = _weights(query, {})
        around = await transcript.conversation(query.around, AROUND, AROUND)
        hits = [turn_hit(turn, weights, wide=turn.id == query.around) for turn in around]
        if not hits:
            notes = (f"There is no turn {query.around}.",)
    else:
        hits = await _hits(transcript, memory, query, limit, near)
        if not hits:
            notes = await _emptying(transcript, memory, query)
    undone = await transcript.curations.undone({hit.turn_id for hit in hits if hit.turn_id is not None})
    for hit in hits:
        hit.undone = hit.turn_id in undone
    through, waiting = await transcript.reach()
    return Found(hits, through, waiting, (*notes, *reach))


def projects_meant(given: str, known: Sequence[str], own: str | None) -> tuple[str, ...]:
    """Return the keys that a name can mean: the exact key, else all projects with that folder name."""
    wanted = given.rstrip("/\\") or given
    if wanted == own:
        return (OWN,)
    if wanted in known:
        return (wanted,)
    keys = [*known, *([own] if own is not None else [])]
    meant = [key for key in keys if re.split(r"[/\\:]", key)[-1].removesuffix(".git").casefold() == wanted.casefold()]
    return tuple(OWN if key == own else key for key in meant)


def _no_such_project(given: str, known: Sequence[str]) -> str:
    named = ", ".join(known[:PROJECTS_NAMED]) + (", …" if len(known) > PROJECTS_NAMED else "")
    return f"There is no project {given[:200]!r} in memory; {f'there are {named}' if known else 'there is none yet'}."


async def _hits(
    transcript: TranscriptDB, memory: MemoryDB, query: Query, limit: int, near: Near = NOTHING_NEAR
) -> list[SearchHit]:
    """Return the search hits for a parsed query: ranked for words, the newest for filters alone."""
    if query.needles:
        return await _fitting(transcript, memory, query, limit, near)
    if query.empty:
        return []
    return await _newest(transcript, memory, query, limit)


async def _emptying(transcript: TranscriptDB, memory: MemoryDB, query: Query) -> tuple[str, ...]:
    """Return a note if the query has hits only without its filters."""
    bare = replace(query, types=(), session=None, since=None, before=None, project=None, projects=None)
    if bare != query and await _hits(transcript, memory, bare, 1):
        return ("No hit passes the filters; without them there are hits.",)
    return ()


async def _newest(transcript: TranscriptDB, memory: MemoryDB, query: Query, limit: int) -> list[SearchHit]:
    """Return the newest items that pass the query's filters, for a query without words."""
    turns, learnings = _wanted(query)
    hits: list[SearchHit] = []
    if learnings is not None:
        learned = await memory.ask(lambda look: look.learnings(look.newest(learnings, limit)))
        hits += map(learning_hit, learned.values())
    if turns is not None:
        newest = await transcript.ask(lambda look: look.newest(turns, limit))
        hits += map(turn_hit, (await transcript.observations_of(newest)).values())
    return sorted(hits, key=lambda hit: (-hit.at, hit.kind, -hit.id))[:limit]


def _wanted(query: Query) -> tuple[Filters | None, Filters | None]:
    """Return the query's filters for (turns, learnings), or None in place of a kind that the query excludes."""
    kinds = tuple(kind for kind in query.types if kind != TURN)
    turns = query.filters if not query.types or TURN in query.types else None
    learnings = replace(query.filters, types=kinds) if not query.types or kinds else None
    return turns, learnings


async def _fitting(transcript: TranscriptDB, memory: MemoryDB, query: Query, limit: int, near: Near) -> list[SearchHit]:
    turns, learnings = _wanted(query)
    pool = max(MIN_POOL, POOL * limit)
    # A learning leads to its turn even if only turns are wanted.
    fitting = learnings or replace(query.filters, types=())
    learned, scores, trusted = await memory.ask(lambda look: _learnings(look, query, fitting, pool))
    said = Said({}, {}, {}, {})
    if turns is not None:
        cited = _cited(learned, scores)
        said = await transcript.ask(lambda look: _turns(look, query, cited, pool, near))
    ranked = [Ranked(score, False, said.at[turn], turn, turn) for turn, score in said.scores.items()]
    if learnings is not None:
        ranked += [_ranked(learning, scores[learning.id], said) for learning in learned.values()]
    ranked.sort(key=lambda hit: (-round(hit.score, 9), not hit.learned, -hit.at, -hit.id))
    chosen = _one_a_turn(ranked, limit)
    chosen = _in_trusted_order(chosen, trusted, said, is_cut=len(ranked) > limit)
    weights = _weights(query, said.weights)
    shown = await transcript.observations_of([hit.id for hit in chosen if not hit.learned])
    return [
        learning_hit(learned[hit.id], weights) if hit.learned else turn_hit(shown[hit.id], weights)
        for hit in chosen
        if hit.learned or hit.id in shown
    ]


def _weights(query: Query, known: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of a query's words by stem and by the index's stem; 1 for a word that `known` lacks."""
    words = {stems([form])[0]: form.strip('"') for needle in query.needles for form in needle}
    weights = {stem: known.get(stem, 1.0) for stem in words}
    return {its: weights[stem] for stem, its in zip(words, index_stems(list(words.values())), strict=True)} | weights


@dataclass(frozen=True, slots=True)
class Said:
    """The turns that match a query: their scores, their own share of the question, and their times."""

    scores: dict[int, float]
    own: dict[int, float]
    at: dict[int, float]
    #: The weights of the question's words by stem.
    weights: dict[str, float]


class Ranked(NamedTuple):
    """A matching learning or turn with its score; `turn` is the turn itself, or the one that the learning cites."""

    score: float
    learned: bool
    at: float
    id: int
    turn: int | None


def _cited(learned: Mapping[int, LearningRow], scores: Mapping[int, float]) -> dict[int, float]:
    """Return the turns that learnings cite, each with the score of its best learning."""
    cited: dict[int, float] = {}
    for learning in learned.values():
        turn = learning.source_observation_id
        if turn is not None:
            cited[turn] = max(cited.get(turn, 0.0), scores[learning.id])
    return cited


def _ranked(learning: LearningRow, score: float, said: Said) -> Ranked:
    """Return a learning with its score: its turn's score if it matches as well as the turn, else less in proportion."""
    # A learning summarises its turn, so it shares the score that the turn gains from its conversation.
    turn = learning.source_observation_id
    if turn in said.scores and turn is not None and learning.superseded_by is None:
        share = score / (SAYS_AS_MUCH * said.own[turn] or 1e-9)
        score = max(score, said.scores[turn] * min(1.0, share))
    return Ranked(score, True, learning.created_at, learning.id, turn)


def _one_a_turn(ranked: Sequence[Ranked], limit: int) -> list[Ranked]:
    """Return the best hits; if room is short, several hits of one turn give way to other turns."""
    seen: set[int] = set()
    again: list[bool] = []
    for hit in ranked:
        again.append(hit.turn in seen)
        if hit.turn is not None:
            seen.add(hit.turn)
    places = sorted(range(len(ranked)), key=lambda place: again[place])[:limit]
    return [ranked[place] for place in sorted(places)]


def _in_trusted_order(chosen: Sequence[Ranked], trusted: Sequence[int], said: Said, *, is_cut: bool) -> list[Ranked]:
    """Return the hits, with the trusted learnings among them in the order of their own scores.

    If room is short, the turn of a learning that came too early for this order takes its place.
    """
    places = {key: place for place, key in enumerate(trusted)}
    last = 0
    hits: dict[Ranked, None] = {}
    for hit in chosen:
        if hit.learned and (place := places.get(hit.id)) is not None:
            if is_cut and place < last and hit.turn is not None and hit.turn in said.scores:
                hits[Ranked(said.scores[hit.turn], False, said.at[hit.turn], hit.turn, hit.turn)] = None
                continue
            last = max(last, place)
        hits[hit] = None
    ordered = iter(sorted((hit for hit in hits if hit.learned and hit.id in places), key=lambda hit: places[hit.id]))
    return [next(ordered) if hit.learned and hit.id in places else hit for hit in hits]


# --- learnings ---


def _learnings(
    look: LearningLook, query: Query, filters: Filters, pool: int
) -> tuple[dict[int, LearningRow], dict[int, float], list[int]]:
    """Return matching learnings, their scores, and the order of those with origin `user`, scored among themselves."""

    def scored(index: Index) -> tuple[dict[int, LearningRow], dict[int, float]]:
        return _scored(look, look.look_up(index, query.needles, filters, pool), pool)

    learned, scores = scored(TRUSTED)
    others, other_scores = scored(UNTRUSTED)
    learned |= others
    if filters == Filters():
        _add_replacements(look, learned)
    trusted = {key: learning for key, learning in learned.items() if learning.origin == PERSON}
    best = _valid_first(trusted, scores)
    order = sorted(trusted, key=lambda key: (-round(best[key], 9), -trusted[key].created_at, -key))
    return learned, _valid_first(learned, scores | other_scores), order


def _scored(look: LearningLook, looked: LearningsLooked, pool: int) -> tuple[dict[int, LearningRow], dict[int, float]]:
    """Return the best learnings of one index and their scores."""
    if looked.postings is None:
        # Equal scores keep FTS5's order, which already decided between so many.
        scores = {key: score - place * TIE_BREAK for place, (key, score) in enumerate(looked.best)}
        learned = look.learnings(scores)
    else:
        learned = look.learnings(ranking.have_most(looked.postings, looked.learnings, pool))
        lengths = {key: len(learning.content) for key, learning in learned.items()}
        scores = ranking.score_texts(looked.postings, lengths, looked.learnings)
    return learned, {
        key: scores[key] * (1 - CONFIDENCE + CONFIDENCE * learning.confidence) for key, learning in learned.items()
    }


def _add_replacements(look: LearningLook, learned: dict[int, LearningRow]) -> None:
    """Add the replacements of superseded learnings: they answer the question in any words."""
    while (
        missing := {learning.superseded_by for learning in learned.values() if learning.superseded_by is not None}
        - learned.keys()
    ):
        found = look.learnings(missing)
        if not found:
            return
        learned |= found


def _valid_first(learned: Mapping[int, LearningRow], scores: Mapping[int, float]) -> dict[int, float]:
    """Return scores in which a learning's replacement scores at least as much, and the replaced learning less."""
    ranked = {**dict.fromkeys(learned, 0.0), **scores}
    # A replacement has a higher id than the learning it replaces.
    for key in sorted(learned):
        by = learned[key].superseded_by
        if by in learned and by is not None:
            ranked[by] = max(ranked[by], ranked[key])
    for key in sorted(learned, reverse=True):
        by = learned[key].superseded_by
        if by is not None:
            ranked[key] = SUPERSEDED * min(ranked[key], ranked.get(by, ranked[key]))
    return ranked


# --- turns ---


def _turns(look: TurnLook, query: Query, cited: Mapping[int, float], pool: int, meant: Near) -> Said:
    """Return the turns that match the query, with scores. `cited` are the scores of learnings by the turn they cite."""
    needles = query.needles
    looked = look.look_up(needles, query.filters)
    words = ranking.weigh(looked.postings, looked.turns, looked.means, query.asking)
    own_words = ranking.seeds(words)
    anchors = ranking.with_neighbours(ranking.best(own_words, pool), NEAR)
    when = query.when
    if when.since is not None:
        period = set(look.newest(Filters(when.since, when.before), MAX_POSTINGS))
        anchors.update(ranking.best({turn: own_words[turn] for turn in own_words.keys() & period}, pool))
    anchors.update(ranking.best(cited, pool))
    anchors.update(by_meaning := meant.pool(look, query.filters, pool))
    outlines = look.outlines(ranking.with_neighbours(anchors, ranking.REACH), query.filters)
    counts = ranking.presence(words, outlines)
    scores = ranking.score_turns(words, counts, anchors, outlines)
    own = ranking.own_shares(words, scores)
    lifts = ranking.lifts(cited, own)
    asked = len(looked.postings) >= QUESTION_WORDS
    fitting = [turn for turn in scores if scores[turn] + lifts[turn] and (asked or own[turn] or turn in cited)]
    candidates = ranking.best({turn: scores[turn] + lifts[turn] for turn in fitting}, pool)
    candidates += [turn for turn in by_meaning if turn in outlines and turn not in candidates]
    counted = look.counts(
        needles, [found.turns for found in looked.postings], ranking.worth_counting(candidates, outlines)
    )
    near = {turn: outlines[turn] for turn in ranking.with_neighbours(candidates, ranking.REACH) & outlines.keys()}
    counts = [present | exact for present, exact in zip(ranking.presence(words, near), counted, strict=True)]
    scores = ranking.score_turns(words, counts, candidates, near)
    subject = ranking.score_subject(words, candidates, outlines)
    openings = look.openings(candidates, OPENING_CHARS)
    named = _speakers_named(query, openings)
    # Position does not change how well words match; among equals the newest comes first.
    words_of = {o.id: (o.user_message, o.agent_response, outlines[o.id][3:]) for o in openings}
    best: dict[tuple[str, str, tuple[int, int]], float] = {}
    for turn, said in words_of.items():
        best[said] = max(scores[turn] + subject[turn], best.get(said, 0.0))
    ranked = {
        turn: (best[said] + lifts[turn]) * ranking.standing(outlines[turn], looked.means, named=turn in named)
        for turn, said in words_of.items()
    }
    if when.since is not None and when.before is not None:
        for turn in ranked:
            ranked[turn] *= ranking.IN_TIME if when.since <= outlines[turn].at < when.before else 1.0
    for turn in ranked:
        ranked[turn] += meant.term(outlines[turn], named=turn in named)
    weights = {stem: value for needle, value in zip(needles, words.weights, strict=True) for stem in stems(needle)}
    return Said(ranked, own, {turn: outlines[turn].at for turn in ranked}, weights)


def _speakers_named(query: Query, openings: Iterable[Opening]) -> set[int]:
    """Return the turns that begin with a speaker's name and a colon, if the query contains the name."""
    names = "|".join(re.escape(term) for term in query.terms)
    speaks = re.compile(rf"(?<!\w)(?:{names})(?!\w)[^:\n.?!]{{0,20}}:(?![\w/])")
    return {
        opening.id
        for opening in openings
        if speaks.search(opening.user_message.casefold()) or speaks.search(opening.agent_response.casefold())
    }
