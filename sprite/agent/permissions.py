"""Asking a person before a tool runs: questions out through the feed, answers back by request id.

A question has the call's input as it will run, whole and unredacted: what the agent could hide in it, it could have
allowed unseen. The feed keeps another copy on disk. Knows neither connections nor the SDK's types.
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
#: Of all open questions, as frames: with them a newcomer's state still fits one, and a person's client draws them.
MAX_OPEN_BYTES = MAX_FRAME_BYTES // 4


class DeniedError(Exception):
    """The tool call may not run; the message is for the agent."""


class PermissionDesk:
    """Open questions, each waiting for one answer."""

    def __init__(self, feed: Feed, rules: StandingRules) -> None:
        self._feed = feed
        #: What runs without asking again.
        self.rules = rules
        self._open: dict[str, asyncio.Future[Decision]] = {}
        self._requests: dict[str, PermissionRequest] = {}
        self._open_bytes = 0

    def questions(self) -> list[PermissionRequest]:
        """The questions that are open, oldest first."""
        return list(self._requests.values())

    async def ask(
        self, mission_id: str | None, call: Call, *, of_background: bool = False, is_unattended: bool = False
    ) -> None:
        """Returns when the call may run, by a rule or by a person's word.

        DeniedError on "deny", with nobody there, without an answer in time, and where the input cannot be shown whole.
        A question `of_background` work stays open when the turn ends that began this. One of `is_unattended` work waits
        for somebody to come: nobody need be there when a schedule begins a turn.
        """
        if self.rules.cover(call):
            return
        if self._feed.audience == 0 and not is_unattended:
            raise DeniedError("Nobody is connected who could allow this. Say what you would have done instead.")
        rule, real_path = self.rules.offer(call), call.real_path
        request = PermissionRequest(
            *(str(uuid.uuid4()), mission_id, call.tool, dict(call.input)),
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
            # Every client that shows the question takes it down.
            self._feed.publish(PermissionResolved(request_id, decision))
        return decision

    def _size(self, request: PermissionRequest) -> int:
        """The bytes that a question takes. DeniedError where a person would not see all of it."""
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
        """A person's word; "always" without a narrow rule is this once. PeerError if the question is not open."""
        answer = self._open.get(request_id)
        if answer is None or answer.done():
            raise PeerError("This question is not open any more.", code="not_found")
        is_once = decision == "always" and self._requests[request_id].always is None
        answer.set_result("allow" if is_once else decision)

    def session_ended(self) -> None:
        """What was allowed for the session ends with it."""
        self.rules.revoke(None)

    def withdraw(self, mission_id: str) -> None:
        """The turn is over: its own open questions are answered with no."""
        for request_id, request in self._requests.items():
            if request.mission_id == mission_id and not request.background:
                self._deny(request_id)

    def withdraw_all(self) -> None:
        """Nothing goes on: open questions are answered with no."""
        for request_id in self._open:
            self._deny(request_id)

    def _deny(self, request_id: str) -> None:
        answer = self._open[request_id]
        if not answer.done():
            answer.set_result("deny")
