"""Embed texts: with the bundled model in a confined process, or at an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import json
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol
from urllib.parse import parse_qs, urlsplit

from sprite.common import own_secrets
from sprite.config import Settings
from sprite.sandbox.sandbox import confined_command
from sprite.search.meaning.worker import MODEL, WEIGHTS_SHA256

if TYPE_CHECKING:
    from httpx2 import AsyncClient

#: Name and weights; vectors of another model are deleted.
BUNDLED = f"{MODEL}, {WEIGHTS_SHA256[:16]}"
WORKER = Path(__file__).with_name("worker.py")
#: Loading takes a second, a text of 700 characters 0.3; more on a machine that is short of memory.
START_SECONDS, TEXT_SECONDS = 60.0, 30.0
REQUEST_SECONDS = 30.0
#: The endpoint's default model, which `?model=NAME` replaces.
DEFAULT_MODEL = "text-embedding-3-small"
_FLOAT_BYTES = 4
_REASON_CHARS = 300
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}


class EmbedderDiedError(Exception):
    """The embedding process ended, or cannot run here."""


class EndpointError(Exception):
    """The embedding endpoint did not answer with a vector. A later call may succeed."""


class Embedder(Protocol):
    """Compute vectors of texts; `model` identifies the vector space."""

    model: str

    async def embed(self, text: str, *, question: bool = False) -> Sequence[float]:
        """Return the vector of a text, or of a question about texts. Raises EmbedderDiedError or EndpointError."""

    async def warm(self) -> None:
        """Load the model, because a text will come soon. Raise the errors of `embed`."""

    async def release(self) -> None:
        """Free the model's memory until the next text."""


class ProcessEmbedder:
    """Run the bundled embedding model in a process without network, home and workspace, started on demand."""

    model = BUNDLED

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: Process | None = None
        self._said: IO[bytes] | None = None
        self._dimensions = 0
        self._lock = asyncio.Lock()

    async def warm(self) -> None:
        """See Embedder."""
        async with self._lock:
            await self._started()

    async def embed(self, text: str, *, question: bool = False) -> Sequence[float]:
        """See Embedder. A cancelled call ends the process: its answer would be taken for the next text's."""
        async with self._lock:
            process = await self._started()
            try:
                if process.stdin is None or process.stdout is None:
                    raise EmbedderDiedError
                process.stdin.write(json.dumps([text, question]).encode() + b"\n")
                size = self._dimensions * _FLOAT_BYTES
                answer = await asyncio.wait_for(process.stdout.readexactly(size), TEXT_SECONDS)
            except (OSError, EOFError, TimeoutError) as error:
                raise EmbedderDiedError(await self._last_words()) from error
            except asyncio.CancelledError:
                await self._end()
                raise
            return memoryview(answer).cast("f")

    async def release(self) -> None:
        """See Embedder."""
        async with self._lock:
            await self._end()

    async def _started(self) -> Process:
        if self._process is not None:
            if self._process.returncode is None:
                return self._process
            raise EmbedderDiedError(await self._last_words())
        command = [*confined_command(self._settings, WORKER), str(self._settings.memory)]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _end
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=self._said, cwd="/", env=_ENVIRONMENT
            )
            if self._process.stdout is not None:
                first = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS)
                self._dimensions = int(first)
        except (OSError, ValueError, TimeoutError) as error:
            raise EmbedderDiedError(await self._last_words()) from error
        return self._process

    async def _last_words(self) -> str:
        """End the embedding process, and return why it failed."""
        code, words = None, ""
        if self._process is not None:
            with suppress(TimeoutError):
                # A process that ended by itself has a code; it is about to be reaped.
                code = await asyncio.wait_for(self._process.wait(), 1.0)
        if self._said is not None:
            self._said.seek(0)
            words = " ".join(self._said.read().decode(errors="replace").split())[-_REASON_CHARS:]
        await self._end()
        return words or ("the process did not answer" if code is None else f"exit code {code}")

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if self._said is not None:
            self._said.close()
            self._said = None


class EndpointEmbedder:
    """Ask an OpenAI-compatible embedding endpoint: `https://[:KEY@]HOST/v1[?model=NAME]`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self._url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/embeddings"
        self._name = parse_qs(parts.query).get("model", [DEFAULT_MODEL])[0]
        self._key = parts.password
        own_secrets.hold(self._key)
        self._client: AsyncClient | None = None
        self.model = f"{self._name} at {host}{parts.path}"

    async def warm(self) -> None:
        """See Embedder."""

    async def embed(self, text: str, *, question: bool = False) -> Sequence[float]:  # noqa: ARG002 - the API has none
        """See Embedder."""
        import httpx2

        if self._client is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            # Made in a thread, because it reads the TLS roots.
            self._client = await asyncio.to_thread(httpx2.AsyncClient, headers=headers, timeout=REQUEST_SECONDS)
        try:
            answer = await self._client.post(self._url, json={"model": self._name, "input": text})
            answer.raise_for_status()
            return [float(number) for number in answer.json()["data"][0]["embedding"]]
        except (httpx2.HTTPError, ValueError, TypeError, LookupError) as error:
            # The key is in no error: it is sent in a header.
            raise EndpointError(f"{type(error).__name__}: {error}"[:_REASON_CHARS]) from error

    async def release(self) -> None:
        """See Embedder."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def embedder_of(settings: Settings) -> Embedder | None:
    """Return the embedder that the settings name, or None if search by meaning is off."""
    if settings.embeddings == "off":
        return None
    return ProcessEmbedder(settings) if settings.embeddings == "bundled" else EndpointEmbedder(settings.embeddings)
