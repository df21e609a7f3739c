"""Plan the changes of a forget to the log, before anything is written."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sprite.common.tasks import Breaks
from sprite.curation.answer import parse_response
from sprite.curation.provenance.evidence import text_of
from sprite.errors import PeerError
from sprite.forget.scrub import ActionScrubber, Scrubber, map_strings, rule_without, scrubbed_answer
from sprite.forget.statements import Statement, Statements, core, statement
from sprite.log.curations import Curation
from sprite.log.transcript import Observation, TranscriptDB
from sprite.memory.database import MemoryDB
from sprite.memory.files import CURATED, template
from sprite.memory.words import FORGOTTEN, content_words, plain, words_of
from sprite.protocol.pasted import Marked
from sprite.protocol.shapes import LearningRow, Place
from sprite.storage.connection import to_json

#: Rows per read of the whole log.
CHUNK = 100
#: Shorter texts would match everywhere.
SHORTEST_TEXT = 3
#: A message with fewer content words ("yes, go on") is not specific and stays in other turns.
OWN_SENTENCE_WORDS = 4
#: A shorter quote could mean anything outside of its turn.
OWN_PHRASE_WORDS = 3
#: Characters of a removed text that a report shows.
MOST_SHOWN_CHARS = 300

#: The fields of a tool call with text; its name and ids have none.
_SPOKEN = ("input", "result")
_PIECES = re.compile(r"(?<=[.!?])\s+|\n+")
_CARD_ID = re.compile(r'"card_id": ?"([^"]+)"')
_Row = TypeVar("_Row", LearningRow, Observation, Curation)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a forget, as a person names it: exactly one field is set."""

    text: str | None = None
    turn: int | None = None
    session: str | None = None
    learning: int | None = None

    @property
    def by(self) -> str:
        """Return the name of the field that is set. PeerError unless it is exactly one."""
        given = [name for name in ("text", "turn", "session", "learning") if getattr(self, name) is not None]
        if len(given) != 1:
            raise PeerError("Name exactly one of text, turn, session or learning to forget.")
        return given[0]


@dataclass(slots=True)
class Plan:
    """The planned changes of a forget: new rows of turns and curations by id. `whole_turns` lose all their content."""

    by: str
    scrubber: Scrubber
    #: The scrubber of turns that taught a forgotten learning, which also lose a quote that is too short to stand for it
    #: elsewhere.
    at_source: Scrubber
    sources: frozenset[int] = frozenset()
    #: Turns that taught remaining learnings.
    teaching: frozenset[int] = frozenset()
    #: The session that loses all its turns.
    session: str | None = None
    whole_turns: set[int] = field(default_factory=set)
    observations: dict[int, Observation] = field(default_factory=dict)
    curations: dict[int, str] = field(default_factory=dict)
    emptied_missions: set[str] = field(default_factory=set)
    source_missions: set[str] = field(default_factory=set)
    cards: set[str] = field(default_factory=set)
    #: Cards that changed turns drew.
    drawn: set[str] = field(default_factory=set)
    #: The forgotten learnings by number, and the lines typed by a person.
    gone: dict[int, str] = field(default_factory=dict)
    typed: set[str] = field(default_factory=set)
    #: All removed texts.
    places: dict[Place, None] = field(default_factory=dict)
    lines: int = 0
    #: Whether the log has changed by this plan.
    is_done: bool = False

    def summary(self) -> dict[str, Any]:
        """Return the counts for a preview and the tombstone, without any forgotten text."""
        return {
            "by": self.by,
            "turns": sorted(self.observations),
            "learnings": len(self.gone),
            "curations": len(self.curations),
            "lines": self.lines,
            "cards": len(self.cards),
        }

    def again(self) -> Plan:
        """Return a plan for the same target without any changes yet."""
        return Plan(
            self.by, self.scrubber, self.at_source, self.sources, self.teaching, self.session, set(self.whole_turns)
        )

    def take(self, turn: Observation, left: Observation) -> bool:
        """Record the new version of a turn. Return False if it is unchanged."""
        if left == turn:
            return False
        self.observations[turn.id] = left
        where = f"turn {turn.id}"
        self.say(where, turn.user_message, left.user_message)
        self.say(f"{where}, the reply", turn.agent_response, left.agent_response)
        self.say(where, turn.notice, left.notice)
        after = {call.get("tool_use_id"): call for call in left.tool_calls}
        for call in turn.tool_calls:
            rest = after.get(call.get("tool_use_id"), {})
            for part in _SPOKEN:
                if call.get(part) != rest.get(part):
                    self.say(f"{where}, {call.get('name', 'a tool')}", text_of(call.get(part)), text_of(rest.get(part)))
        return True

    def note(self, curation: Curation, response: str) -> None:
        """Record the new text of a curation, such as an answer, an edit or an action change."""
        self.curations[curation.id] = response
        before, after = _edited(curation), _edited(replace(curation, response=response))
        kinds = {"learning": "your word on a learning", "rule": "a rule", "action": "an action"}
        if before is not None:
            how = "changed while the agent was at work" if curation.kind == "drift" else "edited by hand"
            where = f"{json.loads(curation.response).get('name')}, {how}"
        elif curation.kind in kinds:
            where = kinds[curation.kind]
            before, after = _action_words(curation.response), _action_words(response)
        else:
            where, before, after = f"entry {curation.id} of the log", curation.response, response
        self.say(where, before, after or "")
        self.lines += _line_count(before) - _line_count(after or "")

    def say(self, where: str, before: str, after: str) -> None:
        """Compare two versions of a text; record each removed sentence, line or marked part for the preview."""
        if (parts := _parts_lost(before, after)) is not None:
            for part in parts:
                self.tell(where, part)
            return
        left = Counter(_pieces(after))
        for piece in _pieces(before):
            if left[piece]:
                left[piece] -= 1
            elif piece:
                self.tell(where, piece)

    def tell(self, where: str, text: str) -> None:
        """Record one text that is removed, for the preview; `where` is its place."""
        self.places[Place(where, text[:MOST_SHOWN_CHARS])] = None

    def empty(self, turn: Observation) -> None:
        """Remove a turn's whole content and its drawings."""
        self.whole_turns.add(turn.id)
        self.take(
            turn,
            replace(
                turn,
                user_message=FORGOTTEN if turn.user_message else "",
                agent_response=FORGOTTEN if turn.agent_response else "",
                tool_calls=[],
                notice="",
                pasted=(),
            ),
        )
        if turn.mission_id:
            self.emptied_missions.add(turn.mission_id)
        self.cards |= _cards_drawn(turn)


#: Times that a plan reads every turn, by what it forgets; a survey reads them once.
PASSES = {"text": 1, "learning": 2, "turn": 2, "session": 2}
#: Called for each turn that was searched.
Step = Callable[[], object]


async def plan(target: Target, transcript: TranscriptDB, memory: MemoryDB, step: Step = lambda: None) -> Plan:
    """Plan the changes to the log and memory. PeerError if the target does not exist."""
    by = target.by
    learnings = [row async for row in all_rows(memory.learnings)]
    if by == "text":
        text = target.text or ""
        if len(text.strip()) < SHORTEST_TEXT:
            raise PeerError(f"A text to forget needs at least {SHORTEST_TEXT} characters.")
        made = Plan("text", scrubber := Scrubber(text), scrubber)
    elif by == "learning":
        if (learning := await memory.learning(target.learning or 0)) is None:
            raise PeerError(f"There is no learning {target.learning}.", code="not_found")
        made = await _plan_learning(learning, learnings, transcript, step)
    else:
        if target.turn is None:
            turns = await transcript.observations_of_session(target.session or "")
        else:
            turns = list((await transcript.observations_of([target.turn])).values())
        made = await _plan_turns(by, turns, transcript, learnings, step)
        made.session = target.session
    await survey(made, transcript, memory, step)
    return made


async def survey(made: Plan, transcript: TranscriptDB, memory: MemoryDB, step: Step) -> None:
    """Add the new version of every row that contains the target to the plan."""
    made.typed = {line.strip() async for lines in _typed(transcript) for line in lines}
    async for row in all_rows(memory.learnings):
        if made.scrubber.takes_learning(row.content, row.source_observation_id):
            made.gone[row.id] = row.content
    async for turn in all_rows(transcript.observations_after):
        step()
        _take(made, turn)
    actions = ActionScrubber(made.scrubber, made.emptied_missions, made.gone)
    async for curation in all_rows(transcript.curations.after):
        if curation.kind == "learning":
            response = scrubbed_answer(curation.response, made.scrubber, made.gone)
        elif curation.kind == "action":
            response = actions.row(curation.id, curation.response)
        elif curation.kind == "rule":
            response = rule_without(curation.response, made.scrubber)
        else:
            response = _scrubbed_response(curation, made.scrubber, made.typed)
        if response != curation.response:
            made.note(curation, response)


def _take(made: Plan, turn: Observation) -> None:
    """Plan the changes to one turn."""
    if turn.id in made.whole_turns:
        made.empty(turn)
        return
    is_source = turn.id in made.sources
    if is_source and turn.mission_id:
        made.source_missions.add(turn.mission_id)
    scrub = (made.at_source if is_source else made.scrubber).sentences
    asked = Marked(turn.user_message, turn.pasted).rewritten(scrub(turn.user_message))
    left = replace(
        turn,
        user_message=asked.text,
        pasted=asked.pasted,
        agent_response=scrub(turn.agent_response),
        tool_calls=[{**call, **map_strings({k: call.get(k) for k in _SPOKEN}, scrub)} for call in turn.tool_calls],
        notice=scrub(turn.notice),
    )
    if made.take(turn, left):
        made.drawn |= _cards_drawn(turn)
    elif is_source and turn.id not in made.teaching and not any(FORGOTTEN in text for text in _texts(turn)):
        # The source words of the learning are unknown. A later extraction would learn it again, so the turn is emptied.
        made.empty(turn)


# --- turns ---


async def _plan_turns(
    by: str, turns: list[Observation], transcript: TranscriptDB, learnings: Sequence[LearningRow], step: Step
) -> Plan:
    if not turns:
        raise PeerError(f"There is no such {by}.", code="not_found")
    ids = {turn.id for turn in turns}
    taught, lines = await _answers(transcript)
    elsewhere = {core(each.content) for each in taught if each.turn not in ids}
    stays = [each for each in learnings if each.source_observation_id not in ids or core(each.content) in elsewhere]
    gone = [each for each in taught if each.turn in ids and core(each.content) not in elsewhere]
    others = {core(line.content) for line in lines if line.turn not in ids}
    resting = [line.content for line in lines if line.turn in ids and core(line.content) not in others]
    messages = {text.strip() for turn in turns for text in (turn.user_message, turn.agent_response)}
    whole = Statements(statement(text) for text in messages if len(content_words(text)) >= OWN_SENTENCE_WORDS)
    learned = Statements(statement(each.content) for each in gone)
    words = words_of(text for turn in turns for text in _texts(turn)) - await _others_words(ids, taught, transcript)
    repeated: set[Statement] = set()
    async for other in all_rows(transcript.observations_after):
        step()
        if other.id not in ids:
            texts = _texts(other)
            words -= words_of(texts)
            # Other turns keep a message that they contain, and a learning that the person repeats there.
            repeated.update(each for text in texts for each in whole.found(text))
            repeated |= learned.found(other.user_message).keys()
    scrubber = Scrubber(
        statements={*whole.all, *learned.all} - repeated,
        stays=[each.content for each in stays],
        lines=[*(each.content for each in gone), *resting],
        words=words,
        turns=ids,
    )
    return Plan(by, scrubber, scrubber, whole_turns=ids)


async def _others_words(turns: Collection[int], taught: Sequence[_Cited], transcript: TranscriptDB) -> set[str]:
    """Return the words that are never removed, because templates, people's edits or other turns' learnings use them."""
    words = words_of(template(name) for name in CURATED)
    async for lines in _typed(transcript):
        words |= words_of(lines)
    return words.union(*(content_words(each.content) for each in taught if each.turn not in turns))


def _cards_drawn(turn: Observation) -> set[str]:
    """Return the cards that a turn made or changed: earlier versions of them do not exist."""
    drawn = [call for call in turn.tool_calls if str(call.get("name", "")).endswith(("__create_card", "__update_card"))]
    return {card_id for call in drawn for card_id in _CARD_ID.findall(json.dumps(call["input"]) + str(call["result"]))}


# --- a learning ---


async def _plan_learning(
    learning: LearningRow, learnings: Sequence[LearningRow], transcript: TranscriptDB, step: Step
) -> Plan:
    same = core(learning.content)
    taught, lines = await _answers(transcript)
    rows = [_Cited(each.source_observation_id, each.content, each.evidence or "") for each in learnings]
    gone = [each for each in (*rows, *taught) if core(each.content) == same]
    stays = [each for each in rows if core(each.content) != same]
    sources = frozenset(each.turn for each in gone if each.turn is not None)
    quotes = _own_quotes(gone, stays)
    content = statement(learning.content)
    long = [quote for quote in quotes if len(content_words(quote)) >= OWN_PHRASE_WORDS]
    resting = [
        line.content for line in lines if line.turn in sources and core(line.quote) in {core(quote) for quote in quotes}
    ]

    def scrubber(said: Collection[str], words: Collection[str] = ()) -> Scrubber:
        return Scrubber(
            statements=[content, *map(statement, said)],
            stays=[each.content for each in stays],
            lines=[learning.content, *resting],
            words=words,
            sources=sources,
            quotes=quotes,
        )

    words = set(content_words(learning.content)) - words_of(each.content for each in stays)
    words -= await _others_words(sources, taught, transcript)
    words = await _words_of_its_own(words, scrubber(long), scrubber(quotes), sources, transcript, step)
    teaching = frozenset(each.turn for each in (*rows, *taught) if each.turn and core(each.content) != same)
    return Plan("learning", scrubber(long, words), scrubber(quotes, words), sources, teaching)


def _own_quotes(gone: Sequence[_Cited], stays: Sequence[_Cited]) -> list[str]:
    """Return the removed quotes of forgotten learnings: not those with the learning's words that another one shares."""
    kept, others = Statements(statement(each.content) for each in stays), {core(each.quote) for each in stays}
    content = Statements([statement(gone[0].content)])
    quotes = dict.fromkeys(each.quote for each in gone if each.quote)
    return [each for each in quotes if not content.spans(each) or not (core(each) in others or kept.spans(each))]


async def _words_of_its_own(
    words: set[str],
    scrubber: Scrubber,
    at_source: Scrubber,
    sources: Collection[int],
    transcript: TranscriptDB,
    step: Step,
) -> set[str]:
    """Return those of a learning's words that no other text of people or turns contains."""
    async for turn in all_rows(transcript.observations_after):
        step()
        texts = _texts(turn)
        visible = plain("\n".join(texts))
        if not any(word in visible for word in words):
            continue
        if turn.id in sources:
            texts = [at_source.sentences(turn.user_message)]
        elif any(scrubber.stands_in(text) for text in texts):
            texts = [scrubber.sentences(turn.user_message)]
        words = words - words_of(text.replace(FORGOTTEN, "") for text in texts)
    return words


# --- curations ---


def _scrubbed_response(curation: Curation, scrubber: Scrubber, typed: Collection[str]) -> str:
    if curation.kind == "batch":
        return scrubber.answer(curation.response, keep=typed)
    content = _edited(curation)
    if curation.kind == "quarantine":
        return _scrubbed_verdict(curation, scrubber)
    if content is None:
        return scrubber.text(curation.response)
    # A person's text goes only if it has the exact words, not similar ones.
    kept = scrubber.lines(content, keep=typed)
    if kept == content and not scrubber.finds(curation.response):
        return curation.response
    return json.dumps(scrubber.value({**json.loads(curation.response), "content": kept}), ensure_ascii=False)


def _scrubbed_verdict(curation: Curation, scrubber: Scrubber) -> str:
    """Scrub the reason for a quarantine: the model's refusal may quote the turn."""
    said = json.loads(curation.response)
    reason = said.get("reason", "")
    if not reason or not (curation.first_observation_id in scrubber.turns or scrubber.takes_line(reason)):
        return curation.response
    return to_json({**said, "reason": FORGOTTEN})


def _edited(curation: Curation) -> str | None:
    """Return the new file content in an edit or a drift, or None for any other curation."""
    if curation.kind not in {"edit", "drift"}:
        return None
    try:
        edit = json.loads(curation.response)
    except ValueError:
        return None
    content = edit.get("content") if isinstance(edit, dict) else None
    return content if isinstance(content, str) else None


@dataclass(frozen=True, slots=True)
class _Cited:
    """A learning or a line of a file, with the turn and the quote that it rests on."""

    turn: int | None
    content: str
    quote: str


async def _answers(transcript: TranscriptDB) -> tuple[list[_Cited], list[_Cited]]:
    """Return every learning and every line with a citation in the curator's answers."""
    learned, lines = list[_Cited](), list[_Cited]()
    async for curation in all_rows(transcript.curations.after):
        if curation.kind == "batch":
            answer = parse_response(curation.response)
            learned.extend(_Cited(each.turn_id, each.content, each.quote or "") for each in answer.learnings)
            edits = (edit for edits in answer.edits.values() for edit in edits)
            lines.extend(_Cited(line.turn_id, line.text, line.quote or "") for edit in edits for line in edit.lines)
    return learned, lines


async def _typed(transcript: TranscriptDB) -> AsyncIterator[list[str]]:
    """Yield the lines of each edit that were typed by a person, not by an earlier curator."""
    curated: set[str] = set()
    async for curation in all_rows(transcript.curations.after):
        if curation.kind == "batch":
            curated.update(line.strip() for line in curation.response.split("\n"))
        elif curation.kind == "edit" and (content := _edited(curation)) is not None:
            yield [line for line in content.split("\n") if line.strip() and line.strip() not in curated]


def _action_words(response: str) -> str:
    """Return the text of a row about an action, a learning or a rule, one item per line."""
    try:
        row = json.loads(response)
    except ValueError:
        return response
    said = [
        part.get(name)
        for part in (row, row.get("rule"), row.get("of"))
        if isinstance(part, dict)
        for name in ("content", "note", "what", "words", "reason", "quote")
    ]
    return "\n".join(text for text in said if isinstance(text, str))


def _line_count(text: str) -> int:
    return sum(bool(line.strip()) and FORGOTTEN not in line for line in text.split("\n"))


def _parts_lost(before: str, after: str) -> list[str] | None:
    """Return the parts of `before` that FORGOTTEN marks replace in `after`, or None if the texts differ otherwise."""
    first, *rest = after.split(FORGOTTEN)
    if not rest or not before.startswith(first) or not before.endswith(rest[-1]):
        return None
    parts, at = [], len(first)
    for number, kept in enumerate(rest, start=1):
        found = before.find(kept, at) if number < len(rest) else len(before) - len(kept)
        if found < at:
            return None
        parts += _pieces(before[at:found])
        at = found + len(kept)
    return parts


def _pieces(text: str) -> list[str]:
    """Return the sentences and lines of a text, without marks of forgotten ones."""
    return [piece.strip() for piece in _PIECES.split(text) if piece.strip() and piece.strip() != FORGOTTEN]


# --- iteration in chunks ---


async def all_rows(rows_after: Callable[[int, int], Awaitable[Sequence[_Row]]]) -> AsyncIterator[_Row]:
    """Yield all rows, in chunks of which each begins after an id."""
    cursor, breaks = 0, Breaks()
    while rows := await rows_after(cursor, CHUNK):
        for row in rows:
            yield row
            await breaks.take()
        cursor = rows[-1].id


def _texts(turn: Observation) -> list[str]:
    spoken = (text_of(call.get(name)) for call in turn.tool_calls for name in _SPOKEN)
    return [turn.user_message, turn.agent_response, turn.notice, *spoken]
