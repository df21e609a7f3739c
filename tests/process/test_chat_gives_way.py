"""A terminal, a bridge that goes away, and a bridge that comes: real processes on one data folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge.config import from_environment
from bridge.data_folder import is_taken
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
        """Reads on to a line with these words."""
        while True:
            line = await self._line()
            assert line, f"it ended before {words!r}: {self.printed}"
            if words in line:
                return

    async def left(self) -> int:
        """Ends the input, where it has not ended, and reads to the end; the exit status."""
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
        *("chat", "--data", str(data), "--permissions", "bypass"),
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


async def test_a_bridge_that_was_killed_is_waited_for_and_not_replaced_by_the_terminals_own(data: Path) -> None:
    async with bridge_process(data, forks_sprites=True) as bridge, chatting(data) as chat:
        chat.say("/memory")
        await chat.until("user.md")
        await bridge.kill()
        await chat.until("Reconnecting")
        async with bridge_process(data, forks_sprites=True):
            chat.say("hello")
            await chat.until("stand-in model)")
            assert await chat.left() == 0
    assert "stopping the sprite" not in chat.printed


async def test_a_terminals_own_bridge_gives_way_to_one_that_serves_and_the_conversation_goes_on(data: Path) -> None:
    async with chatting(data) as chat:
        chat.say("my name is Wilhelmina")
        await chat.until("stand-in model)")
        async with bridge_process(data, forks_sprites=True) as bridge:
            await chat.until("has given way to one that serves")
            chat.say("what is my name?")
            await chat.until("name is Wilhelmina")
            assert await chat.left() == 0
            status, _, _ = await bridge.run("status")
            assert status == 0
    assert "stopping the sprite" not in chat.printed


async def test_in_a_pipe_a_turn_whose_bridge_was_killed_ends_with_words_and_a_status(data: Path) -> None:
    async with bridge_process(data, forks_sprites=True) as bridge, chatting(data) as chat:
        chat.say("run `tail -f /dev/null`")
        await chat.until("tail -f /dev/null")
        await chat.until("▸ Bash")
        await bridge.kill()
        assert await chat.left() == 1
    assert "The bridge has been away for" in chat.printed
    assert not is_taken(from_environment(data=data, port=0, permissions=None))
