"""The parts of `python -m bridge chat`: a connection to a bridge, a link over it, a screen, and shutdown."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from rich.text import Text

from bridge.client.link import BridgeLink, BridgeUnreachableError
from bridge.providers.provider import CHAT_HISTORY, SYSTEM
from bridge.terminal import drawing
from bridge.terminal.commands import Commands
from bridge.terminal.conversation import Conversation
from bridge.terminal.drawing import one_line, own_zone
from bridge.terminal.endpoints import LocalEndpoint, RemoteEndpoint
from bridge.terminal.pipe import Pipe
from bridge.terminal.terminal import Terminal
from sprite.common.tasks import TaskDiedError

#: Limit for a pipe's wait for an unreachable bridge, because no person can end the wait.
_PATIENCE_SECONDS = 30.0
_FAILED = 1
_SIGNALLED = 128


async def hold(endpoint: LocalEndpoint | RemoteEndpoint) -> int:
    """Run the conversation until the person leaves and return the exit status."""
    in_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    screen = Terminal(_history(endpoint)) if in_terminal else Pipe()
    ends = _Ends(catches_interrupt=not in_terminal)
    if isinstance(endpoint, LocalEndpoint):
        endpoint.on_death = ends.fail
    try:
        async with endpoint:
            patience = None if in_terminal else _PATIENCE_SECONDS
            async with BridgeLink(endpoint.connect, patience_seconds=patience) as link, asyncio.TaskGroup() as group:
                # A program that writes into a pipe may run in another time zone than its person.
                zone = own_zone(os.environ.get("TZ", "")) if in_terminal else None
                conversation = Conversation(link, screen, banner=lambda: _banner(endpoint), zone=zone)
                commands = Commands(conversation, screen, link)
                following = group.create_task(conversation.follow(), name="chat-follow")
                talking = group.create_task(screen.talk(conversation, commands), name="chat-talk")
                with ends.of(talking):
                    await asyncio.wait([talking])
                following.cancel()
            if isinstance(endpoint, LocalEndpoint) and endpoint.is_ours:
                await screen.line(drawing.note("storing the conversation, then stopping the sprite…"))
    except* BridgeUnreachableError as errors:
        await _explain(errors, screen)
        status = _FAILED
    except* TaskDiedError as deaths:
        for death in deaths.exceptions:
            await screen.line(drawing.note(f"bridge: {death}"))
        status = _FAILED
    except* BrokenPipeError:
        # The reader of stdout has closed it; the rest is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = _FAILED
    else:
        status = ends.status
    return status


class _Ends:
    """End the conversation on a signal, in order: the sprite is stopped, and its turn is stored."""

    def __init__(self, *, catches_interrupt: bool) -> None:
        # In a terminal the prompt handles Ctrl-C itself.
        interrupt = [signal.SIGINT] if catches_interrupt else []
        self._signals = [signal.SIGTERM, signal.SIGHUP, *interrupt]
        self._talking: asyncio.Task[None] | None = None
        self.status = 0

    def of(self, talking: asyncio.Task[None]) -> "_Ends":
        """Let signals cancel this task while the block runs."""
        self._talking = talking
        return self

    def __enter__(self) -> None:
        for number in self._signals:
            asyncio.get_running_loop().add_signal_handler(number, self._leave, _SIGNALLED + number)

    def __exit__(self, *error: object) -> None:
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)

    def fail(self) -> None:
        """End because the bridge started for this conversation has failed."""
        self._leave(_FAILED)

    def _leave(self, status: int) -> None:
        self.status = status
        if self._talking is not None:
            self._talking.cancel()


def _history(endpoint: LocalEndpoint | RemoteEndpoint) -> Path | None:
    """Return the path of the input history if the sprite is on this machine."""
    if isinstance(endpoint, RemoteEndpoint) or endpoint.settings.provider != "local":
        return None
    return endpoint.settings.workspaces / endpoint.person / SYSTEM / CHAT_HISTORY


def _banner(endpoint: LocalEndpoint | RemoteEndpoint) -> Text:
    if isinstance(endpoint, RemoteEndpoint):
        parts = [f"connected to {endpoint.url}"]
    else:
        demo = "demo model, not Claude" + (" (set ANTHROPIC_API_KEY for Claude)" if endpoint.is_ours else "")
        place = "a bridge started" if endpoint.is_ours else "the bridge that runs"
        parts = [demo if endpoint.offline_model else "Claude", f"{place} on {endpoint.settings.data}"]
    return Text.assemble(("Sprite", "bold cyan"), *((f" · {one_line(part)}", "dim") for part in (*parts, "/help")))


async def _explain(errors: BaseExceptionGroup[BridgeUnreachableError], screen: Terminal | Pipe) -> None:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            await _explain(error, screen)
        else:
            await screen.show(drawing.problem(str(error)))
