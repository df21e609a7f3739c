"""The parts of `python -m bridge chat`: a connection to a bridge, a link over it, a screen, and shutdown."""

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from bridge.client.end import End
from bridge.client.link import BridgeLink, BridgeUnreachableError
from bridge.errors import FAULT
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


async def hold(endpoint: LocalEndpoint | RemoteEndpoint) -> int:
    """Run the conversation until the person leaves and return the exit status."""
    in_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    screen = Terminal(_history(endpoint)) if in_terminal else Pipe()
    # In a terminal the prompt handles Ctrl-C itself.
    end = End(signal.SIGTERM, signal.SIGHUP, *([] if in_terminal else [signal.SIGINT]))
    if isinstance(endpoint, LocalEndpoint):
        endpoint.on_death = partial(end.come, FAULT)
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
                ending: list[asyncio.Future[Any]] = [talking, end.status]
                with end:
                    await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
                talking.cancel()
                following.cancel()
            if isinstance(endpoint, LocalEndpoint) and endpoint.is_ours:
                await screen.line(drawing.note("storing the conversation, then stopping the sprite…"))
    except* BridgeUnreachableError as errors:
        await _explain(errors, screen)
        status = FAULT
    except* TaskDiedError as deaths:
        for death in deaths.exceptions:
            await screen.line(drawing.note(f"bridge: {death}"))
        status = FAULT
    except* BrokenPipeError:
        # The reader of stdout has closed it; the rest is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = FAULT
    else:
        status = end.status.result() if end.status.done() else 0
    return status


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
