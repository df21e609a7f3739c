"""The sandbox of macOS: a Seatbelt profile for `sandbox-exec`. Untested: `doctor` has to prove it before it is used.

It has no namespaces: loopback is shared, temporary files are in the CLI's state, and changed caches are refused.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import zlib
from pathlib import Path
from typing import Final

from sprite.config import Settings
from sprite.sandbox.places import Kind

PROGRAM: Final = "/usr/bin/sandbox-exec"
_START: Final = """(version 1)
(allow default)
(deny network* appleevent-send lsopen job-creation system-privilege)
(deny mach-lookup mach-register mach-priv* iokit-open)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo") (global-name "com.apple.bsd.dirhelper"))
(allow mach-lookup (global-name "com.apple.system.notification_center") (global-name "com.apple.trustd.agent"))
(deny signal process-info* ipc-posix-shm* ipc-sysv*)
(allow signal process-info* (target same-sandbox))
(deny file-write*)
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/dtracehelper"))
(deny file-read* (subpath "/Users") (subpath "/Volumes") (subpath "/private/tmp") (subpath "/private/var/folders"))"""
#: Of several matching rules the last one counts.
_RULES: Final[dict[Kind, tuple[str, ...]]] = {
    "hide": ("(deny file-read* file-write* (subpath {}))",),
    "private": ("(deny file-read* file-write* (subpath {}))",),
    "show": ("(allow file-read* (subpath {}))", "(deny file-write* (subpath {}))"),
    "cache": ("(allow file-read* (subpath {}))", "(deny file-write* (subpath {}))"),
    "protect": ("(allow file-read* (subpath {}))", "(deny file-write* (subpath {}))"),
    # Not renamed, so that no other one can take its place.
    "write": ("(allow file-read* file-write* (subpath {}))", "(deny file-write-unlink (literal {}))"),
}


def profile(found: dict[Path, Kind], shown: list[Path], sockets: list[Path], ports: list[int]) -> str:
    """Return a Seatbelt profile for rules about paths (`found`), outer paths first.

    Programs may also read the files `shown`, and connect to the `sockets` and loopback `ports`.
    """
    lines = [_START]
    lines += [rule.format(json.dumps(str(place))) for place, kind in found.items() for rule in _RULES[kind]]
    lines += [f"(allow file-read* (literal {json.dumps(str(path))}))" for path in (*shown, *sockets)]
    around = {outer for place, kind in found.items() if kind == "write" for outer in place.parents}
    lines += [f"(allow file-read-metadata (literal {json.dumps(str(outer))}))" for outer in sorted(around)]
    names = [json.dumps(str(path)) for path in sockets]
    lines += [f"(allow network-outbound (remote unix-socket (path-literal {name})))" for name in names]
    for port in ports:
        lines += [f'(allow network-bind network-inbound (local ip "localhost:{port}"))']
        lines += [f'(allow network-outbound (remote ip "localhost:{port}"))']
    return "\n".join(lines)


def keeps(place: Path) -> str:
    """Return the part of a profile that makes a path read-only."""
    return f"(deny file-write* (subpath {json.dumps(str(place))}))"


def egress_port(settings: Settings) -> int:
    """Return the loopback port of this workspace's egress proxy: all sandboxes share the machine's loopback."""
    return 20_000 + zlib.crc32(os.fsencode(settings.workspace)) % 20_000


def is_proved(settings: Settings) -> bool:
    """Return whether `doctor` has proved the sandbox on this version of macOS with this version of Sprite."""
    try:
        return _proof(settings).read_text() == _versions()
    except OSError:
        return False


def note_proof(settings: Settings, *, holds: bool) -> None:
    """Record whether `doctor` found that the sandbox works."""
    if sys.platform == "darwin":
        _proof(settings).write_text(_versions() if holds else "")


def _proof(settings: Settings) -> Path:
    return settings.run / "seatbelt"


def _versions() -> str:
    return f"{platform.mac_ver()[0]} {zlib.crc32(_START.encode())}"
