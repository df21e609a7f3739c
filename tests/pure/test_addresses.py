"""Classification of IP addresses in every notation: public, or inside the bridge's network."""

from __future__ import annotations

import pytest

from bridge.notify.push import is_public


@pytest.mark.parametrize("address", ["8.8.8.8", "142.250.185.74", "2a00:1450:4001:82a::200a", "64:ff9b::808:808"])
def test_internet_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",  # noqa: S104 - a way to loopback
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "ff02::1",
        "2001:db8::1",
        "",
        "push.example.org",
        "0x7f.1",
    ],
)
def test_other_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)
