"""One line in the bridge's log for a mission's beginning and one for its end: ids, and nothing that anybody said."""

from __future__ import annotations

import logging
import re
from collections import deque

from sprite.protocol.events import Ending

log = logging.getLogger(__name__)

_NOTED_MISSIONS = 100
#: An id is whatever its sender made it, so only what looks like one is written down.
_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class MissionLog:
    """The missions of one sprite, each noted once, however much the sprite says of it."""

    def __init__(self, sprite: str) -> None:
        self._sprite = sprite
        self._noted: deque[str] = deque(maxlen=_NOTED_MISSIONS)

    def received(self, mission_id: str) -> None:
        """Somebody has sent it."""
        if _ID.fullmatch(mission_id) and mission_id not in self._noted:
            self._noted.append(mission_id)
            log.info("mission received", extra={"sprite": self._sprite, "mission_id": mission_id})

    def ended(self, event: Ending) -> None:
        """The sprite says that it has ended."""
        if event.mission_id is not None and event.mission_id in self._noted:
            self._noted.remove(event.mission_id)
            log.info("mission %s", event.event, extra={"sprite": self._sprite, "mission_id": event.mission_id})
