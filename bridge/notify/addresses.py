"""Which addresses the bridge connects to for a person: not those of its own network.

A person's browser names the push service, so a name that leads inside would have the bridge speak to what only it can
reach. Looked at when the connection is made: whatever the name meant before, this is the address that is dialled.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from aiohttp import TCPConnector

_AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[str, int, *tuple[int, ...]]]
#: IPv4 addresses written as IPv6 ones by a translator (RFC 6052); the last four bytes are the address.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet's, however it is written; False for what is none."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(found.packed[-4:])
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast


def outward_connector() -> TCPConnector:
    """Connects to the internet's addresses only; to any other it raises the OSError of a network that is not there."""
    return TCPConnector(socket_factory=_socket_to_outside)


def _socket_to_outside(info: _AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    if not is_public(address[0]):
        raise OSError(errno.EACCES, "this address is not one of the internet's")
    return socket.socket(family, kind, protocol)
