"""How a schedule's mission ended -> what that means for its action (pure). Times are Unix seconds.

A one-time action is done with its mission, or failed; a repeat goes on in any case. Where the model could not be had
(a budget used up, no network) nothing is lost: it is tried again, later each time, and given up after some tries. A
turn that was stopped or crashed is not begun anew: what it had done by then is not known, and a person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sprite.database.actions import Action
from sprite.database.workspace import ScheduledMission
from sprite.schedules.words import moment_words
from sprite.schedules.zones import DEFAULT_ZONE

#: How long it waits before each try after the first; together they reach over a day's budget into the next.
TRIED_AGAIN_SECONDS = (900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)
#: Errors of the model or the way to it, which pass by themselves.
PASSING = frozenset(
    {"budget_used_up", "rate_limited", "overloaded", "model_error", "agent_error", "shortage"},
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is noted of an action; `status` and `due` only where they change."""

    what: str
    status: Literal["done", "failed"] | None = None
    due: float | None = None


def verdict(action: Action, mission: ScheduledMission, failures: Sequence[str | None], now: float) -> Verdict | None:
    """What becomes of an action whose mission has ended; None where there is nothing to tell.

    `failures` are the error codes of the action's newest missions, newest first, this one's among them; None stands
    for one that ended otherwise.
    """
    if action.status != "open":
        # Somebody has closed it meanwhile: the agent in the turn itself, or a person, for whom it was taken back.
        return None
    goes_on = action.due is not None
    if mission.status == "complete":
        return Verdict("ran") if goes_on else Verdict("done", "done")
    if mission.status == "error" and mission.error_code in PASSING:
        return _tried_again(action, mission, failures, now)
    what = _words(mission)
    return Verdict(what) if goes_on else Verdict(what, "failed")


def _tried_again(
    action: Action, mission: ScheduledMission, failures: Sequence[str | None], now: float
) -> Verdict | None:
    what = _words(mission)
    tries = next((at for at, code in enumerate(failures) if code not in PASSING), len(failures))
    if tries > len(TRIED_AGAIN_SECONDS):
        if action.due is not None:
            return Verdict(f"{what}; given up for this time after {tries} tries")
        return Verdict(f"{what}; given up after {tries} tries", "failed")
    again = now + TRIED_AGAIN_SECONDS[max(tries, 1) - 1]
    if action.due is not None and action.due <= again:
        return Verdict(what)
    return Verdict(f"{what}; tried again {moment_words(again, action.tz or DEFAULT_ZONE)}", due=again)


def _words(mission: ScheduledMission) -> str:
    if mission.status == "interrupted":
        return "stopped before it had ended"
    if mission.error_code == "crashed":
        return "the sprite was stopped in the middle of it"
    return f"did not work: {mission.error or 'it ended with an error'}"
