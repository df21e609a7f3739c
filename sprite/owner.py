"""Access for commands that change memory: as the workspace's owner, or through the running sprite that owns it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from sprite.backup.restore import refuse_cut_off
from sprite.config import Settings
from sprite.errors import OperatorError, PeerError, SpriteError, WorkspaceLockedError
from sprite.log.transcript import TranscriptDB, open_transcript, read_transcript
from sprite.memory.database import MemoryDB, open_memory, read_memory
from sprite.memory.files import MemoryFiles
from sprite.memory.folders import make_folders, workspace_lock
from sprite.memory.hand_changes import held_back
from sprite.memory.opening import open_own_memory, refuse_misfit
from sprite.memory.projection import Projection
from sprite.protocol.frames import decode_server, encode
from sprite.protocol.memory import MemoryRequest, MemoryResult
from sprite.protocol.messages import PROBE, Auth, Error, Reach, ReachResult, Status, System
from sprite.protocol.observing import Observe, Observed
from sprite.protocol.shapes import slow_words
from sprite.search.view import MemoryView
from sprite.workspace.database import WorkspaceDB, open_workspace

#: A forget waits for the running mission to end, then rewrites whole databases.
ANSWER_SECONDS = 600.0
CONNECT_SECONDS = 10.0
#: Limit for requests that only query the sprite's state.
PROBE_SECONDS = 5.0
MAX_LINE_BYTES = 64 * 1024 * 1024
_Answer = TypeVar("_Answer", bound=MemoryResult | ReachResult)
_Reply = TypeVar("_Reply", bound=MemoryResult | ReachResult | Status | Observed)


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of `probe`: the running sprite's address (None if none runs), its trouble and its slow work."""

    address: str | None
    #: Why it does not answer.
    trouble: str = ""
    slow: Sequence[str] = ()
    #: Why it waits for the person.
    paused: str = ""
    #: The agent's sandbox in words, None without an answer.
    sandbox: str | None = None

    @property
    def words(self) -> str:
        """The state in one line for people."""
        if self.address is None:
            return "not running"
        return f"running on {self.address}" + (f", but: {self.trouble}" if self.trouble else "")


@dataclass(frozen=True, slots=True)
class Owned:
    """The stores of a workspace that this process owns."""

    transcript: TranscriptDB
    memory: MemoryDB
    workspace: WorkspaceDB
    projection: Projection


@asynccontextmanager
async def owned(settings: Settings) -> AsyncIterator[Owned]:
    """Own the workspace and yield its stores. Raises WorkspaceLockedError, or OperatorError if there is no memory."""
    refuse_cut_off(settings)
    if not (settings.transcript_db).exists():
        raise OperatorError(f"There is no memory in {settings.workspace}: no sprite has run there yet.")
    async with AsyncExitStack() as stack:
        stack.enter_context(workspace_lock(settings))
        transcript = await stack.enter_async_context(open_transcript(settings.transcript_db))
        memory = await stack.enter_async_context(open_own_memory(settings.memory_db, transcript))
        workspace = await stack.enter_async_context(open_workspace(settings.workspace_db))
        yield Owned(transcript, memory, workspace, Projection(transcript, memory, MemoryFiles(settings.memory)))


@asynccontextmanager
async def open_log(settings: Settings, *, briefly: bool = False) -> AsyncIterator[TranscriptDB]:
    """Own the workspace and yield its log, to append to it; create missing files. Raises WorkspaceLockedError.

    `briefly`: the block is short, so that other processes wait for its end. The sprite's next start updates memory.
    """
    make_folders(settings)
    with workspace_lock(settings, briefly=briefly):
        # A resumed import would replace what is written before.
        refuse_cut_off(settings)
        async with open_transcript(settings.transcript_db) as transcript:
            if not settings.memory_db.exists():
                # `status` and `memory search` work before a sprite has ever run here.
                async with open_memory(settings.memory_db):
                    MemoryFiles(settings.memory).ensure()
            yield transcript


async def ask_running(settings: Settings, request: MemoryRequest | Reach, answer: type[_Answer]) -> _Answer:
    """Return the running sprite's answer. Raises OperatorError if there is none, PeerError if the sprite refuses."""
    try:
        return await ask(settings, request, answer)
    except (OSError, ValueError) as error:
        raise WorkspaceLockedError(
            f"A sprite owns {settings.workspace} but does not answer ({error}); stop it and try again."
        ) from error


async def ask_briefly(settings: Settings, request: Reach | System, answer: type[_Reply]) -> _Reply | None:
    """Return the running sprite's answer, or None without a connection. SpriteError if it is late or a refusal."""
    try:
        return await ask(settings, request, answer, seconds=PROBE_SECONDS)
    except TimeoutError as error:
        raise _silent(PROBE_SECONDS) from error
    except (OSError, ValueError):
        return None


def _silent(seconds: float) -> OperatorError:
    return OperatorError(f"The running sprite gave no answer in {seconds:.0f} s; look at its log, or stop it.")


async def probe(settings: Settings) -> Probed:
    """Return the running sprite's state, within PROBE_SECONDS."""
    if not settings.address_file.exists():
        return Probed(None)
    address = settings.address_file.read_text(errors="replace").strip()
    try:
        running = await ask_briefly(settings, System("status"), Status)
        reach = await ask_briefly(settings, Reach(), ReachResult)
    except SpriteError as error:
        return Probed(address, str(error))
    if running is None or reach is None:
        return Probed(None)
    session = running.session
    paused = f"{session.paused.why} Resume it on the page, or with /go-on in the chat." if session.paused else ""
    return Probed(address, slow=slow_words(session.slow, time.time()), paused=paused, sandbox=reach.sandbox)


async def connect(
    settings: Settings, client: str, seconds: float = CONNECT_SECONDS
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the running sprite and authenticate. Raises OSError (also a timeout) or ValueError if none runs."""
    host, _, port = settings.address_file.read_text().strip().rpartition(":")
    token = settings.token or settings.token_file.read_text().strip()
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(host, int(port), limit=MAX_LINE_BYTES)
    writer.write(encode(Auth(token=token, client=client)))
    return reader, writer


async def ask(
    settings: Settings,
    request: MemoryRequest | Reach | System | Observe,
    answer: type[_Reply],
    *,
    seconds: float = ANSWER_SECONDS,
) -> _Reply:
    """Return the running sprite's answer. Raises OSError (also after a slow connect) or ValueError if none runs.

    OperatorError if it does not answer in time or closes the connection, PeerError if it refuses.
    """
    client = PROBE if isinstance(request, System | Reach) else "command line"
    reader, writer = await connect(settings, client, min(seconds, CONNECT_SECONDS))
    try:
        writer.write(encode(request, message_id="1"))
        async with asyncio.timeout(seconds):
            while line := await reader.readline():
                message = decode_server(line)
                if isinstance(message.payload, Error) and message.reply_to in {"1", None}:
                    raise PeerError(message.payload.message, code=message.payload.code)
                if isinstance(message.payload, answer) and message.reply_to == "1":
                    return message.payload
    except TimeoutError as error:
        raise _silent(seconds) from error
    finally:
        writer.close()
    raise OperatorError("The running sprite closed the connection; look at its log.")


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a workspace, read-only."""

    transcript: TranscriptDB
    memory: MemoryDB
    files: MemoryFiles
    view: MemoryView


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Stores]:
    """Open the stores read-only. Raises OperatorError if no sprite has run here, or memory is of another log."""
    refuse_cut_off(settings)
    async with AsyncExitStack() as stack:
        transcript = await stack.enter_async_context(read_transcript(settings.transcript_db))
        memory = await stack.enter_async_context(read_memory(settings.memory_db))
        await refuse_misfit(transcript, memory)
        files = MemoryFiles(settings.memory)
        files.hold(await held_back(memory, await transcript.curations.open_drift()))
        yield Stores(transcript, memory, files, MemoryView(transcript, memory, files, settings.own_project))
