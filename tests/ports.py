"""A port for what has to be at the same place again after it was away, or is named before it is there."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

#: Where Linux says which ports it gives to whoever asks for any: connections going out, and listeners on port 0.
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000


def free_port() -> int:
    """A port that nobody listens on, and that the kernel gives to nobody meanwhile: none of its own choice is."""
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
        # As other systems have it, or higher.
        first = 32_768
    # Where nearly all of them are, it is only unlikely.
    return first if first > 2 * _LOWEST else 65_536
