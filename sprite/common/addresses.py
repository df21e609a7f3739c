"""IP addresses: which are on the public internet, in whatever form they are written."""

from __future__ import annotations

import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
#: Addresses in public ranges that are a gateway to something private: 6to4, documentation, and Azure's host service.
_NOT_PUBLIC = [ipaddress.ip_network(net) for net in ("2002::/16", "3fff::/20", "168.63.129.16/32", "192.0.0.0/24")]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def plain_address(address: Address) -> Address:
    """Return the IPv4 address inside an IPv4-mapped or NAT64 address, else the address."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Return whether an address is on the public internet and is not one of this machine's own."""
    plain = plain_address(address)
    if not plain.is_global or plain.is_multicast or plain.is_reserved:
        return False
    if isinstance(plain, ipaddress.IPv6Address) and plain not in _UNICAST_V6:
        return False
    return not any(plain in net for net in _NOT_PUBLIC if net.version == plain.version) and not _is_own(address)


def _is_own(address: Address) -> bool:
    """Return whether an address is one of this machine, because a route to it begins at the address itself."""
    family = socket.AF_INET6 if isinstance(address, ipaddress.IPv6Address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # This sends nothing.
            probe.connect((str(address), 9))
            return bool(ipaddress.ip_address(probe.getsockname()[0]) == address)
        except OSError:
            # There is no route to it.
            return False
