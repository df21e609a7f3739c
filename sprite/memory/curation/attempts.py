"""Retry policy for failed curator calls: how to split a batch, and when to quarantine a turn.

A failed batch is sent a second time, then half of it, then a quarter, then turn by turn. A turn that fails alone three
times is quarantined. The calls for one turn are bounded, however large its batch was:

    TOGETHER (2) + halves (BEFORE_ALONE - TOGETHER = 2) + ALONE (3) + a control (1) = 8 calls

All counts come from the log, so a restart does not repeat calls. Outages are not counted.

A model that refuses everything (an unpaid bill, a wrong name) looks like a fault of each turn. Before a second turn is
quarantined, the model must have answered since the first. Otherwise a control call without turns is sent. If it fails,
too, the newest turn leaves quarantine, all counts restart, and the next flush begins with another control.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from sprite.database.curations import NewCuration
from sprite.database.quarantine import Failures
from sprite.database.transcript import Observation, TranscriptDB
from sprite.errors import ModelError
from sprite.memory.curation.extraction import Extractor
from sprite.memory.curation.model import VainError

#: Calls for an unsplit batch.
TOGETHER = 2
#: Failed calls after which a turn is sent alone.
BEFORE_ALONE = 4
#: Failed calls alone after which a turn is quarantined.
ALONE = 3

#: Quarantines a turn: (turn, reason, generation).
SetAside = Callable[[int, str, int], Awaitable[None]]


class Attempts:
    """Ask about turns within the limits that their failed calls leave."""

    def __init__(
        self, transcript: TranscriptDB, extractor: Extractor, set_aside: SetAside, together: int = TOGETHER
    ) -> None:
        self._transcript = transcript
        self._extractor = extractor
        self._set_aside = set_aside
        self._together = together

    async def extract(self, turns: Sequence[Observation], generation: int, *, is_followed: bool) -> NewCuration | None:
        """Return a curation of some leading turns, or None if the first turn was quarantined instead.

        The turns have consecutive ids; `is_followed` says whether more wait. VainError if the call failed for these
        turns: the next call is smaller, or the last for the first turn. Another ModelError for an outage.
        """
        if await self._transcript.lost_calls.is_model_in_doubt():
            await self._ask_control()
        failures = await self._failures(turns, generation)
        first = turns[0]
        if failures[first.id].alone >= ALONE:
            # A process ended between the last call and the quarantine.
            await self._quarantine(first.id, failures[first.id].reason, generation)
            return None
        batch = _batch(turns, failures, self._together)
        try:
            return await self._extractor.extract(
                batch,
                generation,
                lambda asked: _may_repeat(asked, failures),
                is_followed=is_followed or len(batch) < len(turns),
            )
        except VainError as error:
            if (await self._failures([first], generation))[first.id].alone < ALONE:
                raise
            await self._quarantine(first.id, str(error), generation)
            return None

    async def _failures(self, turns: Sequence[Observation], generation: int) -> dict[int, Failures]:
        return await self._transcript.lost_calls.failures([turn.id for turn in turns], generation)

    async def _quarantine(self, turn_id: int, reason: str, generation: int) -> None:
        if await self._transcript.quarantine.is_newest_verdict():
            await self._ask_control()
        await self._set_aside(turn_id, reason, generation)

    async def _ask_control(self) -> None:
        """Return if the model answers at all. Else raise ModelError: no turn is to blame."""
        fault = await self._extractor.control()
        if fault is None:
            return
        await self._transcript.quarantine.take_back_newest()
        raise ModelError(f"{fault.words}; it does so without any turn as well, so the turns wait", retryable=False)


def _batch(turns: Sequence[Observation], failures: Mapping[int, Failures], times: int) -> Sequence[Observation]:
    """Return the leading turns for one call."""
    known = failures[turns[0].id]
    if known.calls >= BEFORE_ALONE:
        return turns[:1]
    together = [turn for turn in turns if failures[turn.id].calls < BEFORE_ALONE]
    # Keep consecutive turns, up to the first that must be sent alone.
    together = [turn for at, turn in enumerate(together) if turn.id == turns[0].id + at]
    if known.calls < times:
        return together
    begin, end = known.span
    half = max(1, (end - begin + 2) // 2)
    return [turn for turn in together if turn.id <= end][:half]


def _may_repeat(batch: Sequence[Observation], failures: Mapping[int, Failures]) -> bool:
    """Return whether two more failed calls stay within the batch's limit."""
    if len(batch) == 1:
        return failures[batch[0].id].alone + 2 <= ALONE
    return max(failures[turn.id].calls for turn in batch) + 2 <= BEFORE_ALONE
