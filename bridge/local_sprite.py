"""A sprite on this machine, started when it is missing: a child process, and a model when there is no key.

Owns the child, the offline model it talks to, and their end. A sprite that already runs on the workspace is
used as it is and left alone. Knows nothing of the conversation.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Self

from bridge.sprite_link import Endpoint, LinkError, LinkRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

_START_SECONDS = 30.0
#: The sprite interrupts the turn, stores it and flushes within a deadline of its own, shorter than this.
_STOP_SECONDS = 30.0
#: One that never came up has nothing to store.
_ABANDON_SECONDS = 5.0
_POLL_SECONDS = 0.1
_KEPT_BYTES = 4000
_KEPT_LINES = 8
_READ_BYTES = 1 << 14
_OPERATOR_EXIT = 2
_LISTENING = re.compile(r"^sprite listening on (\S+):(\d+)\s*$", re.MULTILINE)
_LOCKED = re.compile(r"workspace_locked|already (?:owns|runs|running|in use)", re.IGNORECASE)


class _WorkspaceTakenError(LinkError):
    """Another sprite runs on this workspace."""


class LocalSprite:
    """`async with LocalSprite(workspace) as sprite:`; `sprite.locate` says where it listens.

    `locate` starts what is missing, also when the sprite has died meanwhile. `is_ours` tells a started one
    from one that was found running, `uses_offline_model` whether this process answers for the model.
    """

    def __init__(self, workspace: Path, *, permissions: str | None = None, environment: Mapping[str, str]) -> None:
        self.workspace = workspace
        self._permissions = permissions
        self._environment = dict(environment)
        self._child: _Child | None = None
        self._model_url: str | None = None
        self._stack = AsyncExitStack()

    @property
    def is_ours(self) -> bool:
        """Whether the sprite in use was started here, and so ends here."""
        return self._child is not None

    @property
    def uses_offline_model(self) -> bool:
        """Whether the built-in stand-in answers instead of Claude."""
        return self._model_url is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._child is not None:
                await self._child.stop()
        finally:
            # After the child: its last flush still needs the model.
            await self._stack.aclose()

    async def locate(self) -> Endpoint:
        """Return where the sprite listens, having started one if none runs. LinkError says why it cannot."""
        if self._child is not None and self._child.runs:
            return self._endpoint(*self._child.address)
        had_one = self._child is not None
        self._child = None
        try:
            self._child = await self._start()
        except _WorkspaceTakenError:
            return self._endpoint(*await self._running_address())
        except LinkRefusedError as error:
            if had_one:
                # It ran a moment ago, so it may run again: the caller goes on trying.
                raise LinkError(str(error)) from error
            raise
        return self._endpoint(*self._child.address)

    async def _start(self) -> _Child:
        try:
            self.workspace.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LinkRefusedError(f"The workspace cannot be made: {error}") from error
        command = [sys.executable, "-m", "sprite", "serve", "--workspace", str(self.workspace), "--port", "0"]
        if self._permissions is not None:
            command += ["--permissions", self._permissions]
        return await _Child.start(command, await self._child_environment())

    async def _child_environment(self) -> dict[str, str]:
        environment = dict(self._environment)
        if not (environment.get("ANTHROPIC_API_KEY") or environment.get("ANTHROPIC_AUTH_TOKEN")):
            if self._model_url is None:
                from bridge.offline_model import OfflineModel

                model = await self._stack.enter_async_context(OfflineModel(host="127.0.0.1", port=0))
                self._model_url = model.url
            environment["ANTHROPIC_BASE_URL"] = self._model_url
            environment["ANTHROPIC_API_KEY"] = "offline"
            # The stand-in is on this machine: a proxy on the way out would not find it.
            hosts = [environment.get("NO_PROXY") or environment.get("no_proxy"), "127.0.0.1", "localhost"]
            environment["NO_PROXY"] = environment["no_proxy"] = ",".join(filter(None, hosts))
        return environment

    async def _running_address(self) -> tuple[str, int]:
        """Return the address the running sprite wrote down; one that is just starting writes it soon."""
        path = self.workspace / ".os" / "run" / "address"
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while True:
                    with suppress(OSError, ValueError):
                        host, _, port = path.read_text().strip().rpartition(":")
                        return host.strip("[]"), int(port)
                    await asyncio.sleep(_POLL_SECONDS)
        raise LinkRefusedError(
            f"A sprite already runs on {self.workspace}, but {path} does not say where it listens. "
            "Stop that one, or choose another --workspace."
        )

    def _endpoint(self, host: str, port: int) -> Endpoint:
        token = self._environment.get("SPRITE_TOKEN")
        if not token:
            path = self.workspace / ".os" / "run" / "token"
            try:
                token = path.read_text().strip()
            except OSError as error:
                raise LinkRefusedError(f"The sprite's token cannot be read: {error}") from error
        return Endpoint(host, port, token)


class _Child:
    """One `sprite serve` process in a session of its own, so that the terminal's Ctrl-C stays with us."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._said = {"stdout": "", "stderr": ""}
        self._spoke = asyncio.Event()
        self._readers = [
            asyncio.create_task(self._listen("stdout", process.stdout), name="sprite-stdout"),
            asyncio.create_task(self._listen("stderr", process.stderr), name="sprite-stderr"),
        ]

    @classmethod
    async def start(cls, command: list[str], environment: Mapping[str, str]) -> _Child:
        # Where it exists, setpriv ends the sprite with us even when we are killed: its model would be gone.
        lifeline = [found, "--pdeathsig", "TERM"] if (found := shutil.which("setpriv")) else []
        process = await asyncio.create_subprocess_exec(
            *lifeline,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        child = cls(process)
        try:
            await child._until_listening()
        except BaseException:
            await child.stop(seconds=_ABANDON_SECONDS)
            raise
        return child

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    @property
    def address(self) -> tuple[str, int]:
        found = _LISTENING.search(self._said["stdout"])
        if found is None:
            raise LinkError("The sprite has not said where it listens.")
        return found[1].strip("[]"), int(found[2])

    async def stop(self, *, seconds: float = _STOP_SECONDS) -> None:
        """Ask it to end, and wait; past the bound (or when we are cancelled) end it and its children."""
        try:
            if self.runs:
                self._process.terminate()
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._process.wait()
        finally:
            if self.runs:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                await self._process.wait()
            for reader in self._readers:
                reader.cancel()
            await asyncio.wait(self._readers)

    async def _until_listening(self) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                while _LISTENING.search(self._said["stdout"]) is None:
                    if self._readers[0].done():
                        await self._process.wait()
                        await asyncio.wait(self._readers)
                        raise self._failure(f"The sprite ended with {self._process.returncode} at its start")
                    self._spoke.clear()
                    await self._spoke.wait()
        except TimeoutError:
            raise self._failure(f"The sprite did not start within {_START_SECONDS:.0f} seconds") from None

    def _failure(self, what: str) -> LinkError:
        said = self._said["stderr"]
        if self._process.returncode == _OPERATOR_EXIT and _LOCKED.search(said):
            return _WorkspaceTakenError()
        lines = [line for line in said.splitlines() if line.strip()][-_KEPT_LINES:]
        return LinkRefusedError("\n".join([f"{what}. It said:", *lines] if lines else [f"{what}."]))

    async def _listen(self, name: str, stream: asyncio.StreamReader | None) -> None:
        """Keep the pipe empty, and what was said last."""
        try:
            while stream is not None and (data := await stream.read(_READ_BYTES)):
                said = self._said[name] + data.decode(errors="replace")
                # The first line of stdout is the address, so there the beginning is what is kept.
                self._said[name] = said[:_KEPT_BYTES] if name == "stdout" else said[-_KEPT_BYTES:]
                self._spoke.set()
        finally:
            # The end of a pipe is news, too.
            asyncio.get_running_loop().call_soon(self._spoke.set)
