"""The trial of a sandbox reports one that leaks, and the way out where the system forbids user namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sprite.config import Settings
from sprite.sandbox import sandbox
from sprite.sandbox.sandbox import Engine, attempts, find_boundary, sandboxed

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="bubblewrap is Linux's")
#: Bubblewrap without one of its options.
LEAKY = """#!/bin/bash
given=()
for part; do [ "$part" = {option} ] || given+=("$part"); done
exec {program} "${{given[@]}}"
"""


def _settings(folder: Path) -> Settings:
    settings = Settings(folder / "workspace")
    for path in (settings.memory, settings.run):
        path.mkdir(parents=True)
    return settings


def _program(folder: Path, text: str) -> Engine:
    path = folder / "bwrap"
    path.write_text(text)
    path.chmod(0o755)
    return Engine(str(path), overlays=False)


@pytest.mark.parametrize(
    ("option", "leaks"),
    [
        ("--unshare-net", ["connect to the machine's loopback", "connect to an abstract socket"]),
        ("--unshare-ipc", ["share memory with the machine's programs"]),
        ("--unshare-uts", ["rename the machine"]),
    ],
)
def test_leaky_sandbox_is_found_by_trial(option: str, leaks: list[str], tmp_path: Path) -> None:
    settings, real = _settings(tmp_path), next(sandbox._engines())
    assert attempts(settings, real) == ([], "")
    engine = _program(tmp_path, LEAKY.format(option=option, program=real.program))
    assert attempts(settings, engine) == (leaks, "")


MARKS = """
import ctypes, os, sys
libc, number = ctypes.CDLL(None), {"x86_64": 0, "aarch64": 1}[os.uname().machine]
open("plain", "w").close()
os.mkdir("folder")
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
for name, attempt in {
    "chmod": lambda: os.chmod("plain", 0o4755),
    "fchmod": lambda: os.fchmod(os.open("plain", os.O_RDONLY), 0o2755),
    "fchmodat": lambda: os.chmod("plain", 0o4755, dir_fd=os.open(".", os.O_RDONLY)),
    "fchmodat2": lambda: libc.syscall(452, os.open(".", os.O_RDONLY), b"plain", 0o4755, 0),
    "folder": lambda: os.chmod("folder", 0o2755),
    "open": lambda: os.open("opened", os.O_CREAT | os.O_WRONLY, 0o4755),
    "openat2": lambda: libc.syscall(437, -100, b"second", how, 24),
    "O_TMPFILE": lambda: os.link(f"/proc/self/fd/{os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755)}", "temporary"),
    "creat": lambda: libc.creat(b"created", 0o4755),
    "mknod": lambda: os.mknod("made", 0o104755),
}.items():
    try:
        attempt()
    except OSError:
        pass
"""


def test_nothing_becomes_setuid_inside(tmp_path: Path) -> None:
    settings, engine = _settings(tmp_path), next(sandbox._engines())
    python, control = os.path.realpath(sys.executable), tmp_path / "control"
    control.mkdir()
    subprocess.run([python, "-c", MARKS], cwd=control, check=True)
    marked = {path.name for path in control.iterdir() if path.stat().st_mode & 0o6000}
    assert marked >= {"plain", "folder", "opened", "second", "created", "made"}
    inside = sandboxed(settings, engine, {})
    subprocess.run([*inside, python, "-c", MARKS], cwd=settings.workspace, check=True)
    found = {path.name: path.stat().st_mode & 0o6000 for path in settings.workspace.iterdir()}
    assert {"plain", "folder"} <= found.keys()
    assert set(found.values()) == {0}


def test_apparmor_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Ubuntu 24.04."""
    engine = _program(tmp_path, "#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "restricted").write_text("1\n")
    monkeypatch.setattr(sandbox, "_UBUNTU", tmp_path / "restricted")
    monkeypatch.setattr(sandbox, "_engines", lambda: iter([engine]))
    found = find_boundary(_settings(tmp_path))
    assert not found.holds
    assert "setting up uid map: Permission denied. Ubuntu's AppArmor forbids it" in found.words
    assert f"profile sprite-bwrap {engine.program} flags=(unconfined)" in found.words
    assert "sudo apparmor_parser -r /etc/apparmor.d/sprite-bwrap" in found.words
