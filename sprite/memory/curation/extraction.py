"""Extraction: turns -> one curator call -> a curation ready for the log.

Everything the call is shown is read here: the files, the open learnings nearest to the turns, as many turns as fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sprite.database.actions import Action
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
from sprite.memory.files import CURATED, LINE_LIMITS, MemoryFiles, shown_to, within_limits
from sprite.memory.limits import PROMPT_BUDGET_TOKENS
from sprite.memory.projection.project_turns import projects_of
from sprite.memory.recall.query import (
    any_term,
    significant,
)
from sprite.memory.tokens import estimate_tokens

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


async def log_lost_call(transcript: TranscriptDB, answer: Answer, reason: str, asked: Asked | None) -> int:
    """Log what an answer cost that no curation came of, and which turns it was about; return the row's id."""
    return await transcript.lost_calls.append(
        LostCall(
            model=answer.model,
            reason=reason,
            usage=answer.usage,
            # What was refused has no usage, and is not billed.
            cost_usd=answer.cost_usd if answer.usage else 0.0,
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
        files = self._shown_files(turns)
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
            cost_usd=answer.cost_usd,
            seen_curation_id=seen,
            generation=generation,
            lost_call=answer.lost_call,
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
            files = self._shown_files(turns)
        tz = await self._memory.zone()
        learnings = await self._open_learnings(turns, files["user.md"], tz)
        refused = [words[:MAX_REFUSED_CHARS] for words in await self._memory.refused_last(MOST_REFUSED)]
        seen = [_as_seen(turn, tz) for turn in turns]
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

    def _shown_files(self, turns: Sequence[Observation]) -> dict[str, str]:
        # Of projects that no turn is of, nothing is to be said, and nothing paid for.
        projects = projects_of(turns)
        shown = {name: shown_to(name, self._files.read(name), projects) for name in CURATED}
        # A person may have written more than fits.
        return {name: within_limits(name, content)[0] for name, content in shown.items()}

    async def _open_learnings(self, turns: Sequence[Observation], user: str, tz: str | None) -> list[OpenLearning]:
        """What is open, wanted or corrected, the sessions' digests, what user.md rests on, what turns are near to."""
        if not turns:
            return []
        shown: dict[int, Learning] = {}
        projects = projects_of(turns)
        standing = await self._memory.standing({turn.session_id for turn in turns}, projects)
        nearest = [*await self._behind(user, projects), *await self._near(turns, projects)]
        for learnings, tokens in ((standing, STANDING_TOKENS), (nearest, NEAREST_TOKENS)):
            left = tokens
            for learning in learnings:
                if learning.id not in shown:
                    left -= estimate_tokens(learning.content) + ELEMENT_TOKENS
                    if left < 0:
                        break
                    shown[learning.id] = learning
        actions = await self._memory.actions("open")
        timed = {action.source_learning_id: action for action in actions}
        learned = [
            _as_open(learning, timed.get(number), tz, learning.project if projects else None)
            for number, learning in sorted(shown.items())
        ]
        # What the person or the agent wrote down themselves has no learning; it is not to be learned once more.
        return [*learned, *(_written(action, tz) for action in actions if action.source_learning_id is None)]

    async def _behind(self, user: str, projects: Sequence[str]) -> list[Learning]:
        """The learnings that lines of user.md rest on."""
        lines = [line for line in user.split("\n") if line.lstrip().startswith("- ")]
        found = [
            await self._memory.nearest(any_term(significant(line)), 1, projects) for line in lines[:MOST_PROFILE_LINES]
        ]
        return [learning for nearest in found for learning in nearest]

    async def _near(self, turns: Sequence[Observation], projects: Sequence[str]) -> list[Learning]:
        """What the turns are near to, each turn for itself: together, the words of the first would be all there is."""
        found: dict[int, Learning] = {}
        rank: dict[int, int] = {}
        for turn in turns:
            words = significant(_words_of(turn), limit=NEAREST_TERMS)
            nearest = await self._memory.nearest(any_term(words), NEAREST_TO_TURN, projects)
            for place, learning in enumerate(nearest):
                found[learning.id] = learning
                rank[learning.id] = min(place, rank.get(learning.id, place))
        best = sorted(found, key=lambda known: (rank[known], -known))
        return [found[known] for known in best[:NEAREST_LEARNINGS]]


def _words_of(turn: Observation) -> str:
    """What a turn is about: the person's words, then the reply's, then what was asked of tools."""
    asked = " ".join(str(call.get("input")) for call in turn.tool_calls)
    parts = (turn.user_message, turn.agent_response, asked)
    return " ".join(part[:MAX_WORDS_CHARS] for part in parts)


def _as_open(learning: Learning, action: Action | None, tz: str | None, project: str | None) -> OpenLearning:
    return OpenLearning(
        id=learning.id,
        type=learning.type,
        content=learning.content,
        turn_id=learning.source_observation_id,
        origin=learning.origin,
        at=learning.created_at,
        due=None if action is None else action.due,
        rrule=None if action is None else action.rrule,
        tz=tz,
        project=project,
    )


def _written(action: Action, tz: str | None) -> OpenLearning:
    """An open action that the person or the agent wrote down, as a learning that the curator can name."""
    return OpenLearning(
        id=action.id,
        type="ACTION",
        content=action.content,
        turn_id=None,
        origin="user" if action.origin == "person" else "assistant",
        at=action.created_at,
        due=action.due,
        rrule=action.rrule,
        tz=tz,
    )


def _as_seen(turn: Observation, tz: str | None) -> CuratorTurn:
    return CuratorTurn(
        id=turn.id,
        at=turn.timestamp,
        session_id=turn.session_id,
        origin=turn.trigger if turn.trigger in {"user", "program"} else "task",
        outcome=turn.outcome,
        user_message=turn.user_message,
        tool_calls=turn.tool_calls,
        agent_response=turn.agent_response,
        tz=tz,
        project=turn.project,
        asked_by=turn.asked_by,
    )
