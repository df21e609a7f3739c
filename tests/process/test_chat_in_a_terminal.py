"""`python -m bridge chat` in a real terminal, with a real bridge, sprite, SDK and CLI."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import struct
import termios
import time
from pathlib import Path

from tests.bridge_harness import bridge_environment
from tests.forking import PYTHON, fork_module, forking_python
from tests.harness import PATIENCE, observations
from tests.inspection import eventually


class Window:
    """The window of a terminal, with its unread output and its keyboard."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def until_seen(self, words: str) -> None:
        """Read until `words` appear, and drop the output up to and including them."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.seen:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{words!r} did not appear: {self.seen[-2000:]}"
            self.seen += os.read(self._descriptor, 1 << 16).decode(errors="replace")
        self.seen = self.seen.partition(words)[2]

    def to_the_end(self) -> None:
        """Read until the program closes the terminal, because unread output would block it."""
        while select.select([self._descriptor], [], [], PATIENCE)[0]:
            try:
                os.read(self._descriptor, 1 << 16)
            except OSError:
                return


async def test_terminal_pastes_and_forgets_name(tmp_path: Path) -> None:
    data, home = tmp_path / "data", tmp_path / "home"
    workspace = data / "workspaces/local"
    home.mkdir()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    settings = {"HOME": str(home), "IS_SANDBOX": "1", "TERM": "xterm"}
    process = await fork_module(
        "bridge",
        "chat",
        "--data",
        str(data),
        "--permissions",
        "bypass",
        # This terminal does not answer cursor position requests.
        env=bridge_environment(**settings, **{PYTHON: forking_python()}, PROMPT_TOOLKIT_NO_CPR="1"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    window = Window(ours)
    try:
        window.until_seen("python -m bridge: starting")
        window.until_seen("demo model")
        window.type("my name is Wilhelmina\r")
        window.until_seen("Noted.")
        # The reply appears before the turn has ended and been logged.
        await eventually(lambda: bool(observations(workspace)), "the turn is not in the log")
        window.type("Is this so: \x1b[200~the sky\ris green\x1b[201~?\r")
        await eventually(lambda: len(observations(workspace)) > 1, "the turn is not in the log")
        asked = observations(workspace)[-1]
        assert (asked["user_message"], asked["pasted_json"]) == ("Is this so: the sky\nis green?", "[[12, 28]]")
        window.type("/flush\r")
        window.until_seen("remembered 1 thing")
        window.type("/forget Wilhelmina\r")
        window.until_seen("Forget it?")
        window.type("yes\r")
        window.until_seen("Forgotten.")
        window.type("/quit\r")
        window.to_the_end()
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
    finally:
        process.kill()
        os.close(ours)
    user = (workspace / ".os/memory/user.md").read_text()
    assert "Wilhelmina" not in user
    assert "Wilhelmina" not in (workspace / ".os/run/chat_history").read_text()
