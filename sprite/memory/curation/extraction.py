"""Extraction: turns -> one curator call -> a curation ready for the log.

Everything the call is shown is read here: the files, the open learnings nearest to the turns, as many turns as fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sprite.database.curations import NewCuration
from sprite.database.lost_calls import LostCall
from sprite.database.memory import MemoryDB
from sprite.database.transcript import (
    Observation,
    TranscriptDB,
)
from sprite.memory.curation.model import (
    Answer,
    Asked,
    CuratorModel,
    Fault,
)
from sprite.memory.curation.prompt import (
    CuratorPrompt,
    CuratorTurn,
    OpenLearning,
    build_prompt,
    fit,
)
from sprite.memory.files import BOOT_ORDER, LINE_LIMITS, MemoryFiles
from sprite.memory.limits import PROMPT_BUDGET_TOKENS
from sprite.memory.recall.query import (
    any_term,
    significant,
)
from sprite.prices import cost_usd

#: Open learnings shown to the curator, so that it neither repeats nor contradicts them.
NEAREST_LEARNINGS = 20
#: The batch's words by which they are found.
NEAREST_TERMS = 48


async def log_lost_call(transcript: TranscriptDB, answer: Answer, reason: str, asked: Asked | None) -> None:
    """Keeps in the log what an answer cost that no curation came of, and which turns it was about."""
    await transcript.lost_calls.append(
        LostCall(
            model=answer.model,
            reason=reason,
            usage=answer.usage,
            # What was refused has no usage, and is not billed.
            cost_usd=cost_usd(answer.model, answer.usage) if answer.usage else 0.0,
            turns=(asked.first, asked.last) if asked else None,
            generation=asked.generation if asked else 0,
        )
    )


class Extractor:
    """Asks for what turns teach, against the memory it is given."""

    def __init__(self, memory: MemoryDB, files: MemoryFiles, model: CuratorModel) -> None:
        self._memory = memory
        self._files = files
        self._model = model

    async def extract(
        self, turns: Sequence[Observation], generation: int, may_repeat: Callable[[Sequence[Observation]], bool]
    ) -> NewCuration:
        """A curation of as many of the turns, from the first on, as one call can take. ModelError if there is none.

        `may_repeat` says of the turns that fit whether they may be asked about once more.
        """
        # Read before the files: what a person changes from here on, the curator has not seen.
        seen = await self._memory.cursor()
        prompt, batch = await self.prompt(turns)
        asked = Asked(batch[0].id, batch[-1].id, generation, again=may_repeat(batch))
        answer = await self._model.ask(prompt, asked)
        return NewCuration(
            kind="batch",
            response=answer.text,
            first_observation_id=asked.first,
            last_observation_id=asked.last,
            model=answer.model,
            prompt_sha256=prompt.sha256,
            usage=answer.usage,
            cost_usd=cost_usd(answer.model, answer.usage),
            seen_curation_id=seen,
            generation=generation,
        )

    async def control(self) -> Fault | None:
        """Asks with everything but turns: None if the model answers, or else it is no turn's fault that it does not."""
        prompt, _ = await self.prompt(())
        return await self._model.answers(prompt)

    async def prompt(self, turns: Sequence[Observation]) -> tuple[CuratorPrompt, Sequence[Observation]]:
        """What the curator would be shown, and the turns that are in it."""
        files = {name: self._files.read(name) for name in BOOT_ORDER}
        learnings = await self._nearest(turns)
        seen = [_as_seen(turn) for turn in turns]
        budget = PROMPT_BUDGET_TOKENS
        number = fit(seen, files=files, limits=LINE_LIMITS, open_learnings=learnings, budget_tokens=budget)
        prompt = build_prompt(
            files=files,
            limits=LINE_LIMITS,
            open_learnings=learnings,
            turns=seen[:number],
            budget_tokens=budget,
        )
        return prompt, turns[:number]

    async def _nearest(self, turns: Sequence[Observation]) -> list[OpenLearning]:
        words = significant(
            " ".join(f"{turn.user_message} {turn.agent_response}" for turn in turns), limit=NEAREST_TERMS
        )
        if not words:
            return []
        nearest = await self._memory.nearest(any_term(words), NEAREST_LEARNINGS)
        return [OpenLearning(known.id, known.type, known.content, known.source_observation_id) for known in nearest]


def _as_seen(turn: Observation) -> CuratorTurn:
    return CuratorTurn(
        id=turn.id,
        at=turn.timestamp,
        session_id=turn.session_id,
        origin=turn.trigger,
        outcome=turn.outcome,
        user_message=turn.user_message,
        tool_calls=turn.tool_calls,
        agent_response=turn.agent_response,
    )
