"""Log the beginning and end of each mission, one line each: ids only, no content."""

from __future__ import annotations

import logging
import re
from collections import deque

from sprite.protocol.events import Ending

log = logging.getLogger(__name__)

_NOTED_MISSIONS = 100
#: A sender chooses the id, so only one that looks like a UUID is logged.
_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class MissionLog:
    """Missions of one sprite, each logged once, however many events the sprite sends about it."""

    def __init__(self, sprite: str) -> None:
        self._sprite = sprite
        self._noted: deque[str] = deque(maxlen=_NOTED_MISSIONS)

    def received(self, mission_id: str) -> None:
        """Log a mission that a client has sent."""
        if _ID.fullmatch(mission_id) and mission_id not in self._noted:
            self._noted.append(mission_id)
            log.info("mission received", extra={"sprite": self._sprite, "mission_id": mission_id})

    def ended(self, event: Ending) -> None:
        """Log the end of a mission that the sprite reports."""
        if event.mission_id is not None and event.mission_id in self._noted:
            self._noted.remove(event.mission_id)
            log.info("mission %s", event.event, extra={"sprite": self._sprite, "mission_id": event.mission_id})
