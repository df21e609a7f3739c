"""A port for a server that returns at the same address, or whose address is needed before its start."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

#: Linux's setting for automatically assigned ports: outgoing connections, and listeners on port 0.
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000


def free_port() -> int:
    """Return a free port outside the range that the kernel assigns automatically."""
    while True:
        port = _LOWEST + secrets.randbelow(_first_ephemeral() - _LOWEST)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port


def _first_ephemeral() -> int:
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except OSError:
        # As on other systems, or higher.
        first = 32_768
    # If the range covers nearly all ports, a collision is only unlikely.
    return first if first > 2 * _LOWEST else 65_536
