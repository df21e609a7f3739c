"""Restrict outgoing connections for users to public addresses, outside the bridge's own network.

A browser names its push service, so a name that resolves to an internal address would let an attacker use the bridge
to reach internal services. The check runs on the address that is dialled, so a changed DNS answer cannot bypass it.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from aiohttp import TCPConnector

_AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[str, int, *tuple[int, ...]]]
#: IPv4 addresses translated to IPv6 (RFC 6052); the last four bytes are the IPv4 address.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether a string is a public IP address in any notation; False for an invalid one."""
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
    """Return a connector for public addresses; for any other it raises the OSError of an unreachable network."""
    return TCPConnector(socket_factory=_socket_to_outside)


def _socket_to_outside(info: _AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    if not is_public(address[0]):
        raise OSError(errno.EACCES, "this address is not one of the internet's")
    return socket.socket(family, kind, protocol)
