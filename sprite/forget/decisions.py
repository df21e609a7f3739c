"""Remove forgotten text from the log's decisions and verifications; all else stays as decided."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from sprite.common.sqlite import LARGEST_ROW_ID
from sprite.common.tasks import Breaks
from sprite.curation.verifier import Verification
from sprite.forget.plan import Plan
from sprite.forget.scrub import Scrubber, text_of
from sprite.log.curations import Curation
from sprite.log.transcript import TranscriptDB
from sprite.memory import decision as effects
from sprite.memory.action_rows import Added, Changed, read_record
from sprite.memory.decision import MADE_IDS, NewLearning
from sprite.memory.words import FORGOTTEN


async def scrub_decisions(made: Plan, transcript: TranscriptDB) -> dict[int, str]:
    """Return the new text of all decisions that change, by curation."""
    left: dict[int, str] = {}
    changes = {row.id: row for row in await transcript.curations.peoples_changes()}
    breaks = Breaks()
    async for rows in _extractions(transcript):
        scrubber = DecisionScrubber(made, changes)
        for row in rows:
            await breaks.take()
            if row.decision_json is not None:
                decision = msgspec.json.encode(scrubber.row(row, effects.read_decision(row.decision_json))).decode()
                if decision != row.decision_json:
                    left[row.id] = decision
    return left


async def scrub_verifications(made: Plan, transcript: TranscriptDB, changed: Collection[int]) -> dict[int, str]:
    """Return the new text of all verifications that change, by curation; `changed` are those whose decision changes.

    A verification of a changed answer is empty afterwards: its request would be another one.
    """
    left: dict[int, str] = {}
    async for rows in _extractions(transcript):
        for row in rows:
            if row.verification_json is None:
                continue
            verification = msgspec.json.decode(row.verification_json, type=Verification)
            emptied = replace(verification, request_sha256="", answer="", rulings=[])
            is_about = row.id in changed or row.id in made.curations or _covers(row, made.whole_turns)
            if emptied != verification and (is_about or _verifies(verification, made.scrubber)):
                left[row.id] = msgspec.json.encode(emptied).decode()
    return left


def _covers(row: Curation, turns: Collection[int]) -> bool:
    first, last = row.first_observation_id, row.last_observation_id
    return first is not None and last is not None and any(first <= turn <= last for turn in turns)


def _verifies(verification: Verification, scrubber: Scrubber) -> bool:
    """Return whether a verification has forgotten text."""
    lines = [ruling.line.partition(": ")[2] for ruling in verification.rulings]
    return any(scrubber.finds(text) or scrubber.takes_line(text) for text in (*lines, *verification.answer.split("\n")))


async def _extractions(transcript: TranscriptDB) -> AsyncIterator[list[Curation]]:
    """Yield the rows of every extraction, oldest first; the last one may be a re-extraction that is not finished."""
    curations = transcript.curations
    taken_over = await curations.activations()
    ends = [*(row.id - 1 for row in taken_over), LARGEST_ROW_ID]
    yield await curations.fold(0, ends[0], 0, LARGEST_ROW_ID)
    for generation, (row, end) in enumerate(zip(taken_over, ends[1:], strict=True), 1):
        answers = await curations.extraction(generation, row.id)
        yield [*answers, row, *await curations.fold(row.id, end, generation, LARGEST_ROW_ID)]
    yield await curations.extraction(len(taken_over) + 1)


class DecisionScrubber:
    """Scrub decisions in the order of the log, and track which learnings and actions are gone."""

    def __init__(self, made: Plan, changes: Mapping[int, Curation]) -> None:
        self._changes = changes
        self._scrubber = made.scrubber
        self._typed = made.typed
        self._responses = made.curations
        self._learnings: set[int] = set()
        self._actions: set[int] = set()
        #: New numbers of learnings that stay because another turn taught them as well.
        self._moved: dict[int, int] = {}
        self._learned_actions: dict[int, effects.Acted] = {}

    def row(self, row: Curation, parts: Sequence[effects.Part]) -> list[effects.Part]:
        """Return a row's decision without forgotten text."""
        if row.kind == "action" and row.id in self._responses:
            parts = self._change(row, parts)
        return [left for part in parts for left in self._left(part)]

    def _change(self, row: Curation, parts: Sequence[effects.Part]) -> Sequence[effects.Part]:
        """Return the decision about an action's change without the text that a forget removes from the change."""
        try:
            was, now = read_record(row.response), read_record(self._responses[row.id])
        except ValueError:
            return parts
        if isinstance(now, Added):
            self._actions.add(MADE_IDS + row.id)
            return []
        words = text_of(was) if isinstance(was, Changed) else ""
        is_gone = bool(words) and isinstance(now, Changed) and text_of(now) != words
        return [_without(part, words) if is_gone and isinstance(part, effects.Acted) else part for part in parts]

    def _left(self, part: effects.Part) -> Iterator[effects.Part]:
        match part:
            case NewLearning():
                yield from self._learn(part)
            case effects.Repeated():
                yield from self._repeat(part)
            case effects.Acted():
                yield from self._act(part)
            case (
                effects.Heard(number) | effects.Confirmed(number) | effects.MadeOwn(number) | effects.Superseded(number)
            ):
                # A superseded learning stays superseded if its replacement is forgotten.
                if (now := self._number(number)) is not None:
                    by = {"by": self._moved.get(part.by, part.by)} if isinstance(part, effects.Superseded) else {}
                    yield replace(part, learning=now, **by)
            case effects.Written(_, content):
                yield replace(part, content=self._scrubber.lines(content, keep=self._typed))
            case effects.Proposed(rule, turn, quote) if self._scrubber.takes_rule(rule, turn, quote):
                pass
            case effects.Refusal() if self._scrubber.finds(part.detail) or self._scrubber.takes_line(part.detail):
                pass
            case effects.Again(number, parts):
                change = self._changes.get(number)
                yield part if change is None else replace(part, parts=self.row(change, parts))
            case _:
                yield part

    def _number(self, number: int) -> int | None:
        """Return the new number of a learning, or None if it is gone."""
        return self._moved.get(number, None if number in self._learnings else number)

    def _learn(self, new: NewLearning) -> Iterator[effects.Part]:
        if self._scrubber.takes_learning(new.content, new.turn, new.quote or ""):
            self._learnings.add(new.number)
        else:
            yield self._with_quote(new)

    def _repeat(self, part: effects.Repeated) -> Iterator[effects.Part]:
        number, new = self._number(part.of), part.new
        if self._scrubber.takes_learning(new.content, new.turn, new.quote or ""):
            if number is not None and part.counts:
                yield effects.Heard(number)
        elif number is not None:
            yield replace(part, of=number, new=self._with_quote(new))
        else:
            # It stays, because another turn taught it as well.
            self._moved[part.of] = new.number
            yield self._with_quote(new)
            if (action := self._learned_actions.pop(part.of, None)) is not None:
                yield replace(action, action=new.number, source_learning_id=new.number)

    def _with_quote(self, new: NewLearning) -> NewLearning:
        return new if new.quote is None else replace(new, quote=self._scrubber.sentences(new.quote))

    def _act(self, part: effects.Acted) -> Iterator[effects.Part]:
        source = part.source_learning_id if isinstance(part.source_learning_id, int) else None
        is_gone = source is not None and self._number(source) is None
        if part.is_new and part.action is not None:
            if is_gone or (isinstance(part.content, str) and self._scrubber.finds(part.content)):
                self._actions.add(part.action)
                if is_gone and source is not None:
                    self._learned_actions[source] = part
                return
        elif part.action in self._actions or is_gone:
            return
        yield part if source is None else replace(part, source_learning_id=self._number(source))


def _without(part: effects.Acted, words: str) -> effects.Acted:
    if part.content is not UNSET:
        return replace(part, content=UNSET)
    return replace(part, note=part.note.replace(words, FORGOTTEN))
