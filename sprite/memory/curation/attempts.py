"""What calls in vain say about turns: which of them to ask about next, and when one is set aside.

A batch that is answered in vain is asked about once more, then its half, then the half of that, then turn by turn; a
turn that was in vain alone three times is set aside. The most that one turn can cost, however large its batch was:

    TOGETHER (2) + halves (BEFORE_ALONE - TOGETHER = 2) + ALONE (3) + a control (1) = 8 calls

All of it is derived from the log, so no restart pays again. Outages are not counted.

A model that refuses everything (a bill not paid, a name misspelt) looks, turn by turn, like turns at fault. So no
second turn is set aside before the model has answered something since the first; where it has not, a control without
any turn is asked. In vain as well, it clears the turns: the first comes back, all counts begin anew, and the next flush
begins with another control.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from sprite.database.curations import NewCuration
from sprite.database.lost_calls import Failures
from sprite.database.transcript import Observation, TranscriptDB
from sprite.errors import ModelError
from sprite.memory.curation.extraction import Extractor
from sprite.memory.curation.model import VainError

#: So many times a batch is asked about as it is.
TOGETHER = 2
#: After so many calls in vain, a turn is asked about alone.
BEFORE_ALONE = 4
#: After so many of these it is set aside.
ALONE = 3

#: What to do with a turn that is set aside: (turn, reason, generation).
SetAside = Callable[[int, str, int], Awaitable[None]]


class Attempts:
    """Asks about turns with the patience that their calls in vain have left."""

    def __init__(
        self, transcript: TranscriptDB, extractor: Extractor, set_aside: SetAside, together: int = TOGETHER
    ) -> None:
        self._transcript = transcript
        self._extractor = extractor
        self._set_aside = set_aside
        self._together = together

    async def extract(self, turns: Sequence[Observation], generation: int, *, is_followed: bool) -> NewCuration | None:
        """A curation of some of the turns, from the first on; None if the first was set aside instead.

        The turns stand side by side; `is_followed` says whether more wait behind them. VainError if the call was in
        vain: then the next one is about fewer turns, or the first one's last. Another ModelError for an outage.
        """
        if await self._transcript.lost_calls.is_model_in_doubt():
            await self._ask_control()
        failures = await self._failures(turns, generation)
        first = turns[0]
        if failures[first.id].alone >= ALONE:
            # A process ended between the last call and its consequence.
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
        """Passes if the model answers at all. ModelError if it does not, and no turn is to blame."""
        fault = await self._extractor.control()
        if fault is None:
            return
        await self._transcript.quarantine.take_back_newest()
        raise ModelError(f"{fault.words}; it does so without any turn as well, so the turns wait", retryable=False)


def _batch(turns: Sequence[Observation], failures: Mapping[int, Failures], times: int) -> Sequence[Observation]:
    """The leading turns to ask about together."""
    known = failures[turns[0].id]
    if known.calls >= BEFORE_ALONE:
        return turns[:1]
    together = [turn for turn in turns if failures[turn.id].calls < BEFORE_ALONE]
    # Of turns in a row, those up to the first that is to be alone.
    together = [turn for at, turn in enumerate(together) if turn.id == turns[0].id + at]
    if known.calls < times:
        return together
    begin, end = known.span
    half = max(1, (end - begin + 2) // 2)
    return [turn for turn in together if turn.id <= end][:half]


def _may_repeat(batch: Sequence[Observation], failures: Mapping[int, Failures]) -> bool:
    """Whether two calls in vain are still within what the batch may take."""
    if len(batch) == 1:
        return failures[batch[0].id].alone + 2 <= ALONE
    return max(failures[turn.id].calls for turn in batch) + 2 <= BEFORE_ALONE
