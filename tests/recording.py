"""A recorder on a real log, and its recovery after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sprite.capture.recorder import TurnRecorder
from sprite.log.transcript import Observation, TranscriptDB, open_transcript
from tests.new_databases import put_transcript

SESSION = "s-1"


class Recording:
    """A recorder on a log, with its reports about the disk."""

    def __init__(self, transcript: TranscriptDB) -> None:
        self.transcript = transcript
        self.complaints: list[str] = []
        self.recorder = TurnRecorder(transcript, self.complaints.append)
        self.recorder.session_id = SESSION

    async def turns(self) -> list[Observation]:
        return await self.transcript.observations_after(0, 2**62)

    async def turn(self) -> Observation:
        (turn,) = await self.turns()
        return turn

    async def tool(self, prompt_id: str, tool_use_id: str, result: Any = "done", **more: Any) -> None:
        settled = {"is_error": False, "agent_id": None, **more}
        await self.recorder.tool_ended(prompt_id, tool_use_id, "Bash", {"command": tool_use_id}, result, **settled)


@asynccontextmanager
async def recording(folder: Path) -> AsyncIterator[Recording]:
    put_transcript(folder)
    async with open_transcript(folder / "transcript.db") as transcript:
        if await transcript.session_count() == 0:
            await transcript.start_session(SESSION)
        yield Recording(transcript)


def ids(turn: Observation) -> list[str]:
    return [call["tool_use_id"] for call in turn.tool_calls]


async def crash_and_recover(folder: Path, *, before: Callable[[Recording], Awaitable[None]]) -> list[Observation]:
    """Run `before` in a process that dies with only a journal; let the next one recover it."""
    async with recording(folder) as rec:
        await before(rec)
        await asyncio.sleep(0.01)
    async with recording(folder) as rec:
        await rec.recorder.recover()
        assert await rec.transcript.journal.entries() == []
        await rec.recorder.recover()
        return await rec.turns()
