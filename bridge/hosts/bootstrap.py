"""How a VM becomes a sprite: idempotent steps, each of which may be cut off; the next run repairs what is left.

The code is looked at from outside: the VM sends the files themselves and they are hashed here, so that neither its
VERSION nor its word is relied on. (Whoever is root there can send one thing and run another. What the bridge gets
from a sprite is therefore hostile whatever its version; the hashes are for everything short of that.)
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from bridge.hosts import vm_scripts
from bridge.hosts.archive import Archive, contents_of, hashes_of
from bridge.hosts.faults import is_full_disk
from bridge.hosts.host import (
    Access,
    HostError,
    ModelAccess,
    Report,
)
from bridge.hosts.machine import CommandError, Machine, NotThereError
from bridge.hosts.workspace import TOKEN

log = logging.getLogger(__name__)

_SHORT_SECONDS = 60.0
_INSTALL_SECONDS = 900.0
_DOCTOR_SECONDS = 120.0
#: A sprite that was not started as a service ends within a minute.
_SWAP_SECONDS = 120.0


class UpdateFailedError(HostError):
    """An update failed and the earlier version runs on; the words say both."""

    shows_life = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What a VM should be. `settings` are SPRITE_* for the sprite.

    `allowed` are the domains it may reach, `installing` those while packages are installed; none means all.
    """

    archive: Archive
    base_url: str
    allowed: tuple[str, ...]
    installing: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """What VERSION says on a VM that is as it should be: the version, and a digest of everything."""
        parts = [
            self.archive.digest,
            self.base_url,
            *vm_scripts.COMMAND,
            *self.allowed,
            *map(str, sorted(self.settings.items())),
        ]
        return f"{self.archive.version}+{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Found:
    """What a VM sent of itself: its VERSION, its code's hashes, its own token and the one for the model."""

    version: str | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)
    model_token: str | None = field(default=None, repr=False)


class Bootstrap:
    """Looks at a VM and makes it what the plan says. One at a time for each VM: the caller sees to it.

    `knows` says whose a model token is, None for one that ended; `probe` returns once the sprite lets us in.
    """

    def __init__(
        self,
        machine: Machine,
        plan: Plan,
        access: Access,
        knows: Callable[[str], Awaitable[str | None]],
        probe: Callable[[str], Awaitable[None]],
    ) -> None:
        self._machine = machine
        self._plan = plan
        self._access = access
        self._knows = knows
        self._probe = probe
        self._environment = plan.archive.environment

    async def look(self) -> Found:
        """What is there now. One API call; wakes the VM."""
        try:
            contents = contents_of(
                await self._machine.run(vm_scripts.LOOK, "looking at the VM", seconds=_SHORT_SECONDS)
            )
        except ValueError:
            # Whatever it is, it is not what should be there.
            return Found()
        model_env = _text(contents, vm_scripts.MODEL_ENV) or ""
        return Found(
            version=_text(contents, vm_scripts.VERSION),
            hashes=hashes_of(contents, "src"),
            token=_text(contents, TOKEN),
            model_token=_variables(model_env).get("ANTHROPIC_API_KEY"),
        )

    async def is_current(self, found: Found) -> bool:
        """Whether the VM is as it should be, up to what its processes do."""
        return (
            found.version == self._plan.stamp
            and found.hashes == self._plan.archive.hashes
            and bool(found.token)
            and found.model_token is not None
            and await self._knows(found.model_token) == self._machine.name
        )

    async def install(self, found: Found, report: Report) -> str:
        """Brings the VM to the plan and returns the sprite's token.

        UpdateFailedError when it could not and the earlier version runs on; HostError when nothing runs.
        """
        release = f"releases/{self._plan.archive.digest}-{secrets.token_hex(4)}"
        token = found.token or secrets.token_urlsafe(32)
        try:
            earlier = await self._prepare(release, report)
        except HostError as error:
            if found.version is None:
                raise
            message = f"The update failed and the earlier version runs on. {error}"
            raise UpdateFailedError(message, retryable=error.retryable) from error
        # A release that was changed on the VM is nothing to go back to.
        is_changed = found.version == self._plan.stamp
        if earlier is not None and not is_changed and found.version is not None:
            await self._keep_checkpoint(report)
        try:
            await self._put_to_use(release, f"venvs/{self._environment}", token, found, report)
        except HostError as error:
            if earlier is None or is_changed or found.version is None:
                raise
            await self._roll_back(earlier, found.version, token, error, report)
            message = f"The update failed, and the earlier version runs again. {error}"
            raise UpdateFailedError(message, retryable=error.retryable) from error
        await self._machine.write(f"{vm_scripts.SYSTEM}/{vm_scripts.VERSION}", f"{self._plan.stamp}\n".encode())
        return token

    async def revive(self) -> None:
        """Starts a sprite that is in its place and does not run; HostError if it ends at once."""
        try:
            await self._machine.start(vm_scripts.SERVICE)
        except NotThereError:
            # It is one without a service, which no boot brings back.
            await self._detach()

    async def _prepare(self, release: str, report: Report) -> tuple[str, str] | None:
        """Everything that can be done beside a sprite that runs. The (release, environment) in use, None if none is."""
        names = {"release": release.removeprefix("releases/"), "environment": self._environment}
        report("updating", "Setting the network policy.")
        await self._machine.restrict(self._plan.installing)
        report("updating", "Sending the code.")
        await self._machine.write(f"{vm_scripts.SYSTEM}/next-{names['release']}.tar.gz", self._plan.archive.data)
        report("updating", "Unpacking it.")
        script = vm_scripts.OWN + vm_scripts.UNPACK.format(**names)
        in_use = (await self._run(script, "unpacking the code", _SHORT_SECONDS)).decode().split()
        report("updating", "Installing the packages.")
        await self._install_packages(names, report)
        report("updating", "Checking itself.")
        try:
            await self._run(vm_scripts.DOCTOR.format(**names), "the self-check", _DOCTOR_SECONDS)
        except CommandError:
            # Perhaps the packages of an earlier release are damaged: once more with new ones.
            report("updating", "The self-check failed; installing the packages anew.")
            remove = f"rm -f {vm_scripts.SYSTEM}/venvs/{self._environment}/.complete"
            await self._run(remove, "removing the packages", _SHORT_SECONDS)
            await self._install_packages(names, report)
            await self._run(vm_scripts.DOCTOR.format(**names), "the self-check", _DOCTOR_SECONDS)
        if self._plan.allowed != self._plan.installing:
            report("updating", "Closing the network.")
            await self._machine.restrict(self._plan.allowed)
        return (in_use[0], in_use[1]) if len(in_use) == 2 else None  # noqa: PLR2004 - a release, an environment

    async def _install_packages(self, names: Mapping[str, str], report: Report) -> None:
        def tell(line: str) -> None:
            if line.startswith(("Collecting ", "Downloading ", "Installing ")):
                report("updating", f"Installing the packages: {line[:80]}")

        await self._run(vm_scripts.INSTALL.format(**names), "installing the packages", _INSTALL_SECONDS, tell)

    async def _keep_checkpoint(self, report: Report) -> None:
        report("updating", "Making a checkpoint.")
        try:
            await self._machine.checkpoint(f"before {self._plan.stamp}")
        except HostError:
            # It is for an operator's second thoughts; the way back that is taken here needs none.
            log.warning("no checkpoint before an update", extra={"sprite": self._machine.name})

    async def _put_to_use(self, release: str, environment: str, token: str, found: Found, report: Report) -> None:
        """Secrets, swap, start, probe."""
        report("updating", "Handing over its token and its access to the model.")
        if found.token is None:
            await self._machine.write(f"{vm_scripts.SYSTEM}/{TOKEN}", f"{token}\n".encode(), mode=0o600)
        model_env = self._model_env(await self._access(self._machine.name))
        await self._machine.write(f"{vm_scripts.SYSTEM}/{vm_scripts.MODEL_ENV}", model_env, mode=0o600)
        await self._restart(release, environment, token, report)

    async def _restart(self, release: str, environment: str, token: str, report: Report) -> None:
        report("updating", "Swapping it in.")
        await self._machine.stop(vm_scripts.SERVICE)
        script = vm_scripts.OWN + vm_scripts.SWAP.format(release=release, environment=environment)
        await self._run(script, "swapping the code", _SWAP_SECONDS)
        report("updating", "Starting it.")
        try:
            await self._machine.serve(vm_scripts.SERVICE, vm_scripts.COMMAND, f"{vm_scripts.SYSTEM}/src")
        except CommandError:
            raise
        except HostError:
            log.warning("no service is to be had; started as a process", extra={"sprite": self._machine.name})
            with suppress(CommandError):
                # Where only the answer was lost, the service has the workspace; the probe will tell.
                await self._detach()
        report("updating", "Asking whether it is well.")
        await self._probe(token)

    async def _detach(self) -> None:
        await self._machine.detach(f"cd {vm_scripts.SYSTEM}/src && {vm_scripts.START}")

    async def _roll_back(
        self, earlier: tuple[str, str], version: str, token: str, reason: HostError, report: Report
    ) -> None:
        report("updating", "It is not well: going back to the earlier version.")
        try:
            await self._restart(*earlier, token, report)
            await self._machine.write(f"{vm_scripts.SYSTEM}/{vm_scripts.VERSION}", f"{version}\n".encode())
        except HostError as error:
            message = f"The update failed, and going back to the earlier version failed too. {reason} {error}"
            raise HostError(message, retryable=error.retryable) from error

    async def _run(self, script: str, what: str, seconds: float, tell: Callable[[str], None] | None = None) -> bytes:
        try:
            return await self._machine.run(script, what, seconds=seconds, tell=tell)
        except CommandError as error:
            if is_full_disk(str(error)):
                raise CommandError(f"The VM's disk is full. {error}", retryable=False) from error
            raise

    def _model_env(self, access: ModelAccess) -> bytes:
        variables = {
            **self._plan.settings,
            "ANTHROPIC_BASE_URL": access.base_url,
            "ANTHROPIC_API_KEY": access.token,
        }
        return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()).encode()


def _text(contents: Mapping[str, bytes], name: str) -> str | None:
    return contents.get(name, b"").decode(errors="replace").strip() or None


def _variables(text: str) -> dict[str, str]:
    """Reads what `_model_env` writes; anything else is left out."""
    try:
        words = shlex.split(text)
    except ValueError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)
