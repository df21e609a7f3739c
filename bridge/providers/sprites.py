"""Sprites on VMs of the same names: create them, update them when they wake, connect through the TCP proxy.

Output of a VM is never trusted; bootstrap.py lists the checks from outside.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import sprites

from bridge.providers import provider, vm_scripts
from bridge.providers.bootstrap import Archive, Bootstrap, Found, Plan, UpdateFailedError
from bridge.providers.machine import Machine, Status
from bridge.providers.vm_scripts import PORT, WORKSPACE
from sprite.common.tasks import Service, off_loop
from sprite.protocol.frames import FrameDecoder, PeerError, ServerMessage, decode_server, encode
from sprite.protocol.messages import Auth, AuthOk, StateSync

log = logging.getLogger(__name__)

#: Hosts of pip packages; a VM may reach these and the bridge.
PACKAGE_INDEX = ("pypi.org", "files.pythonhosted.org")
#: A service that boots with its VM usually listens by then; otherwise it is started.
_BOOT_SECONDS = 5.0
_LISTEN_SECONDS = 20.0
#: A first start compiles everything, on a small machine.
_PROBE_SECONDS = 60.0
_POLL_SECONDS = 0.2
#: While a VM keeps running, an earlier inspection stays valid for this long.
_SEEN_SECONDS = 600.0
#: Longest delay of an update for a running mission; only the sprite claims that one runs.
_PUT_OFF_SECONDS = 3600.0
_SHORT_SECONDS = 60.0
#: The import indexes every turn again.
_IMPORT_SECONDS = 1800.0
_GREETING_SECONDS = 10.0
#: A state contains the whole canvas.
_MAX_BYTES = 16 * 1024 * 1024
#: Sprite settings that are passed to the VM; other variables stay here.
SETTINGS = (
    "SPRITE_MODEL SPRITE_CURATOR_MODEL SPRITE_VERIFY SPRITE_BATCH_TURNS SPRITE_IDLE_FLUSH_SECONDS "
    "SPRITE_DAILY_USD SPRITE_BACKGROUND_TIMEOUT SPRITE_PREWARM_SECONDS SPRITE_SANDBOX".split()
)


def plan_of(archive: Archive, base_url: str, egress: str, environment: Mapping[str, str]) -> Plan:
    """Return the plan of every VM; `base_url` is the model proxy's, `egress` is `open`, `packages` or `bridge`."""
    bridge = urlsplit(base_url).hostname or ""
    packages = tuple(dict.fromkeys([bridge, *PACKAGE_INDEX]))
    settings = {name: environment[name] for name in SETTINGS if environment.get(name)}
    if egress == "open":
        return Plan(archive, base_url, (), (), settings)
    allowed = packages if egress == "packages" else (bridge,)
    return Plan(archive, base_url, allowed, packages, settings | {"SPRITE_EGRESS": egress})


class SpritesHost(Service):
    """Run sprites on VMs: `async with SpritesHost(...) as host:`; see Host.

    `access` creates a model token, and `knows` returns the sprite of a token (None: revoked). `guard` forbids creating
    a VM that must be restored. `epoch` is the number of this bridge's ownership of a sprite (see Ownership): a new one
    invalidates earlier inspections, and work begun under one stops when it changes.
    """

    is_one_step = False

    def __init__(
        self,
        token: str,
        plan: Plan,
        access: provider.Access,
        knows: Callable[[str], Awaitable[str | None]],
        *,
        api_url: str,
        guard: provider.Guard,
        epoch: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self._token = token
        self._api_url = api_url
        self._access = access
        self._knows = knows
        self._guard = guard
        self._epoch = epoch
        self._plan = plan
        self._vms: dict[str, _VM] = {}
        self._client: sprites.AsyncSpritesClient

    async def _open(self, stack: AsyncExitStack) -> None:
        self._client = await stack.enter_async_context(sprites.AsyncSpritesClient(self._token, base_url=self._api_url))

    async def reach(self, sprite: str, report: provider.Report) -> provider.Reached:
        """See Host. If an update fails, reports that and connects to the earlier version."""
        vm = self._vm(sprite)
        async with vm.alone():
            token = await vm.ready(report)
            return provider.Reached(await vm.connected(), token)

    async def deploy(self, sprite: str, report: provider.Report) -> None:
        """See Host. Without changes this takes three API calls."""
        vm = self._vm(sprite)
        async with vm.alone():
            await vm.deploy(report)

    async def state(self, sprite: str) -> provider.HostState:
        """See Host."""
        vm = self._vm(sprite)
        try:
            status = await vm.machine.status()
        except provider.HostError as error:
            return provider.HostState("unknown", vm.version, str(error))
        return provider.HostState(status, vm.version, vm.failure)

    async def fetch(self, sprite: str, path: str) -> AsyncIterator[bytes]:
        """See Host."""
        parts = provider.downloadable(path)
        chunks = self._vm(sprite).machine.stream("/".join([WORKSPACE, *parts]))
        try:
            first = await anext(chunks, b"")
        except FileNotFoundError:
            raise provider.NoSuchFileError(f"There is no file {'/'.join(parts)}.") from None
        return provider.with_first(first, chunks)

    async def export(self, sprite: str, report: provider.Report) -> AsyncIterator[bytes]:
        """See Host. The VM is updated first."""
        vm = self._vm(sprite)
        async with vm.alone():
            if await vm.machine.status() == "absent":
                await self._guard(sprite, False)
                raise provider.HostError(f"{sprite} has no VM yet: there is nothing to export.", retryable=False)
            await vm.ready(report)
        report("connecting", "The archive is being written.")
        return vm.machine.output(vm_scripts.EXPORT, "writing the archive")

    async def is_there(self, sprite: str) -> bool:
        """See Host."""
        return await self._vm(sprite).machine.status() != "absent"

    async def restore(self, sprite: str, archive: Path, report: provider.Report, *, begin: provider.Begin) -> str:
        """See Host."""
        vm = self._vm(sprite)
        async with vm.alone():
            return await vm.restore(archive, report, begin=begin)

    def _vm(self, sprite: str) -> "_VM":
        if provider.checked_name(sprite) not in self._vms:
            epoch = partial(self._epoch, sprite)
            self._vms[sprite] = _VM(self._client, sprite, self._plan, self._access, self._knows, self._guard, epoch)
        return self._vms[sprite]


class _VM:
    """One sprite's VM and its known state. `alone`: one wake or deploy at a time."""

    def __init__(
        self,
        client: sprites.AsyncSpritesClient,
        name: str,
        plan: Plan,
        access: provider.Access,
        knows: Callable[[str], Awaitable[str | None]],
        guard: provider.Guard,
        epoch: Callable[[], int | None],
    ) -> None:
        self.machine = Machine(client, name, self._check)
        self._guard = guard
        self._epoch = epoch
        self._lock = asyncio.Lock()
        #: The ownership under which the current work runs.
        self._by: int | None = None
        self._is_acting = False
        self.version: str | None = None
        #: Reason of the last failed update, otherwise "". It is not retried automatically, as each try stops the
        #: sprite.
        self.failure = ""
        self._plan = plan
        self._access = access
        self._bootstrap = Bootstrap(self.machine, plan, self._own_access, knows, self._probe)
        self._token: str | None = None
        self._seen_at = float("-inf")
        self._seen_by: int | None = None
        self._put_off_at: float | None = None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock, and fail further calls if this bridge loses the sprite meanwhile. Raise HostError."""
        async with self._lock:
            self._by, self._is_acting = self._epoch(), True
            try:
                yield
            finally:
                self._is_acting = False

    async def ready(self, report: provider.Report) -> str:
        """Ensure that the VM runs the planned version, as far as can be checked; return the sprite's token."""
        if self._by != self._seen_by:
            # Another bridge may have replaced the VM or its token.
            self._seen_at, self._seen_by = float("-inf"), self._by
        status = await self.machine.status()
        now = asyncio.get_running_loop().time()
        if status == "running" and self._token is not None and now - self._seen_at < _SEEN_SECONDS:
            return self._token
        await self._guard(self.machine.name, status != "absent")
        found = await self._look(status, report)
        if not await self._bootstrap.is_current(found):
            await self._update(found, report)
        else:
            self._note(found.version, found.token)
        if self._token is None:
            raise provider.HostError("The VM's sprite kept no access token.")
        return self._token

    async def deploy(self, report: provider.Report) -> None:
        """Install the plan on the VM if it is not current, or raise why that failed; always inspect the VM first."""
        report("connecting", "Checking the VM.")
        status = await self.machine.status()
        await self._guard(self.machine.name, status != "absent")
        found = await self._look(status, report)
        if await self._bootstrap.is_current(found) and found.token is not None:
            with suppress(provider.HostError):
                report("connecting", "The VM is up to date. Checking that the sprite answers.")
                await self._probe(found.token, _LISTEN_SECONDS)
                self._note(found.version, found.token)
                return
            report("updating", "The sprite does not answer, so it is installed again.")
        self.failure = ""
        await self._install(found, report)

    async def restore(self, archive: Path, report: provider.Report, *, begin: provider.Begin) -> str:
        """Restore the sprite from an archive, on a new VM if it has none; see Host."""
        status = await self.machine.status()
        if status == "absent":
            # From here on there is no way back.
            await begin()
        found = await self._look(status, report)
        if not await self._bootstrap.is_current(found):
            await self._install(found, report)
        self._seen_at, self.failure = float("-inf"), ""
        machine = self.machine
        report("updating", "Sending the archive to the VM.")
        await machine.upload(vm_scripts.ARCHIVE, archive)
        report("updating", "Checking the archive on the VM.")
        await machine.run(vm_scripts.LOOK_THROUGH, "checking the archive", seconds=_IMPORT_SECONDS)
        await begin()
        report("updating", "Stopping the sprite.")
        await machine.stop(vm_scripts.SERVICE)
        aside = f"before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        script = vm_scripts.OWN + vm_scripts.PUT_ASIDE.format(aside=aside)
        has_memory = bool((await machine.run(script, "moving the workspace aside", seconds=_SHORT_SECONDS)).strip())
        is_kept = has_memory and status != "absent"
        report("updating", "Creating the workspace from the archive.")
        await machine.run(vm_scripts.IMPORT, "creating the workspace", seconds=_IMPORT_SECONDS)
        if not is_kept:
            script = f"rm -rf {vm_scripts.SYSTEM}/{aside}"
            await machine.run(script, "removing an empty folder", seconds=_SHORT_SECONDS)
        # Install again: the tokens of the earlier sprite must not open this one.
        await self._install(Found(), report)
        return f"{vm_scripts.SYSTEM}/{aside} on the VM" if is_kept else ""

    def _check(self) -> None:
        # A bridge that was suspended may continue while another one already works on the VM.
        if self._is_acting and self._epoch() != self._by:
            raise provider.HostError("Another bridge may have this sprite now, so this bridge leaves its VM alone.")

    async def _own_access(self, sprite: str) -> provider.ModelAccess:
        self._check()
        return await self._access(sprite)

    async def _look(self, status: Status, report: provider.Report) -> Found:
        """Inspect the VM; create it if it is absent."""
        if status == "absent":
            report("updating", "Creating the VM.")
            await self.machine.create()
            return Found()
        if status != "running":
            report("waking", "The sprite is waking up.")
        return await self._bootstrap.look()

    async def connected(self) -> provider.Channel:
        """Open a stream to the sprite's port, waiting for it to listen; start a sprite that does not run."""
        try:
            return await self._listening(_BOOT_SECONDS)
        except provider.HostError:
            # It does not answer, so inspect it again next time.
            self._seen_at = float("-inf")
            await self._bootstrap.revive()
            return await self._listening(_LISTEN_SECONDS)

    async def _update(self, found: Found, report: provider.Report) -> None:
        if self.failure and found.version is not None and found.token is not None:
            report("updating", self.failure)
            self._note(found.version, found.token)
            return
        if found.token is not None and await self._is_put_off(found, found.token):
            report("updating", "An update waits for the running mission to end.")
            self._note(found.version, found.token)
            # Inspect again next time.
            self._seen_at = float("-inf")
            return
        self._put_off_at = None
        try:
            await self._install(found, report)
        except UpdateFailedError as error:
            # The message quotes the VM; it goes only to the waiters and to `status`.
            log.warning("an update failed, the earlier version runs", extra={"sprite": self.machine.name})
            report("updating", str(error))
            if found.token is None:
                raise

    async def _is_put_off(self, found: Found, token: str) -> bool:
        """Return whether to postpone an update, for a limited time, because the earlier version is busy."""
        if found.version in {None, self._plan.stamp} or not await self._is_at_work(token):
            return False
        now = asyncio.get_running_loop().time()
        self._put_off_at = self._put_off_at or now
        return now - self._put_off_at < _PUT_OFF_SECONDS

    async def _install(self, found: Found, report: provider.Report) -> None:
        # Forget the state until the outcome is known.
        self._token, self.version = None, None
        try:
            token = await self._bootstrap.install(found, report)
        except UpdateFailedError as error:
            # Losing the sprite is no failure of the update: its next bridge tries again.
            self._check()
            self.failure = str(error)
            self._note(found.version, found.token)
            raise
        self._note(self._plan.stamp, token)
        log.info("deployed", extra={"sprite": self.machine.name})

    def _note(self, version: str | None, token: str | None) -> None:
        self.version, self._token = version, token
        self._seen_at = asyncio.get_running_loop().time()

    async def _listening(self, seconds: float) -> provider.Channel:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while True:
            try:
                return await self.machine.connect(PORT)
            except provider.HostError:
                if loop.time() > ends:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    async def _probe(self, token: str, seconds: float = _PROBE_SECONDS) -> None:
        """Wait until the sprite accepts its token from this bridge. Raise HostError if it does not, or not in time."""
        await greet(await self._listening(seconds), token)

    async def _is_at_work(self, token: str) -> bool:
        """Return whether an update would interrupt a mission; False if the sprite does not answer."""
        try:
            messages = await greet(await self.machine.connect(PORT), token, 2)
        except provider.HostError:
            return False
        states = [message.payload for message in messages if isinstance(message.payload, StateSync)]
        return any(state.session.running_mission_id is not None or state.session.queued > 0 for state in states)


async def greet(channel: provider.Channel, token: str, count: int = 1) -> list[ServerMessage]:
    """Authenticate over the channel and close it; return the sprite's first `count` messages: the welcome, the state.

    Raise HostError if the sprite does not accept the token, or not in time.
    """
    try:
        async with asyncio.timeout(_GREETING_SECONDS):
            channel.write(encode(Auth(token=token, client="deploy")))
            await channel.drain()
            messages = await _messages(channel, count)
    except (OSError, TimeoutError, PeerError) as error:
        raise provider.HostError("The sprite's first message is invalid.") from error
    finally:
        await channel.close()
    if not messages or not isinstance(messages[0].payload, AuthOk):
        raise provider.HostError("The sprite's first message is invalid.")
    return messages


async def _messages(channel: provider.Channel, count: int) -> list[ServerMessage]:
    decoder = FrameDecoder(_MAX_BYTES)
    messages: list[ServerMessage] = []
    while len(messages) < count and (data := await channel.read()):
        decoder.feed(data)
        while len(messages) < count and (frame := decoder.next_frame()) is not None:
            messages.append(await off_loop(len(frame), decode_server, frame))
    return messages
