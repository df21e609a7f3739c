"""The daily spending cap of memory, checked before every call."""

from __future__ import annotations

import time

from sprite.config import Settings
from sprite.database.curations import seconds_since_midnight
from sprite.database.transcript import TranscriptDB
from sprite.errors import SpriteError
from sprite.prices import price_of


class BudgetReachedError(SpriteError):
    """Today's spending cap for memory is reached; turns are kept and are curated tomorrow."""

    code = "daily_cap"


async def check_budget(settings: Settings, transcript: TranscriptDB) -> None:
    """Raise BudgetReachedError if today's cap is reached, or the model's price is unknown."""
    cap = settings.daily_usd
    if cap is None or settings.is_offline:
        return
    if price_of(settings.curator_model) is None:
        raise BudgetReachedError(
            f"The price of {settings.curator_model} is not known, so a daily cap cannot be kept: turns wait. "
            "Choose another SPRITE_CURATOR_MODEL, or unset SPRITE_DAILY_USD."
        )
    if await transcript.spending.total(since=time.time() - seconds_since_midnight()) >= cap:
        raise BudgetReachedError(f"{BudgetReachedError.__doc__} (SPRITE_DAILY_USD={cap:g})")
