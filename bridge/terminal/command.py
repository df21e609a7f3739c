"""Base of all commands: asks the sprite and reports failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bridge.client.link import NotConnectedError
from bridge.terminal import drawing
from sprite.protocol.memory import MemoryResult
from sprite.protocol.messages import Error, LinkState, ServerPayload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.client.link import BridgeLink
    from bridge.terminal.conversation import Conversation
    from bridge.terminal.terminal import Screen
    from sprite.protocol.memory import AnyMemoryRequest
    from sprite.protocol.messages import ClientPayload, StandingRule


_Result = TypeVar("_Result", bound=MemoryResult)
LOOK_SECONDS = 15.0
#: The end of a session and a flush wait for one or more model calls.
MODEL_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its usage and description for `/help`, and the function for the rest of its line."""

    usage: str
    does: str
    run: Callable[[str], Awaitable[None]]


class CommandGroup:
    """Base of all commands. Requests to the sprite return None after a failure, which was shown to the person."""

    def __init__(self, conversation: Conversation, screen: Screen, link: BridgeLink) -> None:
        self._conversation = conversation
        self._screen = screen
        self._link = link
        #: The version of each action, and the standing rules, as last listed.
        self._seen: dict[int, int] = {}
        self._listed: list[StandingRule] = []

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        raise NotImplementedError

    async def ask(self, payload: ClientPayload, doing: str, seconds: float) -> ServerPayload | LinkState | None:
        """Send any request; the state line shows `doing` meanwhile."""
        try:
            with self._conversation.busy(doing):
                answer = (await self._link.ask(payload, timeout_seconds=seconds)).payload
        except NotConnectedError:
            await self._screen.show(drawing.problem("Not connected right now.", "Try again in a moment."))
        except TimeoutError:
            text = f"No answer within {seconds:.0f} seconds."
            await self._screen.show(drawing.problem(text, "It may still be done; /status tells."))
        else:
            if not isinstance(answer, Error):
                return answer
            await self._screen.show(drawing.problem(answer.message))
        return None

    async def look(
        self,
        request: AnyMemoryRequest,
        expected: type[_Result],
        doing: str = "looking",
        seconds: float = LOOK_SECONDS,
    ) -> _Result | None:
        """Send a memory request."""
        result = await self.ask(request, doing, seconds)
        return result if isinstance(result, expected) else None
