"""`python -m bridge chat`, put together: a sprite to talk to, a link to it, a screen, and their ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from bridge.chat import drawing
from bridge.chat.commands import Commands
from bridge.chat.conversation import Conversation
from bridge.chat.pipe import Pipe
from bridge.chat.untrusted import one_line
from bridge.local_sprite import LocalSprite
from bridge.sprite_link import Endpoint, LinkError, SpriteConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from bridge.chat.terminal import Terminal

_FAILED = 1
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Options:
    """What `chat` was asked for; with `connect` nothing is started and `workspace` is not used."""

    workspace: Path
    connect: Endpoint | None = None
    permissions: str | None = None


async def hold(options: Options) -> int:
    """Hold the conversation until the person leaves; the exit status."""
    in_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    screen = _terminal(options) if in_terminal else Pipe()
    ends = _Ends(catches_interrupt=not in_terminal)
    try:
        async with AsyncExitStack() as stack:
            locate, banner, sprite = await _place(options, stack)
            async with SpriteConnection(locate) as link, asyncio.TaskGroup() as group:
                conversation = Conversation(link, screen, banner=banner)
                commands = Commands(conversation, screen, link)
                following = group.create_task(conversation.follow(), name="chat-follow")
                talking = group.create_task(screen.talk(conversation, commands), name="chat-talk")
                with ends.of(talking):
                    await asyncio.wait([talking])
                following.cancel()
            if sprite is not None and sprite.is_ours:
                await screen.line(drawing.note("remembering what was said, then stopping the sprite…"))
    except* LinkError as errors:
        await _explain(errors, screen)
        status = _FAILED
    except* BrokenPipeError:
        # Whoever read our output left; the rest of it goes nowhere, without complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = _FAILED
    else:
        status = ends.status
    return status


class _Ends:
    """Signals that end the conversation in order: the sprite is stopped, memory is written."""

    def __init__(self, *, catches_interrupt: bool) -> None:
        # In a terminal the prompt takes Ctrl-C for itself.
        interrupt = [signal.SIGINT] if catches_interrupt else []
        self._signals = [signal.SIGTERM, signal.SIGHUP, *interrupt]
        self._talking: asyncio.Task[None] | None = None
        self.status = 0

    def of(self, talking: asyncio.Task[None]) -> _Ends:
        self._talking = talking
        return self

    def __enter__(self) -> None:
        for number in self._signals:
            asyncio.get_running_loop().add_signal_handler(number, self._end, number)

    def __exit__(self, *error: object) -> None:
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _end(self, number: int) -> None:
        self.status = _SIGNALLED + number
        if self._talking is not None:
            self._talking.cancel()


def _terminal(options: Options) -> Terminal:
    from bridge.chat.terminal import Terminal

    if options.connect is not None:
        return Terminal()
    return Terminal(options.workspace / ".os" / "run" / "chat_history")


async def _place(
    options: Options, stack: AsyncExitStack
) -> tuple[Callable[[], Awaitable[Endpoint]], Callable[[], Text], LocalSprite | None]:
    """Where the sprite is, and the line that says so."""
    if (endpoint := options.connect) is not None:

        async def given() -> Endpoint:
            return endpoint

        return given, lambda: _banner(f"connected to {endpoint.host}:{endpoint.port}"), None
    sprite = await stack.enter_async_context(
        LocalSprite(options.workspace, permissions=options.permissions, environment=os.environ)
    )
    return sprite.locate, lambda: _banner(_model(sprite), str(options.workspace)), sprite


def _banner(*parts: str) -> Text:
    return Text.assemble(("Sprite", "bold cyan"), *((f" · {one_line(part)}", "dim") for part in (*parts, "/help")))


def _model(sprite: LocalSprite) -> str:
    if not sprite.is_ours:
        return "already running here, joined"
    if sprite.uses_offline_model:
        return "offline stand-in, not Claude (set ANTHROPIC_API_KEY for Claude)"
    return "Claude"


async def _explain(errors: BaseExceptionGroup[LinkError], screen: Terminal | Pipe) -> None:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            await _explain(error, screen)
        else:
            await screen.show(drawing.problem(str(error), "python -m sprite doctor checks this machine."))
