"""Ingest turns that other programs recorded: check each, write it once, and have it curated."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from sprite.errors import PeerError
from sprite.imports.claude_code_turns import CLAUDE_CODE
from sprite.imports.observed_turns import checked_source, logged, session_name
from sprite.log.curations import WAITING
from sprite.log.transcript import ImportedTurn, TranscriptDB
from sprite.privacy.private_text import PrivateText
from sprite.protocol.observing import MAX_OBSERVED_TURNS, Observe, Observed, ObservedTurn, RefusedTurn, others_project

#: Conversations whose private words are remembered, in memory only; the oldest are evicted.
MAX_CONVERSATIONS = 200
_OWN = "The session is this sprite's own, and is already in its log."


class ObservationIngest:
    """Handle `observe` messages one at a time.

    `turns_ended` is called when turns wait for curation; `private_text` tracks a conversation's private words.
    """

    def __init__(
        self,
        transcript: TranscriptDB,
        turns_ended: Callable[[], Awaitable[None]],
        private_text: Callable[[], PrivateText],
        own_project: str,
    ) -> None:
        self._transcript = transcript
        self._turns_ended = turns_ended
        self._new_confidences = private_text
        self._own_project = own_project
        self._conversations: OrderedDict[str, PrivateText] = OrderedDict()
        self._one_call = asyncio.Lock()
        # The thread of a disconnected caller still works on the same conversations.
        self._reading = threading.Lock()

    async def take(self, message: Observe) -> Observed:
        """Log the valid turns of a message; return counts and refusals. PeerError for its source or too many turns."""
        source = checked_source(message.source)
        if len(message.turns) > MAX_OBSERVED_TURNS:
            raise PeerError(
                f"{len(message.turns):,} turns are too many for one message: send at most {MAX_OBSERVED_TURNS}.",
                code="too_large",
            )
        try:
            project = others_project(message.project, self._own_project)
        except PeerError as error:
            return Observed(0, 0, [RefusedTurn(turn.external_id, str(error)) for turn in message.turns])
        async with self._one_call:
            return await self._take(source, project, message)

    async def _take(self, source: str, project: str | None, message: Observe) -> Observed:
        recorded_here = await self._transcript.cli_sessions() if source == CLAUDE_CODE else set()
        own = await self._transcript.own_sessions({session_name(source, turn.session) for turn in message.turns})
        refused: list[RefusedTurn] = []
        wanted = []
        for turn in message.turns:
            if session_name(source, turn.session) in own:
                refused.append(RefusedTurn(turn.external_id, _OWN))
            elif turn.session not in recorded_here:
                wanted.append(turn)
        known = len(message.turns) - len(refused) - len(wanted)
        # In a thread: rules over a mebibyte of text would block the loop for too long.
        turns, wrong = await asyncio.to_thread(self._read, source, project, wanted)
        new = await self._transcript.add_imported(turns) if turns else []
        if any(turn.observation.processed == WAITING for turn in new):
            await self._turns_ended()
        return Observed(len(new), known + len(turns) - len(new), [*refused, *wrong])

    def _read(
        self, source: str, project: str | None, turns: Sequence[ObservedTurn]
    ) -> tuple[list[ImportedTurn], list[RefusedTurn]]:
        taken: list[ImportedTurn] = []
        refused: list[RefusedTurn] = []
        now = time.time()
        with self._reading:
            for turn in turns:
                heard = self._confidences_of(session_name(source, turn.session))
                try:
                    taken.append(logged(source, project, turn, heard, now))
                except PeerError as error:
                    refused.append(RefusedTurn(turn.external_id, str(error)))
        return taken, refused

    def _confidences_of(self, session: str) -> PrivateText:
        heard = self._conversations.setdefault(session, self._new_confidences())
        self._conversations.move_to_end(session)
        while len(self._conversations) > MAX_CONVERSATIONS:
            self._conversations.popitem(last=False)
        return heard
