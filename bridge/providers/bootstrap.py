"""Install a sprite on a VM in idempotent steps; each may be interrupted, and the next run repairs the rest.

The bridge hashes the VM's files itself, and trusts neither its VERSION nor its claims. Root on the VM can still send
one file and run another, so all input from a sprite counts as hostile.
"""

import gzip
import hashlib
import io
import logging
import re
import secrets
import shlex
import tarfile
import zlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridge.providers import vm_scripts
from bridge.providers.machine import CommandError, Machine
from bridge.providers.provider import TOKEN, Access, HostError, Report

#: Python writes this folder beside the code.
_LEFT_OUT = "__pycache__"
_SUFFIXES = frozenset({".py", ".md", ".json", ".toml"})
_DIGEST_CHARS = 12
#: Far above the size of a release; bounds the archives that an untrusted VM sends.
_MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Archive:
    """A release of the sprite's code. `digest` identifies code and requirements, `environment` only the latter."""

    version: str
    digest: str
    environment: str
    #: SHA-256 of each file, by its path in the archive.
    hashes: Mapping[str, str] = field(repr=False)
    #: A gzipped tar, with the same bytes for the same files.
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, root: Path) -> "Archive":
        """Build the archive from a checkout: `sprite/`, its requirements, and the tested versions."""
        contents = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted((root / "sprite").rglob("*"))
            if path.suffix in _SUFFIXES and _LEFT_OUT not in path.parts
        }
        contents["requirements.txt"] = (root / "sprite" / "requirements.txt").read_bytes()
        contents["constraints.txt"] = (root / "sprite" / "constraints.txt").read_bytes()
        found = _VERSION.search(contents["sprite/__init__.py"].decode())
        hashes = {name: _sha256(content) for name, content in contents.items()}
        return cls(
            version=found[1] if found else "0",
            digest=_digest_of(hashes),
            environment=_digest_of({name: hashes[name] for name in ("requirements.txt", "constraints.txt")}),
            hashes=hashes,
            data=_packed(contents),
        )


def contents_of(archive: bytes) -> dict[str, bytes]:
    """Return the files of a gzipped tar from a VM, without links and devices. ValueError if it is invalid."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_inflated(archive)), mode="r:") as tar:
            for member in tar:
                # A sparse member may claim any size.
                if member.isreg() and not member.issparse() and (stream := tar.extractfile(member)) is not None:
                    contents[member.name.removeprefix("./")] = stream.read()
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"The VM's files cannot be read: {error}") from error
    return contents


def _inflated(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    plain = unpacker.decompress(data, _MAX_ARCHIVE_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError("more data than the code can have")
    return plain


def _packed(contents: Mapping[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in contents.items():
            # The archive must not depend on this machine, its clock or its users.
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def _digest_of(hashes: Mapping[str, str]) -> str:
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return _sha256(lines.encode())[:_DIGEST_CHARS]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


log = logging.getLogger(__name__)

_SHORT_SECONDS = 60.0
_INSTALL_SECONDS = 900.0
_DOCTOR_SECONDS = 120.0
#: A sprite that was not started as a service ends within a minute.
_SWAP_SECONDS = 120.0


class UpdateFailedError(HostError):
    """An update failed and the earlier version still runs; the message says both."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Desired state of a VM. `settings` are SPRITE_* variables for the sprite.

    `allowed` are the domains that it may reach, `installing` those during package installation; empty means all.
    """

    archive: Archive
    base_url: str
    allowed: tuple[str, ...]
    installing: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """Return the VERSION of an up-to-date VM: the version and a digest of the whole plan."""
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
    """State that a VM reported: its VERSION, the hashes of its code, its own token and its token for the model."""

    version: str | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)
    model_token: str | None = field(default=None, repr=False)


class Bootstrap:
    """Inspect a VM and install the planned release. The caller ensures one run at a time for each VM.

    `knows` returns the sprite of a model token (None: revoked); `probe` waits until the sprite accepts the bridge.
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
        """Return the VM's current state. One API call; wakes the VM."""
        try:
            contents = contents_of(
                await self._machine.run(vm_scripts.LOOK, "looking at the VM", seconds=_SHORT_SECONDS)
            )
        except ValueError:
            # The VM sent no valid archive, so it is not up to date.
            return Found()
        model_env = _text(contents, vm_scripts.MODEL_ENV) or ""
        code = {name.removeprefix("src/"): data for name, data in contents.items() if name.startswith("src/")}
        return Found(
            version=_text(contents, vm_scripts.VERSION),
            hashes={name.removeprefix("./"): _sha256(data) for name, data in code.items()},
            token=_text(contents, TOKEN),
            model_token=_variables(model_env).get("ANTHROPIC_API_KEY"),
        )

    async def is_current(self, found: Found) -> bool:
        """Return whether the VM matches the plan, apart from its processes."""
        return (
            found.version == self._plan.stamp
            and found.hashes == self._plan.archive.hashes
            and bool(found.token)
            and found.model_token is not None
            and await self._knows(found.model_token) == self._machine.name
        )

    async def install(self, found: Found, report: Report) -> str:
        """Install the plan on the VM and return the sprite's token.

        Raise UpdateFailedError if that fails and the earlier version still runs, HostError if nothing runs.
        """
        release = f"releases/{self._plan.archive.digest}-{secrets.token_hex(4)}"
        token = found.token or secrets.token_urlsafe(32)
        try:
            earlier = await self._prepare(release, report)
        except HostError as error:
            if found.version is None:
                raise
            message = f"The update failed, and the earlier version is still running. {error}"
            raise UpdateFailedError(message, retryable=error.retryable) from error
        # Do not roll back to a release that was modified on the VM.
        is_changed = found.version == self._plan.stamp
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
        """Start an installed sprite that does not run. Raise HostError if it ends at once."""
        if not await self._machine.start(vm_scripts.SERVICE):
            # The sprite was started without a service, so no boot restarts it.
            await self._detach()

    async def _prepare(self, release: str, report: Report) -> tuple[str, str] | None:
        """Send, unpack, install and check a release. Return the (release, environment) in use, if there is one."""
        names = {"release": release.removeprefix("releases/"), "environment": self._environment}
        report("updating", "Setting the network policy.")
        await self._machine.restrict(self._plan.installing)
        report("updating", "Sending the code.")
        await self._machine.write(f"{vm_scripts.SYSTEM}/next-{names['release']}.tar.gz", self._plan.archive.data)
        report("updating", "Unpacking it.")
        script = vm_scripts.OWN + vm_scripts.UNPACK.format(**names)
        in_use = (await self._machine.run(script, "unpacking the code", seconds=_SHORT_SECONDS)).decode().split()
        report("updating", "Installing the packages.")

        def tell(line: str) -> None:
            if line.startswith(("Collecting ", "Downloading ", "Installing ")):
                report("updating", f"Installing the packages: {line[:80]}")

        script = vm_scripts.INSTALL.format(**names)
        await self._machine.run(script, "installing the packages", seconds=_INSTALL_SECONDS, tell=tell)
        report("updating", "Checking itself.")
        await self._machine.run(vm_scripts.DOCTOR.format(**names), "the self-check", seconds=_DOCTOR_SECONDS)
        if self._plan.allowed != self._plan.installing:
            report("updating", "Restricting the network.")
            await self._machine.restrict(self._plan.allowed)
        return (in_use[0], in_use[1]) if len(in_use) == 2 else None  # noqa: PLR2004 - a release, an environment

    async def _put_to_use(self, release: str, environment: str, token: str, found: Found, report: Report) -> None:
        """Write the secrets, swap the release in, start the sprite and probe it."""
        report("updating", "Handing over its token and its access to the model.")
        if found.token is None:
            await self._machine.write(f"{vm_scripts.SYSTEM}/{TOKEN}", f"{token}\n".encode(), mode=0o600)
        variables = {**self._plan.settings, **(await self._access(self._machine.name)).variables}
        model_env = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()).encode()
        await self._machine.write(f"{vm_scripts.SYSTEM}/{vm_scripts.MODEL_ENV}", model_env, mode=0o600)
        await self._restart(release, environment, token, report)

    async def _restart(self, release: str, environment: str, token: str, report: Report) -> None:
        report("updating", "Switching to the new version.")
        await self._machine.stop(vm_scripts.SERVICE)
        script = vm_scripts.OWN + vm_scripts.SWAP.format(release=release, environment=environment)
        await self._machine.run(script, "swapping the code", seconds=_SWAP_SECONDS)
        report("updating", "Starting it.")
        try:
            await self._machine.serve(vm_scripts.SERVICE, vm_scripts.COMMAND, f"{vm_scripts.SYSTEM}/src")
        except CommandError:
            raise
        except HostError:
            log.warning("services are not available; started as a process", extra={"sprite": self._machine.name})
            with suppress(CommandError):
                # If only the answer was lost, the service already holds the workspace; the probe decides.
                await self._detach()
        report("updating", "Checking that it works.")
        await self._probe(token)

    async def _detach(self) -> None:
        await self._machine.detach(f"cd {vm_scripts.SYSTEM}/src && {vm_scripts.START}")

    async def _roll_back(
        self, earlier: tuple[str, str], version: str, token: str, reason: HostError, report: Report
    ) -> None:
        report("updating", "The new version does not work; restoring the earlier one.")
        try:
            await self._restart(*earlier, token, report)
            await self._machine.write(f"{vm_scripts.SYSTEM}/{vm_scripts.VERSION}", f"{version}\n".encode())
        except HostError as error:
            message = f"The update failed, and going back to the earlier version failed too. {reason} {error}"
            raise HostError(message, retryable=error.retryable) from error


def _text(contents: Mapping[str, bytes], name: str) -> str | None:
    return contents.get(name, b"").decode(errors="replace").strip() or None


def _variables(text: str) -> dict[str, str]:
    """Return the variables in the text of a VM's model.env; other content is ignored."""
    try:
        words = shlex.split(text)
    except ValueError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)
