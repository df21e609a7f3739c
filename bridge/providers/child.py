"""Processes of `python -m sprite` on this machine: the sprite and its commands."""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from bridge.providers.provider import HostError
from bridge.providers.vm_scripts import last_lines
from sprite.common.tasks import TaskSet

#: The folder from which `python -m sprite` imports the package.
_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 30.0
#: The sprite interrupts the turn, stores it and flushes within a minute, by its own deadline.
_STOP_SECONDS = 65.0
#: A sprite that never listened has nothing to store.
_ABANDON_SECONDS = 5.0
_KEPT_BYTES = 4000
_READ_BYTES = 1 << 14
#: The sprite's exit code for "a person has to act".
_OPERATOR_EXIT = 2
_LISTENING = re.compile(r"^sprite listening on (\S+):(\d+)\s*$", re.MULTILINE)
_LOCKED = re.compile(r"already owns", re.IGNORECASE)
#: Of a command: a chunk of its output, and the kept end of its errors.
_OUTPUT_BYTES, _KEPT_ERROR_BYTES = 1 << 18, 8000
#: Environment variables that a sprite inherits, beside SPRITE_*: locations, never credentials.
_PASSED_ON = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM COLORTERM TMPDIR IS_SANDBOX SSL_CERT_FILE SSL_CERT_DIR "
    "NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE HTTP_PROXY HTTPS_PROXY http_proxy https_proxy".split()
)
_PASSED_ON_PREFIXES = ("SPRITE_", "LC_", "XDG_")
#: Each sprite has its own token, in its workspace.
_KEPT_BACK = frozenset({"SPRITE_TOKEN"})
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a sprite may inherit, with loopback excluded from proxies: the bridge is there."""
    kept = {
        name: value
        for name, value in environment.items()
        if (name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)) and name not in _KEPT_BACK
    }
    others = [environment.get("NO_PROXY") or environment.get("no_proxy"), *_LOOPBACK]
    kept["NO_PROXY"] = kept["no_proxy"] = ",".join(filter(None, others))
    return kept


async def _start(
    arguments: Sequence[str], environment: Mapping[str, str], stderr: int | IO[bytes]
) -> asyncio.subprocess.Process:
    """Start `python -m sprite ARGUMENTS` in its own session, with its stdout in a pipe. Raise OSError."""
    # setpriv, if installed, ends the process even when the bridge is killed: without the bridge it has no model.
    lifeline = [found, "--pdeathsig", "TERM"] if (found := shutil.which("setpriv")) else []
    return await asyncio.create_subprocess_exec(
        *lifeline,
        sys.executable,
        "-m",
        "sprite",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        env=environment,
        cwd=_ROOT,
        start_new_session=True,
    )


async def program_output(arguments: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yield the stdout of `python -m sprite ...`; closing kills it. Raise HostError with its last words if it fails."""
    # A file takes any amount of stderr; a pipe would have to be drained.
    with tempfile.TemporaryFile() as said:
        try:
            process = await _start(arguments, environment, said)
        except OSError as error:
            raise HostError(f"The sprite's command cannot be started ({error.strerror}).") from error
        try:
            while process.stdout is not None and (chunk := await process.stdout.read(_OUTPUT_BYTES)):
                yield chunk
            if await process.wait():
                said.seek(max(0, said.tell() - _KEPT_ERROR_BYTES))
                words = last_lines(said.read().decode(errors="replace"))
                raise HostError(f"The sprite's command failed:\n{words}", retryable=False)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


class WorkspaceTakenError(HostError):
    """Another sprite runs on this workspace."""


class RunningSprite(Protocol):
    """A sprite that this bridge started."""

    @property
    def runs(self) -> bool:
        """Return whether the sprite is still running."""

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port on which the sprite listens."""

    async def ended(self) -> str:
        """Wait for the end of the sprite's process and return a description of that end."""

    async def stop(self) -> None:
        """Stop the sprite gracefully."""


#: Starts a sprite on a workspace, with an environment and permissions (see Settings), and waits until it listens.
#: Raises WorkspaceTakenError or another HostError.
StartSprite = Callable[[Path, Mapping[str, str], str | None], Awaitable[RunningSprite]]


class Child:
    """A running sprite in its own session, so that a terminal's Ctrl-C reaches only the bridge."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._said = {"stdout": "", "stderr": ""}
        self._spoke = asyncio.Event()
        self._tasks = TaskSet()
        self._readers = [
            self._tasks.start(self._listen("stdout", process.stdout), "sprite-stdout"),
            self._tasks.start(self._listen("stderr", process.stderr), "sprite-stderr"),
        ]

    @classmethod
    async def start(cls, workspace: Path, environment: Mapping[str, str], permissions: str | None) -> "Child":
        """Start a sprite and wait until it listens. Raise WorkspaceTakenError, or HostError with its last output."""
        command = ["serve", "--workspace", str(workspace), "--port", "0"]
        if permissions is not None:
            command += ["--permissions", permissions]
        try:
            process = await _start(command, environment, asyncio.subprocess.PIPE)
        except OSError as error:
            raise HostError(f"The sprite's process cannot be started ({error.strerror}).") from error
        child = cls(process)
        try:
            await child._until_listening()
        except BaseException:
            await child.stop(seconds=_ABANDON_SECONDS)
            raise
        return child

    @property
    def runs(self) -> bool:
        """Return whether the process is running."""
        return self._process.returncode is None

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port on which the sprite listens."""
        found = _LISTENING.search(self._said["stdout"])
        if found is None:
            raise HostError("The sprite has not reported its address yet. Try again.")
        return found[1].strip("[]"), int(found[2])

    async def ended(self) -> str:
        """Wait for the end of the sprite's process; return its exit status and last lines as text."""
        code = await self._process.wait()
        await asyncio.wait(self._readers)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        return f"The sprite {how}. It said:\n{last_lines(self._said['stderr'])}"

    async def stop(self, *, seconds: float = _STOP_SECONDS) -> None:
        """Terminate the process and wait for its end. After the timeout, or if cancelled, kill it with its children."""
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
            await self._tasks.close()

    async def _until_listening(self) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                while _LISTENING.search(self._said["stdout"]) is None:
                    if self._readers[0].done():
                        message = await self.ended()
                        is_for_a_person = self._process.returncode == _OPERATOR_EXIT
                        if is_for_a_person and _LOCKED.search(self._said["stderr"]):
                            raise WorkspaceTakenError(message)
                        raise HostError(message, retryable=not is_for_a_person)
                    self._spoke.clear()
                    await self._spoke.wait()
        except TimeoutError:
            said = f"It said:\n{last_lines(self._said['stderr'])}"
            raise HostError(f"The sprite did not start within {_START_SECONDS:.0f} seconds. {said}") from None

    async def _listen(self, name: str, stream: asyncio.StreamReader | None) -> None:
        """Read a pipe of the process until its end, and keep a limited part of the output."""
        try:
            while stream is not None and (data := await stream.read(_READ_BYTES)):
                said = self._said[name] + data.decode(errors="replace")
                # The first line of stdout is the address, so its beginning is kept.
                self._said[name] = said[:_KEPT_BYTES] if name == "stdout" else said[-_KEPT_BYTES:]
                self._spoke.set()
        finally:
            # Waiters also need to learn of the end of a pipe.
            asyncio.get_running_loop().call_soon(self._spoke.set)
