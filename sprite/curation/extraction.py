"""Extraction: turns -> one curator call about files, related open learnings and as many turns as fit -> a curation."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from sprite.common.tasks import WORDS, off_loop
from sprite.config import Settings
from sprite.curation.decide import Judge
from sprite.curation.model import Answer, Asked, CuratorModel, Fault, UnusableAnswerError
from sprite.curation.prompt import CuratorPrompt, OpenLearning, build_prompt
from sprite.curation.verifier import Verification, off_record, read_answer
from sprite.errors import ModelError, SpriteError
from sprite.log.curations import Curation, Failures, LostCall, seconds_since_midnight
from sprite.log.transcript import Observation, TranscriptDB, projects_of
from sprite.memory.database import MemoryDB
from sprite.memory.decision import Projected
from sprite.memory.files import CURATED, PROMPT_BUDGET_TOKENS, MemoryFiles, estimate_tokens, shown_to, within_limits
from sprite.memory.query import any_term, significant
from sprite.memory.words import content_words
from sprite.privacy.redaction import redact
from sprite.protocol.shapes import LearningRow
from sprite.storage.connection import to_json
from sprite.storage.full_text import phrase

#: Token budget for the learnings that are always shown, newest first: some 100 of them.
STANDING_TOKENS = 4_000
#: Tokens of a learning's markup in the prompt: its element, number, type, origin and day.
ELEMENT_TOKENS = 32
#: Token budget for learnings related to the files and the turns.
NEAREST_TOKENS = 5_000
#: Related learnings per text, search terms per text, and related learnings of all texts together.
NEAREST_TO_TEXT = 5
NEAREST_TERMS = 48
#: Learnings about a project that the turns name.
NEAREST_TO_NAME = 15
#: Names of hosts, packages and paths that are looked for, and learnings that have one: more are about much else.
MOST_NAMES, MOST_WITH_NAME = 100, 10
NEAREST_LEARNINGS = 30
#: Lines of user.md that are shown with the learning behind them. If the user's life changes, both must change.
MOST_PROFILE_LINES = 40
#: Characters of each of a turn's texts that supply search terms.
MAX_WORDS_CHARS = 2_000
#: Refused parts of the last answer that the prompt lists, and the characters of each.
MOST_REFUSED = 12
MAX_REFUSED_CHARS = 400
#: A name of several parts, with a letter: "pi-attic", "postgresql-15", "work/shop".
_NAME = re.compile(r"(?<!\w)(?<!\w[./-])(?=[\w./-]*[^\W\d_])\w+(?:[./-]+\w+)+")


async def log_lost_call(transcript: TranscriptDB, answer: Answer, reason: str, asked: Asked | None) -> int:
    """Log a model call of which no curation is logged, with its cost and turns. Return the row's id."""
    return await transcript.lost_calls.append(
        LostCall(
            model=answer.model,
            reason=reason,
            usage=answer.usage,
            # A refused call has no usage and is not billed.
            cost_usd=answer.cost_usd if answer.usage else 0.0,
            turns=(asked.first, asked.last) if asked else None,
            generation=asked.generation if asked else 0,
        )
    )


class Extractor:
    """Ask the curator about turns, with the given memory as context."""

    def __init__(
        self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles, model: CuratorModel, judge: Judge
    ) -> None:
        self._transcript = transcript
        self._memory = memory
        self._files = files
        self._model = model
        self._judge = judge
        #: A paid answer whose verification failed, with its prompt, so that it is not asked for again.
        self._unverified: tuple[CuratorPrompt, Answer] | None = None

    async def extract(
        self,
        turns: Sequence[Observation],
        generation: int,
        may_repeat: Callable[[Sequence[Observation]], bool],
        *,
        is_followed: bool = False,
    ) -> Curation:
        """Return a verified curation of as many leading turns as one call can take. ModelError if a call fails.

        `may_repeat` returns whether the turns that fit may be asked about a second time. `is_followed`: more turns
        wait.
        """
        # Read before the files: the curator has not seen later changes by a person.
        seen = await self._memory.cursor()
        prompt, batch = await self.prompt(turns, is_followed=is_followed)
        asked = Asked(batch[0].id, batch[-1].id, generation, again=may_repeat(batch))
        waiting = self._unverified
        answer = waiting[1] if waiting and waiting[0] == prompt else await self._model.ask(prompt, asked)
        self._unverified = prompt, answer
        curation = Curation(
            kind="batch",
            # A curator may repeat a secret in a form that capture did not recognise.
            response=await off_loop(WORDS * len(answer.text), redact, answer.text),
            first_observation_id=asked.first,
            last_observation_id=asked.last,
            model=answer.model,
            prompt_sha256=prompt.sha256,
            usage_json=to_json(answer.usage),
            cost_usd=answer.cost_usd,
            seen_curation_id=seen,
            generation=generation,
            lost_calls=() if answer.lost_call is None else (answer.lost_call,),
        )
        verified = await self._verified(curation, asked)
        self._unverified = None
        return verified

    async def _verified(self, curation: Curation, asked: Asked) -> Curation:
        """Return a curation with the verifier's answer, if it proposes anything that needs a verdict."""
        request = await self._judge.request(curation)
        if request is None:
            return curation
        answer = await self._model.verify(request, asked)
        said = await off_loop(WORDS * len(answer.text), redact, answer.text)
        rulings = read_answer(said, request.lines)
        verification = Verification(request.sha256, said, rulings, answer.model, answer.usage, answer.cost_usd)
        costs = [curation.cost_usd, answer.cost_usd]
        return replace(
            curation,
            verification_json=msgspec.json.encode(verification).decode(),
            off_record=tuple(off_record(rulings)),
            cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
            lost_calls=(*curation.lost_calls, *(() if answer.lost_call is None else (answer.lost_call,))),
        )

    async def control(self) -> Fault | None:
        """Ask the model something without turns: return the fault of the model, or None if the turns are at fault."""
        prompt, _ = await self.prompt(())
        return await self._model.answers(prompt)

    async def prompt(
        self, turns: Sequence[Observation], *, is_followed: bool = False
    ) -> tuple[CuratorPrompt, Sequence[Observation]]:
        """Return the prompt and the turns in it; `is_followed`: more turns wait."""
        # Sections of other projects are irrelevant and would cost tokens.
        projects = projects_of(turns)
        shown = {name: shown_to(name, self._files.read(name), projects) for name in CURATED}
        # A person may have written more than fits.
        files = {name: within_limits(name, content)[0] for name, content in shown.items()}
        first = turns[0].id if turns else 0
        state = await self._memory.transact(lambda tx: Projected(tx).state(first), is_kept=False)
        refused = [words[:MAX_REFUSED_CHARS] for words in await self._memory.refused_last(MOST_REFUSED)]
        shown_again = list((await self._transcript.observations_of(state.shown_again)).values())
        learnings = await self._open_learnings(turns, files, [*refused, *map(_words_of, shown_again)], state.tz)
        prompt = await asyncio.to_thread(
            build_prompt,
            files=files,
            open_learnings=learnings,
            turns=turns,
            tz=state.tz,
            refused=refused,
            shown_again=shown_again,
            budget_tokens=PROMPT_BUDGET_TOKENS,
            is_followed=is_followed,
        )
        return prompt, turns[: prompt.turns]

    async def _open_learnings(
        self, turns: Sequence[Observation], files: Mapping[str, str], again: Sequence[str], tz: str | None
    ) -> list[OpenLearning]:
        """Return the learnings to show: standing ones, plans, those behind user.md, and those related to the turns.

        `again` are refused parts and repeated turns. A second answer needs the learnings that concern them,
        too.
        """
        if not turns:
            return []
        shown: dict[int, LearningRow] = {}
        projects = projects_of(turns)
        standing = await self._memory.standing({turn.session_id for turn in turns}, projects)
        today = datetime.fromtimestamp(turns[0].timestamp, ZoneInfo(tz) if tz else None).date().isoformat()
        # The user may end something that the reply does not name.
        texts = [text for turn in turns for text in (turn.user_message[:MAX_WORDS_CHARS], _words_of(turn))]
        nearest = [
            # A plan may be changed or called off in words that it does not share.
            *await self._memory.ahead(today, projects),
            *await self._behind(files["user.md"], projects),
            *await self._of_named(turns, files["context.md"], projects),
            *await self._with_names(turns, projects),
            *await self._near([*again, *texts], projects),
        ]
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
        learned = []
        for number, known in sorted(shown.items()):
            action, project = timed.get(number), known.project if projects else None
            at = known.created_at
            learned.append(OpenLearning(number, known.type, known.content, known.origin, at, action, project))
        # Actions that the person or the agent wrote have no learning. Showing them prevents duplicates.
        for action in actions:
            if action.source_learning_id is None:
                origin = "user" if action.origin == "person" else "assistant"
                learned.append(OpenLearning(action.id, "ACTION", action.content, origin, action.created_at, action))
        return learned

    async def _behind(self, user: str, projects: Sequence[str]) -> list[LearningRow]:
        """Return the learnings on which the lines of user.md rest."""
        lines = [line for line in user.split("\n") if line.lstrip().startswith("- ")]
        found = [
            await self._memory.nearest(any_term(significant(line)), 1, projects) for line in lines[:MOST_PROFILE_LINES]
        ]
        return [learning for nearest in found for learning in nearest]

    async def _of_named(self, turns: Sequence[Observation], context: str, projects: Sequence[str]) -> list[LearningRow]:
        """Return learnings about the projects in context.md that a message names: it may say that one has ended."""
        said = content_words(" ".join(turn.user_message[:MAX_WORDS_CHARS] for turn in turns))
        names = [line.strip("# ") for line in context.split("\n") if line.startswith("### ")]
        found: list[LearningRow] = []
        for name in names:
            if content_words(name) & said:
                found += await self._memory.nearest(any_term(significant(name)), NEAREST_TO_NAME, projects)
        return found

    async def _with_names(self, turns: Sequence[Observation], projects: Sequence[str]) -> list[LearningRow]:
        """Return learnings that contain a host, package or path from the turns: it may be gone or have moved."""
        found: list[LearningRow] = []
        for name in await asyncio.to_thread(_names_in, turns):
            nearest = await self._memory.nearest(phrase(name), MOST_WITH_NAME + 1, projects)
            found += nearest if len(nearest) <= MOST_WITH_NAME else ()
        return found

    async def _near(self, texts: Sequence[str], projects: Sequence[str]) -> list[LearningRow]:
        """Return related learnings. Each text has its own search, or the first one's words would use up all results."""
        found: dict[int, LearningRow] = {}
        rank: dict[int, int] = {}
        for text in texts:
            words = significant(text, limit=NEAREST_TERMS)
            nearest = await self._memory.nearest(any_term(words), NEAREST_TO_TEXT, projects)
            for place, learning in enumerate(nearest):
                found[learning.id] = learning
                rank[learning.id] = min(place, rank.get(learning.id, place))
        return [found[known] for known in sorted(found, key=lambda known: (rank[known], -known))[:NEAREST_LEARNINGS]]


def _names_in(turns: Sequence[Observation]) -> list[str]:
    """Return the first names of several parts (hosts, packages, paths) in messages and tools' inputs, each once."""
    texts = (f"{turn.user_message[:MAX_WORDS_CHARS]} {_inputs_of(turn)}" for turn in turns)
    names = dict.fromkeys(name.casefold() for text in texts for name in _NAME.findall(text))
    return list(names)[:MOST_NAMES]


def _words_of(turn: Observation) -> str:
    """Return a turn's words: the user's, the reply, then the tools' inputs."""
    return " ".join(part[:MAX_WORDS_CHARS] for part in (turn.user_message, turn.agent_response, _inputs_of(turn)))


def _inputs_of(turn: Observation) -> str:
    return " ".join(str(call.get("input")) for call in turn.tool_calls)[:MAX_WORDS_CHARS]


#: Calls for an unsplit batch.
TOGETHER = 2
#: Failed calls after which a turn is sent alone.
BEFORE_ALONE = 4
#: Failed calls alone after which a turn is quarantined.
ALONE = 3

#: Quarantines a turn: (turn, reason, generation).
SetAside = Callable[[int, str, int], Awaitable[None]]


class Attempts:
    """Ask the curator about turns, and limit how often. Turns whose calls fail too often are quarantined."""

    def __init__(
        self, transcript: TranscriptDB, extractor: Extractor, set_aside: SetAside, together: int = TOGETHER
    ) -> None:
        self._transcript = transcript
        self._extractor = extractor
        self._set_aside = set_aside
        self._together = together

    async def extract(self, turns: Sequence[Observation], generation: int, *, is_followed: bool) -> Curation | None:
        """Return a curation of some leading turns, or None if the first turn was quarantined instead.

        The turns have consecutive ids; `is_followed` says whether more wait. UnusableAnswerError if the call
        failed because of these turns: the next call takes fewer turns, or is the last one about the first turn.
        Another ModelError for an outage.
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
        except UnusableAnswerError as error:
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
        """Send the model a prompt without turns. Raise ModelError if it fails, because then no turn is to blame."""
        fault = await self._extractor.control()
        if fault is None:
            return
        await self._transcript.quarantine.take_back_newest()
        raise ModelError(f"{fault.words}; a test without turns fails, too, so all turns wait", retryable=False)


def _batch(turns: Sequence[Observation], failures: Mapping[int, Failures], times: int) -> Sequence[Observation]:
    """Return the leading turns to ask about in one call: fewer after failed calls."""
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
    """Return whether the batch's limit on failed calls allows two more of them."""
    if len(batch) == 1:
        return failures[batch[0].id].alone + 2 <= ALONE
    return max(failures[turn.id].calls for turn in batch) + 2 <= BEFORE_ALONE


class BudgetReachedError(SpriteError):
    """Today's spending cap for memory is reached; turns are kept and are curated tomorrow."""

    code = "daily_cap"


async def check_budget(settings: Settings, transcript: TranscriptDB) -> None:
    """Raise BudgetReachedError if today's cap is reached. Calls of unknown price count at the dearest one."""
    cap = settings.daily_usd
    if cap is None or settings.is_free:
        return
    midnight = time.time() - seconds_since_midnight()
    if await transcript.spending.total(midnight) + await transcript.spending.estimated(midnight) >= cap:
        raise BudgetReachedError(f"{BudgetReachedError.__doc__} (SPRITE_DAILY_USD={cap:g})")
