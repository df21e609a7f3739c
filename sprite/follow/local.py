"""Deliver turns to a workspace on this machine: to the process that owns it, or directly into its log.

The workspace is locked only while a batch is written, because a sprite may start at any moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sprite.commands.owner import open_log, say_observed
from sprite.common.retry import backoff
from sprite.config import Settings
from sprite.database.transcript import ImportedTurn
from sprite.errors import OperatorError, PeerError, StorageError, WorkspaceLockedError
from sprite.follow.delivery import MOST_TURN_BYTES, Delivered, halves, messages
from sprite.protocol.observing import Observe, RefusedTurn

log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
#: Error codes of a sprite for a message that can never be accepted.
_WRONG = frozenset({"bad_request", "bad_payload", "bad_message", "too_large"})


class LocalDelivery:
    """See Delivery. It waits as long as a sprite does not answer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trouble = ""

    @property
    def waiting(self) -> int:
        """See Delivery: everything delivered is in the log."""
        return 0

    async def deliver(self, turns: Sequence[ImportedTurn]) -> Delivered:
        """See Delivery."""
        failures = 0
        while True:
            try:
                delivered = await self._try(turns)
            except (OSError, ValueError, OperatorError, PeerError, StorageError) as error:
                # Both occur briefly while a sprite starts or ends; a command may also hold the workspace.
                self._say(str(error))
                await asyncio.sleep(backoff(failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))
                failures += 1
            else:
                if self._trouble:
                    log.info("turns are handed over again")
                self._trouble = ""
                return delivered

    async def work(self) -> Delivered:
        """See Delivery: there is no pending work."""
        return Delivered()

    async def _try(self, turns: Sequence[ImportedTurn]) -> Delivered:
        try:
            return await self._write(turns)
        except WorkspaceLockedError:
            delivered = Delivered()
            for message in messages(turns, MOST_TURN_BYTES):
                delivered.add(await self._send(message))
            return delivered

    async def _write(self, turns: Sequence[ImportedTurn]) -> Delivered:
        async with open_log(self._settings, briefly=True) as transcript:
            own = await transcript.cli_sessions()
            others = [turn for turn in turns if turn.observation.session_id not in own]
            new = await transcript.add_imported(others)
            return Delivered(len(new), len(turns) - len(new))

    async def _send(self, message: Observe) -> Delivered:
        try:
            answer = await say_observed(self._settings, message)
        except PeerError as error:
            if error.code not in _WRONG:
                raise
            # One unacceptable turn must not block the others.
            if len(message.turns) == 1:
                return Delivered(refused=[(message.turns[0].external_id, str(error))])
            delivered = Delivered()
            for half in halves(message):
                delivered.add(await self._send(half))
            return delivered
        return Delivered(answer.stored, answer.known, [_named(refused) for refused in answer.refused])

    def _say(self, trouble: str) -> None:
        """Log a problem once, not at each attempt."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("turns cannot be handed over yet, and are kept: %s", trouble)


def _named(refused: RefusedTurn) -> tuple[str, str]:
    return refused.external_id, refused.why
