"""Asking a person before a tool runs: questions out through the feed, answers back by request id.

Knows neither connections nor the SDK's types.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Literal

from sprite.errors import PeerError
from sprite.feed import Feed
from sprite.privacy.cutting import (
    Discreet,
    shown_input,
)
from sprite.protocol.messages import (
    PermissionRequest,
    PermissionResolved,
)

Decision = Literal["allow", "deny", "always"]
ANSWER_TIMEOUT_SECONDS = 600.0


class DeniedError(Exception):
    """The tool call may not run; the message is for the agent."""


class PermissionDesk:
    """Open questions, each waiting for one answer."""

    def __init__(self, feed: Feed, discreet: Discreet) -> None:
        self._feed = feed
        self._discreet = discreet
        self._open: dict[str, asyncio.Future[Decision]] = {}
        self._requests: dict[str, PermissionRequest] = {}

    def questions(self) -> list[PermissionRequest]:
        """The questions that are open, oldest first."""
        return list(self._requests.values())

    async def ask(
        self, mission_id: str | None, tool: str, tool_input: dict[str, Any], *, of_background: bool = False
    ) -> Literal["allow", "always"]:
        """Waits for a person's word. DeniedError on "deny", with nobody there, or without an answer in time.

        A question `of_background` work stays open when the turn ends that began this.
        """
        if self._feed.audience == 0:
            raise DeniedError("Nobody is connected who could allow this. Say what you would have done instead.")
        request_id = str(uuid.uuid4())
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._open[request_id] = answer
        # Shown cut like anything else of a tool call: the question must fit a frame whatever the input is.
        shown = shown_input(tool_input, self._discreet)
        request = PermissionRequest(request_id, mission_id, tool, shown, background=of_background)
        self._requests[request_id] = request
        self._feed.publish(request)
        decision: Decision | None = None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                decision = await answer
        except TimeoutError:
            raise DeniedError("Nobody answered within 10 minutes. Go on without it, or ask again later.") from None
        finally:
            del self._open[request_id], self._requests[request_id]
            # Every client that shows the question takes it down.
            self._feed.publish(PermissionResolved(request_id, decision))
        if decision == "deny":
            raise DeniedError("The person said no to this. Ask what they would prefer.")
        return decision

    def answer(self, request_id: str, decision: Decision) -> None:
        """A person's word. PeerError if the question is not open (any more)."""
        answer = self._open.get(request_id)
        if answer is None or answer.done():
            raise PeerError("This question is not open any more.", code="not_found")
        answer.set_result(decision)

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
