"""What a forget touches in the log, and what is left of it: planning and scrubbing, before anything is written.

Reads the log and the projection. Who may forget, and everything outside the log, is for `forget.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sprite.database.connection import to_json
from sprite.database.curations import Curation
from sprite.database.memory import Learning, MemoryDB
from sprite.database.transcript import (
    Observation,
    TranscriptDB,
)
from sprite.errors import PeerError
from sprite.memory.curation.answer import (
    ParsedLearning,
    parse_response,
)
from sprite.memory.files import CURATED, template
from sprite.memory.forgetting.actions import ActionScrubber
from sprite.memory.forgetting.scrub import (
    Scrubber,
    map_strings,
)
from sprite.memory.projection.voices import text_of
from sprite.memory.unkept import read_all
from sprite.memory.words import FORGOTTEN, content_words, said, share, words_of

#: Rows read at once while the whole log is looked through.
CHUNK = 500
#: Shorter texts would be found in the middle of everything.
SHORTEST_TEXT = 3
#: A message with fewer meaning-carrying words ("yes, go on") is not specific, and stays where others said it.
OWN_SENTENCE_WORDS = 4
#: A turn that has this part of a learning's words is about it.
ABOUT_IT = 0.5
#: Learnings that share this part of their words could be taken for one another.
ALIKE = 0.3

#: The strings of a tool call that carry words; its name and ids do not.
_SPOKEN = ("input", "result")
_CARD_ID = re.compile(r'"card_id": ?"([^"]+)"')
_Row = TypeVar("_Row", Learning, Observation, Curation)


@dataclass(frozen=True, slots=True)
class Target:
    """What a person wants forgotten: exactly one of these is set."""

    text: str | None = None
    turn: int | None = None
    session: str | None = None
    learning: int | None = None

    @property
    def by(self) -> str:
        """The name of what is set. PeerError unless it is exactly one."""
        given = [name for name in ("text", "turn", "session", "learning") if getattr(self, name) is not None]
        if len(given) != 1:
            raise PeerError("Name exactly one of text, turn, session or learning to forget.")
        return given[0]


@dataclass(slots=True)
class Plan:
    """What will go: rows as they will be, by id. `whole_turns` lose everything they hold."""

    by: str
    scrubber: Scrubber
    whole_turns: set[int] = field(default_factory=set)
    observations: dict[int, Observation] = field(default_factory=dict)
    curations: dict[int, str] = field(default_factory=dict)
    missions: set[str] = field(default_factory=set)
    emptied_missions: set[str] = field(default_factory=set)
    cards: set[str] = field(default_factory=set)
    learnings: int = 0
    lines: int = 0

    def summary(self) -> dict[str, Any]:
        """In numbers, as a preview and as the tombstone: nothing of what was forgotten is in it."""
        return {
            "by": self.by,
            "turns": sorted(self.observations),
            "learnings": self.learnings,
            "curations": len(self.curations),
            "lines": self.lines,
            "cards": len(self.cards),
        }

    def empty(self, turn: Observation) -> None:
        """Takes everything that a turn holds, and what it drew."""
        self.whole_turns.add(turn.id)
        self.observations[turn.id] = replace(
            turn,
            user_message=FORGOTTEN if turn.user_message else "",
            agent_response=FORGOTTEN if turn.agent_response else "",
            tool_calls=[],
            notice="",
            unkept={},
        )
        if turn.mission_id:
            self.missions.add(turn.mission_id)
            self.emptied_missions.add(turn.mission_id)
        self.cards |= _cards_drawn(turn)


async def plan(target: Target, transcript: TranscriptDB, memory: MemoryDB) -> Plan:
    """Finds everything that a forget touches. PeerError if there is nothing to forget."""
    by = target.by
    if by == "text":
        made = await _plan_text(target.text or "", transcript)
    elif by == "learning":
        made = await _plan_learning(target.learning or 0, transcript, memory)
    else:
        made = await _plan_turns(by, await _turns_of(target, transcript), transcript)
    await _add_curations(made, transcript, memory)
    made.learnings = len(await _gone_learnings(made, memory))
    if not made.observations and not made.curations:
        raise PeerError("Nothing in memory matches that.", code="not_found")
    return made


# --- turns ---


async def _turns_of(target: Target, transcript: TranscriptDB) -> list[Observation]:
    if target.turn is not None:
        turn = await transcript.observation(target.turn)
        return [turn] if turn else []
    return await transcript.observations_of_session(target.session or "")


async def _plan_turns(by: str, turns: list[Observation], transcript: TranscriptDB) -> Plan:
    if not turns:
        raise PeerError(f"There is no such {by}.", code="not_found")
    ids = {turn.id for turn in turns}
    words = words_of(text for turn in turns for text in _texts(turn)) - await _others_words(ids, transcript)
    sentences = {text.strip() for turn in turns for text in (turn.user_message, turn.agent_response)}
    own = Scrubber(tuple(text for text in sentences if len(content_words(text)) >= OWN_SENTENCE_WORDS))
    phrases = set(own.phrases)
    async for other in _all_turns(transcript):
        if other.id not in ids:
            texts = _texts(other)
            words -= words_of(texts)
            phrases = {phrase for phrase in phrases if not _stands_in(phrase, texts)}
    made = Plan(by, Scrubber(tuple(phrases), frozenset(ids), frozenset(words)))
    for turn in turns:
        made.empty(turn)
    return made


def _stands_in(phrase: str, texts: Collection[str]) -> bool:
    wanted = " ".join(phrase.split()).casefold()
    return any(wanted in " ".join(text.split()).casefold() for text in texts)


async def _others_words(turns: Collection[int], transcript: TranscriptDB) -> set[str]:
    """Words that stay whichever turn used them too: the files' own, a person's, and what other turns taught."""
    words = words_of(template(name) for name in CURATED)
    async for lines in _typed(transcript):
        words |= words_of(lines)
    async for learning in _learned(transcript):
        if learning.turn_id not in turns:
            words |= content_words(learning.content)
    return words


def _cards_drawn(turn: Observation) -> set[str]:
    """The cards that the turn made or changed: their earlier state is not kept."""
    drawn = [call for call in turn.tool_calls if str(call.get("name", "")).endswith(("__create_card", "__update_card"))]
    return {card_id for call in drawn for card_id in _CARD_ID.findall(json.dumps(call["input"]) + str(call["result"]))}


# --- text ---


async def _plan_text(text: str, transcript: TranscriptDB) -> Plan:
    if len(text.strip()) < SHORTEST_TEXT:
        raise PeerError(f"A text to forget needs {SHORTEST_TEXT} characters at least.")
    made = Plan("text", Scrubber(phrases=(text,)))
    await _replace_phrases(made, transcript)
    return made


async def _replace_phrases(made: Plan, transcript: TranscriptDB) -> None:
    """Every turn that has one of the phrases, as it is without them."""
    scrub = made.scrubber.text
    async for turn in _all_turns(transcript):
        scrubbed = replace(
            turn,
            user_message=scrub(turn.user_message),
            agent_response=scrub(turn.agent_response),
            tool_calls=map_strings(turn.tool_calls, scrub),
            notice=scrub(turn.notice),
            unkept=_unkept_without(turn.unkept, made.scrubber),
        )
        if scrubbed != turn:
            made.observations[turn.id] = scrubbed


def _unkept_without(unkept: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """What of results was never written down, without the hashes of forgotten words."""
    gone = words_of(scrubber.phrases) | scrubber.words
    return {call: kept.without(gone).to_json() for call, kept in read_all(unkept).items()}


# --- a learning ---


async def _plan_learning(learning_id: int, transcript: TranscriptDB, memory: MemoryDB) -> Plan:
    learning = await memory.learning(learning_id)
    if learning is None:
        raise PeerError(f"There is no learning {learning_id}.", code="not_found")
    own = content_words(f"{learning.content} {learning.evidence or ''}")
    sayings = frozenset({said(learning.content)})
    async for other in _all_learnings(memory):
        if said(other.content) not in sayings:
            own -= content_words(other.content)
    texts = (learning.content, learning.evidence or "")
    phrases = tuple(text for text in texts if len(content_words(text)) >= OWN_SENTENCE_WORDS)
    made = Plan("learning", Scrubber(phrases, words=own, sayings=sayings))
    words = content_words(learning.content)
    async for turn in _all_turns(transcript):
        # In turns about it, each sentence that has of it what nothing else has; elsewhere, a word is just a word.
        if turn.id == learning.source_observation_id or share(words, words_of(_texts(turn))) >= ABOUT_IT:
            _take_sentences(made, turn, whole=turn.id == learning.source_observation_id)
    return made


def _take_sentences(made: Plan, turn: Observation, *, whole: bool) -> None:
    scrub = made.scrubber.sentences
    scrubbed = replace(
        turn,
        user_message=scrub(turn.user_message),
        agent_response=scrub(turn.agent_response),
        tool_calls=[{**call, **map_strings({k: call.get(k) for k in _SPOKEN}, scrub)} for call in turn.tool_calls],
        notice=scrub(turn.notice),
        unkept=_unkept_without(turn.unkept, made.scrubber),
    )
    if scrubbed != turn:
        made.observations[turn.id] = scrubbed
        made.cards |= _cards_drawn(turn)
        if turn.mission_id:
            made.missions.add(turn.mission_id)
    elif whole:
        # Nothing says which of its words it was learned from, and a later extraction would find it there again.
        made.empty(turn)


# --- curations ---


async def _add_curations(made: Plan, transcript: TranscriptDB, memory: MemoryDB) -> None:
    """What was learned of it, in every answer and every edit since."""
    if made.by != "text":
        await _tell_apart(made, transcript)
    typed = {line.strip() async for lines in _typed(transcript) for line in lines}
    actions = ActionScrubber(made.scrubber, made.emptied_missions, await _gone_learnings(made, memory))
    async for curation in _all_curations(transcript):
        if curation.kind == "action":
            response = actions.row(curation.id, curation.response)
        else:
            response = _scrubbed(curation, made.scrubber, typed)
        if response != curation.response:
            made.curations[curation.id] = response
            made.lines += _line_count(curation.response) - _line_count(response)


async def _tell_apart(made: Plan, transcript: TranscriptDB) -> None:
    """Which lines of files rest on what goes, and which on something like it that stays."""
    gone: list[str] = []
    stays: list[str] = []
    async for learning in _learned(transcript):
        taken = made.scrubber.takes_learning(learning.content, learning.quote, learning.turn_id)
        (gone if taken else stays).append(learning.content)
    words = [content_words(content) for content in gone]
    spared = [text for text in dict.fromkeys(stays) if any(share(w, content_words(text)) >= ALIKE for w in words)]
    made.scrubber = replace(made.scrubber, contents=tuple(dict.fromkeys(gone)), spared=tuple(spared))


def _scrubbed(curation: Curation, scrubber: Scrubber, typed: Collection[str]) -> str:
    if curation.kind == "batch":
        return scrubber.answer(curation.response, keep=typed)
    content = _edited(curation)
    if curation.kind == "quarantine":
        return _scrubbed_verdict(curation, scrubber)
    if content is None:
        return scrubber.text(curation.response)
    # What a person typed goes only for the very words, not for resembling them.
    kept = scrubber.lines(content, keep=typed)
    if kept == content and not scrubber.finds(curation.response):
        return curation.response
    edit = json.loads(curation.response)
    return json.dumps(scrubber.value({**edit, "content": kept}), ensure_ascii=False)


def _scrubbed_verdict(curation: Curation, scrubber: Scrubber) -> str:
    """Why a turn was set aside: the model's words for what it refused may quote the turn."""
    said = json.loads(curation.response)
    reason = said.get("reason", "")
    if not reason or not (curation.first_observation_id in scrubber.turns or scrubber.takes_line(reason)):
        return curation.response
    return to_json({**said, "reason": FORGOTTEN})


def _edited(curation: Curation) -> str | None:
    """The content that an edit or a drift gave a file, None if it gave none."""
    if curation.kind not in {"edit", "drift"}:
        return None
    try:
        edit = json.loads(curation.response)
    except ValueError:
        return None
    content = edit.get("content") if isinstance(edit, dict) else None
    return content if isinstance(content, str) else None


async def _learned(transcript: TranscriptDB) -> AsyncIterator[ParsedLearning]:
    """Every learning that a curator ever gave."""
    async for curation in _all_curations(transcript):
        if curation.kind == "batch":
            for learning in parse_response(curation.response).learnings:
                yield learning


async def _typed(transcript: TranscriptDB) -> AsyncIterator[list[str]]:
    """The lines of each edit that no curator had written before: the person's own."""
    curated: set[str] = set()
    async for curation in _all_curations(transcript):
        if curation.kind == "batch":
            curated.update(line.strip() for line in curation.response.split("\n"))
        elif curation.kind == "edit" and (content := _edited(curation)) is not None:
            yield [line for line in content.split("\n") if line.strip() and line.strip() not in curated]


def _line_count(text: str) -> int:
    return sum(bool(line.strip()) and FORGOTTEN not in line for line in text.split("\n"))


async def _gone_learnings(made: Plan, memory: MemoryDB) -> dict[int, str]:
    """What the learnings that go say, by their numbers."""
    taken = made.scrubber.takes_learning
    return {
        row.id: row.content
        async for row in _all_learnings(memory)
        if taken(row.content, row.evidence, row.source_observation_id)
    }


# --- everything, some at a time ---


def _all_learnings(memory: MemoryDB) -> AsyncIterator[Learning]:
    return _each(memory.learnings)


def _all_turns(transcript: TranscriptDB) -> AsyncIterator[Observation]:
    return _each(transcript.observations_after)


def _all_curations(transcript: TranscriptDB) -> AsyncIterator[Curation]:
    return _each(transcript.curations.after)


async def _each(rows_after: Callable[[int, int], Awaitable[Sequence[_Row]]]) -> AsyncIterator[_Row]:
    cursor = 0
    while rows := await rows_after(cursor, CHUNK):
        for row in rows:
            yield row
        cursor = rows[-1].id


def _texts(turn: Observation) -> list[str]:
    spoken = (text_of(call.get(name)) for call in turn.tool_calls for name in _SPOKEN)
    return [turn.user_message, turn.agent_response, turn.notice, *spoken]
