"""The trial of a sandbox reports one that leaks, and the way out where the system forbids user namespaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sprite.config import Settings
from sprite.sandbox import sandbox
from sprite.sandbox.sandbox import Engine, attempts, find_boundary

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
