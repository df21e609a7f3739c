"""A terminal while bridges stop and start: real processes on one data folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.bridge_harness import bridge_environment, bridge_process
from tests.forking import PYTHON, fork_module, forking_python
from tests.harness import PATIENCE, Process, RunningProcess


class Chatting(RunningProcess):
    """`python -m bridge chat` over a pipe that stays open."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.printed = ""

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def until(self, words: str) -> None:
        """Read up to a line that contains `words`."""
        while True:
            line = await self._line()
            assert line, f"the terminal ended before {words!r}: {self.printed}"
            if words in line:
                return

    async def left(self) -> int:
        """Close the input, read to the end and return the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while await self._line():
            pass
        return await self.ended()

    async def _line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await self.process.stdout.readline()).decode()
        self.printed += line
        return line


@asynccontextmanager
async def chatting(data: Path) -> AsyncIterator[Chatting]:
    home = data.parent / "home"
    home.mkdir(exist_ok=True)
    process = await fork_module(
        "bridge",
        "chat",
        "--data",
        str(data),
        "--permissions",
        "bypass",
        env=bridge_environment(HOME=str(home), IS_SANDBOX="1", **{PYTHON: forking_python()}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    chat = Chatting(process)
    try:
        yield chat
    finally:
        await chat.kill()


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.mark.soak
async def test_chat_waits_for_killed_bridge(data: Path) -> None:
    """test_acp_conversation.py covers the connection that both programs share."""
    async with bridge_process(data, forks_sprites=True) as bridge, chatting(data) as chat:
        chat.say("/memory")
        await chat.until("user.md")
        await bridge.kill()
        await chat.until("Reconnecting")
        async with bridge_process(data, forks_sprites=True):
            chat.say("hello")
            await chat.until("Hello!")
            assert await chat.left() == 0
    assert "stopping the sprite" not in chat.printed
