"""Sprites as processes on this machine, started on demand, restarted when they die, stopped with the bridge.

A sprite that already runs on a workspace is used and left alone. The model's real key never enters a sprite.
"""

import asyncio
import glob
import os
import shutil
import stat
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self

from bridge.providers import provider
from bridge.providers.child import Child, RunningSprite, StartSprite, WorkspaceTakenError, passed_on, program_output
from sprite.common.files import sync
from sprite.common.locks import is_held
from sprite.common.tasks import TaskSet, backoff
from sprite.protocol.files import on_disk

_CONNECT_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
#: A sprite that ran this long was healthy: its death counts as the first.
_WELL_SECONDS = 60.0
#: After this many deaths in a row the waiters get an error.
_DEATHS_TO_SAY = 3
#: After this many deaths no restart is tried until the sprite is requested again.
_DEATHS_TO_GIVE_UP = 8
#: A sprite that another program is starting writes its address within this time.
_ADDRESS_SECONDS = 10.0
_POLL_SECONDS = 0.1
#: Writing a batch of turns takes less.
_BRIEF_SECONDS = 10.0
_CHUNK_BYTES = 1 << 16
#: Longest token or address.
_LONGEST_WORD = 4096

#: Returns a sprite's workspace, given its default folder and whether to assign that folder if it has none.
Home = Callable[[str, Path, bool], Awaitable[Path]]


class LocalHost:
    """Run sprites on this machine, one workspace folder each; see Host.

    `access` is called at each start of a sprite, unless it has its `own_access` to a model, and `guard` before a
    workspace is created. `home` returns the workspace if it is not always the default folder, and may raise HostError.
    Leave the host while the model proxy still answers: a sprite's last flush needs it.
    """

    is_one_step = True

    def __init__(
        self,
        workspaces: Path,
        access: provider.Access,
        *,
        environment: Mapping[str, str],
        own_access: Mapping[str, str] | None = None,
        permissions: str | None = None,
        home: Home | None = None,
        guard: provider.Guard,
        start: StartSprite = Child.start,
    ) -> None:
        self._start_sprite = start
        self._workspaces = workspaces.resolve()
        self._access = access
        self._environment = passed_on(environment)
        self._own_access = own_access or {}
        self._permissions = permissions
        self._home = home
        self._guard = guard
        self._residents: dict[str, _Resident] = {}
        #: Sprites whose workspace is being replaced, with an event for the end.
        self._restores: dict[str, asyncio.Event] = {}
        #: Sprites for which a new workspace is being prepared.
        self._made_aside: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await asyncio.gather(*(resident.close() for resident in self._residents.values()))

    def running(self) -> list[str]:
        """Return the sprites that run as child processes and end with this host."""
        return [name for name, resident in self._residents.items() if resident.is_ours]

    def workspace(self, sprite: str) -> Path:
        """Return the default folder of a sprite, existing or not. Raise HostError for an invalid name."""
        return self._workspaces / provider.checked_name(sprite)

    async def home(self, sprite: str, *, claim: bool = False) -> Path:
        """Return the sprite's workspace or raise HostError. Before writing there, `claim` it, which fixes the path."""
        folder = self.workspace(sprite)
        if self._home is not None:
            folder = await self._home(sprite, folder, claim)
        if sprite not in self._restores:
            _finish_restore(folder)
        return folder

    async def reach(self, sprite: str, report: provider.Report) -> provider.Reached:
        """See Host."""
        while (restored := self._restores.get(sprite)) is not None:
            await restored.wait()
        resident = await self._resident(sprite)
        address = await resident.address(report)
        try:
            return await self._connected(resident, address)
        except provider.HostError:
            if resident.is_ours:
                raise
        # A sprite that another program had started is gone.
        resident.forget()
        return await self._connected(resident, await resident.address(report))

    async def deploy(self, sprite: str, report: provider.Report) -> None:
        """See Host. The code is that of this checkout, so only the process needs to be started."""
        resident = await self._resident(sprite)
        host, port = await resident.address(report)
        report("connecting", f"{sprite} runs in {resident.workspace}, on {host}:{port}.")

    async def state(self, sprite: str) -> provider.HostState:
        """See Host."""
        workspace = await self.home(sprite)
        resident = self._residents.get(sprite)
        if resident is not None and resident.is_ours:
            return provider.HostState("running")
        if not workspace.is_dir():
            return provider.HostState("absent")
        # The check takes the lock for a moment and must not disturb a start.
        if not (resident is not None and resident.is_starting) and is_held(workspace / provider.SYSTEM / provider.LOCK):
            return provider.HostState("running", detail="started elsewhere")
        detail = str(resident.failure) if resident is not None and resident.failure is not None else ""
        return provider.HostState("stopped", detail=detail)

    async def fetch(self, sprite: str, path: str) -> AsyncIterator[bytes]:
        """See Host. Does not follow symlinks, because the agent can create them."""
        parts = provider.downloadable(path)
        return _chunks(await asyncio.to_thread(_open_named, await self.home(sprite), "/".join(parts)))

    async def export(self, sprite: str, report: provider.Report) -> AsyncIterator[bytes]:
        """See Host. The sprite need not run and is not started."""
        workspace = await self.home(sprite)
        if not await self.is_there(sprite):
            await self._guard(sprite, False)
            raise provider.HostError(
                f"{sprite} has no agent on this machine yet: there is nothing to export.", retryable=False
            )
        report("connecting", "The archive is being written.")
        return program_output(["export", "-", "--workspace", str(workspace)], self._environment)

    async def is_there(self, sprite: str) -> bool:
        """See Host."""
        return ((await self.home(sprite)) / provider.SYSTEM / provider.LOG).is_file()

    async def restore(self, sprite: str, archive: Path, report: provider.Report, *, begin: provider.Begin) -> str:
        """See Host. A workspace is always a new one, put in place by renames; the earlier one is never deleted.

        The first rename decides. After an interruption the next lookup of the workspace finishes the others.
        """
        workspace = await self.home(sprite, claim=True)
        self._made_aside.add(sprite)
        try:
            new = await _make_aside(workspace, archive, self._environment, report)
            try:
                return await self._replace(sprite, workspace, new, report, begin)
            finally:
                # Remove it if it did not become the workspace.
                await asyncio.to_thread(shutil.rmtree, new, ignore_errors=True)
        finally:
            self._made_aside.discard(sprite)

    async def _replace(
        self, sprite: str, workspace: Path, new: Path, report: provider.Report, begin: provider.Begin
    ) -> str:
        self._restores[sprite] = asyncio.Event()
        try:
            if (resident := self._residents.pop(sprite, None)) is not None:
                report("updating", "Stopping the running sprite.")
                await resident.close()
            if is_held(workspace / provider.SYSTEM / provider.LOCK):
                raise provider.HostError(
                    f"A sprite runs on {workspace}, started elsewhere. Stop it first.", retryable=False
                )
            await begin()
            new.replace(_decided(workspace))
            sync(workspace.parent)
            return _finish_restore(workspace)
        finally:
            self._restores.pop(sprite).set()

    async def _resident(self, sprite: str) -> "_Resident":
        workspace = await self.home(sprite, claim=True)
        if sprite not in self._residents or self._residents[sprite].workspace != workspace:
            self._residents[sprite] = _Resident(workspace, lambda: self._start(sprite, workspace))
        return self._residents[sprite]

    async def _start(self, sprite: str, workspace: Path) -> RunningSprite:
        if not await self.is_there(sprite):
            await self._guard(sprite, False)
        try:
            workspace.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"The workspace {workspace} cannot be created ({error.strerror})."
            raise provider.HostError(message, retryable=False) from error
        if await _is_taken(workspace):
            # A new token would revoke the one of the running sprite.
            raise WorkspaceTakenError("The sprite is already running.")
        if sprite not in self._made_aside:
            await asyncio.to_thread(_sweep_restores, workspace)
        access = (await self._access(sprite)).variables
        if self._own_access:
            access = {**self._own_access, "SPRITE_CONNECTIONS": access["SPRITE_CONNECTIONS"]}
        environment = {
            **self._environment,
            **access,
            # Hidden from the agent, except for its own workspace.
            "SPRITE_DATA": str(self._workspaces.parent),
        }
        return await self._start_sprite(workspace, environment, self._permissions)

    async def _connected(self, resident: "_Resident", address: tuple[str, int]) -> provider.Reached:
        try:
            token = await asyncio.to_thread(_told_by, resident.workspace, provider.TOKEN)
            async with asyncio.timeout(_CONNECT_SECONDS):
                return provider.Reached(await provider.TcpChannel.open(*address), token)
        except (OSError, ValueError, TimeoutError, provider.NoSuchFileError) as error:
            raise provider.HostError(f"The sprite does not answer on {address[0]}:{address[1]}.") from error


class _Resident:
    """One local workspace and its sprite's process. While there is no process, `failure` says why."""

    def __init__(self, workspace: Path, start: Callable[[], Awaitable[RunningSprite]]) -> None:
        self.workspace = workspace
        self.failure: provider.HostError | None = None
        self._start = start
        self._child: RunningSprite | None = None
        self._address: tuple[str, int] | None = None
        self._news = asyncio.Event()
        self._tasks = TaskSet()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def is_ours(self) -> bool:
        """Return whether the process is a running child of this bridge."""
        return self._child is not None and self._child.runs

    @property
    def is_starting(self) -> bool:
        """Return whether a start is in progress or will be retried."""
        return self._keeper is not None and not self._keeper.done()

    async def address(self, report: provider.Report) -> tuple[str, int]:
        """Return the sprite's address once it listens. Raise HostError if it does not come up."""
        if self._keeper is None or (self._keeper.done() and self._address is None):
            report("waking", "The sprite is being started.")
            self.failure = None
            self._keeper = self._tasks.start(self._keep(), f"keeper of {self.workspace.name}")
        while self._address is None:
            if self.failure is not None:
                # Each waiter raises it: without the traceback of the one before.
                raise self.failure.with_traceback(None)
            self._news.clear()
            await self._news.wait()
        return self._address

    def forget(self) -> None:
        """Drop the address of a sprite that another program had started."""
        if not self.is_ours:
            self._address = None

    async def close(self) -> None:
        """Stop the sprite's process, if this bridge started it, and abandon a start in progress."""
        await self._tasks.close()
        if self._child is not None:
            await self._child.stop()

    async def _keep(self) -> None:
        try:
            await self._keep_up()
        finally:
            if self._address is None and self.failure is None:
                # A bug or the shutdown ended the keeper: inform the waiters; the next request tries again.
                self._tell(failure=provider.HostError("The sprite could not be started; the bridge's log says why."))

    async def _keep_up(self) -> None:
        """Start the sprite and restart it when it dies; return when only a new request justifies another try."""
        deaths = 0
        while deaths < _DEATHS_TO_GIVE_UP:
            try:
                self._child = await self._start()
                self._tell(address=self._child.address)
                began = time.monotonic()
                message = await self._child.ended()
                deaths = 1 if time.monotonic() - began > _WELL_SECONDS else deaths + 1
                failure = (
                    provider.HostError(f"The sprite died {deaths} times in a row. {message}")
                    if deaths >= _DEATHS_TO_SAY
                    else None
                )
            except WorkspaceTakenError:
                await self._adopt()
                return
            except provider.HostError as error:
                deaths += 1
                failure = error
            except Exception as error:  # noqa: BLE001 - a failed token reaches the waiters as an error message
                deaths += 1
                failure = provider.HostError(f"The sprite cannot be started: {error}")
            self._tell(failure=failure)
            if failure is not None and not failure.retryable:
                return
            await asyncio.sleep(backoff(deaths - 1, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))

    async def _adopt(self) -> None:
        """Use the sprite that already runs on the workspace; wait for the address of one that is just starting."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ADDRESS_SECONDS):
                while True:
                    with suppress(OSError, ValueError, provider.NoSuchFileError):
                        address = await asyncio.to_thread(_told_by, self.workspace, provider.ADDRESS)
                        host, _, port = address.rpartition(":")
                        self._tell(address=(host.strip("[]"), int(port)))
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        path = self.workspace / provider.SYSTEM / provider.ADDRESS
        message = (
            f"A sprite already runs on {self.workspace}, but {path} does not contain its address. Stop that sprite."
        )
        self._tell(failure=provider.HostError(message))

    def _tell(self, *, address: tuple[str, int] | None = None, failure: provider.HostError | None = None) -> None:
        self._address, self.failure = address, failure
        self._news.set()


async def _is_taken(workspace: Path) -> bool:
    """Return whether a sprite holds the workspace. Wait for a program that holds the lock briefly to append turns."""
    until = time.monotonic() + _BRIEF_SECONDS
    while is_held(workspace / provider.SYSTEM / provider.LOCK):
        with suppress(OSError, ValueError, provider.NoSuchFileError):
            if _told_by(workspace, provider.LOCK).endswith(" briefly") and time.monotonic() < until:
                await asyncio.sleep(_POLL_SECONDS)
                continue
        return True
    return False


def _open_below(workspace: Path, parts: tuple[str, ...]) -> BinaryIO:
    """Open a regular file part by part, so that no symlink leads out of the workspace."""
    with ExitStack() as opened:
        try:
            descriptor = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            for part in parts:
                # Non-blocking: opening a named pipe would wait for its other end.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(part, flags, dir_fd=descriptor)
                opened.callback(os.close, descriptor)
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        except OSError as error:
            raise provider.NoSuchFileError(f"There is no file {'/'.join(parts)}.") from error
        if not is_file:
            raise provider.NoSuchFileError(f"{'/'.join(parts)} is not a file.")
        return os.fdopen(os.dup(descriptor), "rb")


def _open_named(workspace: Path, path: str) -> BinaryIO:
    """Open a file by its name on the wire, which may match two names on disk."""
    likeliest, *others = on_disk(path)
    try:
        return _open_below(workspace, tuple(likeliest.split("/")))
    except provider.NoSuchFileError:
        if not others:
            raise
        return _open_below(workspace, tuple(others[0].split("/")))


def _told_by(workspace: Path, name: str) -> str:
    """Read a small file of a sprite. Its content is untrusted: it may be a symlink, a pipe or endless."""
    with _open_below(workspace, (provider.SYSTEM, *name.split("/"))) as file:
        return file.read(_LONGEST_WORD).decode().strip()


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk


async def _make_aside(workspace: Path, archive: Path, environment: Mapping[str, str], report: provider.Report) -> Path:
    """Return a new workspace beside the existing one, made from an archive. On HostError nothing is left of it."""
    report("updating", "Creating a workspace from the archive.")
    await asyncio.to_thread(_sweep_restores, workspace)
    # No sprite can have this name.
    new = workspace.with_name(f"{_under_way(workspace)}{uuid.uuid4()}")
    try:
        workspace.parent.mkdir(parents=True, exist_ok=True)
        async for _ in program_output(["import", str(archive), "--workspace", str(new)], environment):
            pass
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return new


def _sweep_restores(workspace: Path) -> None:
    """Remove unfinished workspaces; none may be in creation. The import of a killed bridge may leave a rest behind."""
    for left in list(workspace.parent.glob(f"{glob.escape(_under_way(workspace))}*")):
        shutil.rmtree(left, ignore_errors=True)


def _finish_restore(workspace: Path) -> str:
    """Finish a restore that was already decided, if there is one; return where the earlier workspace was moved."""
    if not _decided(workspace).exists():
        return ""
    aside = None
    # An empty folder is not worth keeping.
    with suppress(OSError):
        workspace.rmdir()
    if workspace.exists():
        aside = workspace.with_name(f"{workspace.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        workspace.rename(aside)
    _decided(workspace).rename(workspace)
    sync(workspace.parent)
    return "" if aside is None else str(aside)


def _under_way(workspace: Path) -> str:
    return f".{workspace.name}.restoring-"


def _decided(workspace: Path) -> Path:
    return workspace.with_name(f".{workspace.name}.restored")
