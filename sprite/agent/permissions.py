"""Ask a person before a tool runs: send questions through the feed, match answers by request id.

A question contains the call's whole unredacted input, because the agent could hide an action in any part left out.
The feed stores a redacted copy on disk. This module uses neither connections nor the SDK's types.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Literal

from sprite.agent.standing_rules import Call, StandingRules
from sprite.errors import PeerError
from sprite.feed import Feed
from sprite.protocol.exactness import arrives_as_it_is
from sprite.protocol.frames import encode
from sprite.protocol.messages import (
    MAX_FRAME_BYTES,
    PermissionRequest,
    PermissionResolved,
)

Decision = Literal["allow", "deny", "always"]
ANSWER_TIMEOUT_SECONDS = 600.0
#: Limit for all open questions as frames: a new client's state must fit one frame, and clients draw them.
MAX_OPEN_BYTES = MAX_FRAME_BYTES // 4


class DeniedError(Exception):
    """The tool call may not run; the message is for the agent."""


class PermissionDesk:
    """Track open questions; each waits for one answer."""

    def __init__(self, feed: Feed, rules: StandingRules) -> None:
        self._feed = feed
        #: Rules that allow a call without asking.
        self.rules = rules
        self._open: dict[str, asyncio.Future[Decision]] = {}
        self._requests: dict[str, PermissionRequest] = {}
        self._open_bytes = 0

    def questions(self) -> list[PermissionRequest]:
        """Return the open questions, oldest first."""
        return list(self._requests.values())

    async def ask(
        self, mission_id: str | None, call: Call, *, of_background: bool = False, is_unattended: bool = False
    ) -> None:
        """Return when the call may run, by a rule or a person's answer.

        Raises DeniedError on "deny", without a connected client, without an answer in time, or if the input cannot
        be shown whole. A question `of_background` work stays open when its turn ends. A question of `is_unattended`
        work waits for a client to connect, because a schedule may begin a turn while no client is connected.
        """
        if self.rules.cover(call):
            return
        if self._feed.audience == 0 and not is_unattended:
            raise DeniedError("Nobody is connected who could allow this. Say what you would have done instead.")
        rule, real_path = self.rules.offer(call), call.real_path
        request = PermissionRequest(
            str(uuid.uuid4()),
            mission_id,
            call.tool,
            dict(call.input),
            background=of_background,
            folder=self.rules.folder_of(call),
            real_path=None if real_path is None or str(real_path) == call.input["file_path"] else str(real_path),
            always=None if rule is None else rule.words,
        )
        decision = await self._word_on(request, self._size(request))
        if decision == "deny":
            raise DeniedError("The person said no to this. Ask what they would prefer.")
        if call.real_path != real_path:
            raise DeniedError("The path leads somewhere else by now than when the person was asked. Ask again.")
        if decision == "always" and rule is not None:
            self.rules.add(rule)

    async def _word_on(self, request: PermissionRequest, size: int) -> Decision:
        request_id = request.request_id
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._open[request_id], self._requests[request_id] = answer, request
        self._open_bytes += size
        self._feed.publish(request)
        decision: Decision | None = None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                decision = await answer
        except TimeoutError:
            raise DeniedError("Nobody answered within 10 minutes. Go on without it, or ask again later.") from None
        finally:
            del self._open[request_id], self._requests[request_id]
            self._open_bytes -= size
            # Every client that shows the question removes it.
            self._feed.publish(PermissionResolved(request_id, decision))
        return decision

    def _size(self, request: PermissionRequest) -> int:
        """Return the size of a question in bytes. Raises DeniedError if a person would not see all of it."""
        if not arrives_as_it_is(request.input):
            raise DeniedError("This has characters or numbers that cannot be shown to a person. Do it without them.")
        size = len(encode(request))
        if size > MAX_OPEN_BYTES:
            raise DeniedError(
                f"This has {size:,} bytes, too long to be shown whole to the person who has to allow it "
                f"({MAX_OPEN_BYTES:,} at most). Do it in smaller steps: write a long file part by part."
            )
        if self._open_bytes + size > MAX_OPEN_BYTES:
            raise DeniedError("Other long questions wait for the person's word. Ask again when they are answered.")
        return size

    def answer(self, request_id: str, decision: Decision) -> None:
        """Answer a question; "always" without a narrow rule means once. Raises PeerError if it is not open."""
        answer = self._open.get(request_id)
        if answer is None or answer.done():
            raise PeerError("This question is not open any more.", code="not_found")
        is_once = decision == "always" and self._requests[request_id].always is None
        answer.set_result("allow" if is_once else decision)

    def session_ended(self) -> None:
        """Revoke what was allowed for the session."""
        self.rules.revoke(None)

    def withdraw(self, mission_id: str) -> None:
        """Deny the turn's open questions, except those of background work."""
        for request_id, request in self._requests.items():
            if request.mission_id == mission_id and not request.background:
                self._deny(request_id)

    def withdraw_all(self) -> None:
        """Deny all open questions."""
        for request_id in self._open:
            self._deny(request_id)

    def _deny(self, request_id: str) -> None:
        answer = self._open[request_id]
        if not answer.done():
            answer.set_result("deny")
