"""The effect of a schedule mission's end on its action (pure). Times are Unix seconds.

A one-time action is done or failed with its mission; a repeat continues in any case. If the model was unavailable
(budget used up, no network), the action is retried with growing delays and given up after some tries. A stopped or
crashed turn is not restarted: its effects are unknown, so a person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sprite.database.projected import Action
from sprite.database.workspace import ScheduledMission
from sprite.schedules.words import moment_words
from sprite.schedules.zones import DEFAULT_ZONE

#: Delays before each retry; together they extend from one day's budget into the next.
TRIED_AGAIN_SECONDS = (900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)
#: Temporary errors of the model or the connection to it.
PASSING = frozenset(
    {"budget_used_up", "rate_limited", "overloaded", "model_error", "agent_error", "shortage"},
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A note for the action's history; `status` and `due` only if they change."""

    what: str
    status: Literal["done", "failed"] | None = None
    due: float | None = None


def verdict(action: Action, mission: ScheduledMission, failures: Sequence[str | None], now: float) -> Verdict | None:
    """Return the effect of an ended mission on its action; None if there is none.

    `failures` are the error codes of the action's newest missions, newest first, including this one; None for those
    without an error.
    """
    if action.status != "open":
        # It was closed meanwhile: by the agent in the turn itself, or by a person, which withdrew the mission.
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
