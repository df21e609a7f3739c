"""Extraction: turns -> one curator call -> a curation ready for the log.

Everything the call is shown is read here: the files, the open learnings nearest to the turns, as many turns as fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sprite.database.curations import NewCuration
from sprite.database.lost_calls import LostCall
from sprite.database.memory import Learning, MemoryDB
from sprite.database.transcript import (
    Observation,
    TranscriptDB,
)
from sprite.memory.curation.answer_edits import with_lines_meant
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
from sprite.memory.files import CURATED, LINE_LIMITS, MemoryFiles, within_limits
from sprite.memory.limits import PROMPT_BUDGET_TOKENS
from sprite.memory.recall.query import (
    any_term,
    significant,
)
from sprite.memory.tokens import estimate_tokens
from sprite.prices import cost_usd

#: What is always shown, newest first, takes so much of the prompt at most: some 100 learnings.
STANDING_TOKENS = 4_000
#: What stands around a learning in the prompt: its element, number, type, origin and day.
ELEMENT_TOKENS = 32
#: What the files and the turns are near to takes so much.
NEAREST_TOKENS = 5_000
#: What each turn is near to: so many, by so many of its words, and so many of all turns' together.
NEAREST_TO_TURN = 5
NEAREST_TERMS = 48
NEAREST_LEARNINGS = 30
#: So many lines of user.md are shown with the learning that each rests on: where a life changes, both have to.
MOST_PROFILE_LINES = 40
#: A turn's words are sought in so much of each of its texts.
MAX_WORDS_CHARS = 2_000
#: Of the last answer's refusals, so many are told, each so long at most.
MOST_REFUSED = 12
MAX_REFUSED_CHARS = 400


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
        self,
        turns: Sequence[Observation],
        generation: int,
        may_repeat: Callable[[Sequence[Observation]], bool],
        *,
        is_followed: bool = False,
    ) -> NewCuration:
        """A curation of as many of the turns, from the first on, as one call can take. ModelError if there is none.

        `may_repeat` says of the turns that fit whether they may be asked about once more; `is_followed` that more
        turns wait.
        """
        # Read before the files: what a person changes from here on, the curator has not seen.
        seen = await self._memory.cursor()
        files = self._shown_files()
        prompt, batch = await self.prompt(turns, files, is_followed=is_followed)
        asked = Asked(batch[0].id, batch[-1].id, generation, again=may_repeat(batch))
        answer = await self._model.ask(prompt, asked)
        return NewCuration(
            kind="batch",
            response=with_lines_meant(answer.text, files),
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

    async def prompt(
        self, turns: Sequence[Observation], files: Mapping[str, str] | None = None, *, is_followed: bool = False
    ) -> tuple[CuratorPrompt, Sequence[Observation]]:
        """What the curator would be shown, and the turns that are in it; `files` as they are by default."""
        if files is None:
            files = self._shown_files()
        learnings = await self._open_learnings(turns, files["user.md"])
        refused = [words[:MAX_REFUSED_CHARS] for words in await self._memory.refused_last(MOST_REFUSED)]
        seen = [_as_seen(turn) for turn in turns]
        budget = PROMPT_BUDGET_TOKENS
        number = fit(
            seen, files=files, limits=LINE_LIMITS, open_learnings=learnings, refused=refused, budget_tokens=budget
        )
        prompt = build_prompt(
            files=files,
            limits=LINE_LIMITS,
            open_learnings=learnings,
            turns=seen[:number],
            refused=refused,
            budget_tokens=budget,
            is_followed=is_followed or number < len(turns),
        )
        return prompt, turns[:number]

    def _shown_files(self) -> dict[str, str]:
        # A person may have written more than fits. The lines that are shown have the numbers that they have on disk.
        return {name: within_limits(name, self._files.read(name))[0] for name in CURATED}

    async def _open_learnings(self, turns: Sequence[Observation], user: str) -> list[OpenLearning]:
        """What is open, wanted or corrected, the sessions' digests, what user.md rests on, what turns are near to."""
        if not turns:
            return []
        shown: dict[int, Learning] = {}
        standing = await self._memory.standing({turn.session_id for turn in turns})
        nearest = [*await self._behind(user), *await self._near(turns)]
        for learnings, tokens in ((standing, STANDING_TOKENS), (nearest, NEAREST_TOKENS)):
            left = tokens
            for learning in learnings:
                if learning.id not in shown:
                    left -= estimate_tokens(learning.content) + ELEMENT_TOKENS
                    if left < 0:
                        break
                    shown[learning.id] = learning
        return [_as_open(learning) for _, learning in sorted(shown.items())]

    async def _behind(self, user: str) -> list[Learning]:
        """The learnings that lines of user.md rest on."""
        lines = [line for line in user.split("\n") if line.lstrip().startswith("- ")]
        found = [await self._memory.nearest(any_term(significant(line)), 1) for line in lines[:MOST_PROFILE_LINES]]
        return [learning for nearest in found for learning in nearest]

    async def _near(self, turns: Sequence[Observation]) -> list[Learning]:
        """What the turns are near to, each turn for itself: together, the words of the first would be all there is."""
        found: dict[int, Learning] = {}
        rank: dict[int, int] = {}
        for turn in turns:
            words = significant(_words_of(turn), limit=NEAREST_TERMS)
            for place, learning in enumerate(await self._memory.nearest(any_term(words), NEAREST_TO_TURN)):
                found[learning.id] = learning
                rank[learning.id] = min(place, rank.get(learning.id, place))
        nearest = sorted(found, key=lambda known: (rank[known], -known))
        return [found[known] for known in nearest[:NEAREST_LEARNINGS]]


def _words_of(turn: Observation) -> str:
    """What a turn is about: the person's words, then the reply's, then what was asked of tools."""
    asked = " ".join(str(call.get("input")) for call in turn.tool_calls)
    parts = (turn.user_message, turn.agent_response, asked)
    return " ".join(part[:MAX_WORDS_CHARS] for part in parts)


def _as_open(learning: Learning) -> OpenLearning:
    return OpenLearning(
        id=learning.id,
        type=learning.type,
        content=learning.content,
        turn_id=learning.source_observation_id,
        origin=learning.origin,
        at=learning.created_at,
    )


def _as_seen(turn: Observation) -> CuratorTurn:
    return CuratorTurn(
        id=turn.id,
        at=turn.timestamp,
        session_id=turn.session_id,
        origin="user" if turn.trigger == "user" else "task",
        outcome=turn.outcome,
        user_message=turn.user_message,
        tool_calls=turn.tool_calls,
        agent_response=turn.agent_response,
    )
