"""Names and addresses of hosts, before anything is connected."""

from __future__ import annotations

import ipaddress

import pytest

from sprite.common.addresses import is_public
from sprite.sandbox.hosts import Place


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("xn--pple-43d.com", "xn--pple-43d.com"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::FFFF:7f00:1", "127.0.0.1"),
        ("64:ff9b::7f00:1", "127.0.0.1"),
        ("2606:4700:0:0::1111", "2606:4700::1111"),
    ],
)
def test_host_spellings_have_one_form(text: str, host: str) -> None:
    assert Place.of(text, 443).host == host


@pytest.mark.parametrize(
    "text",
    [
        *("2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.01", "1.2.3.4.5", "example.123"),
        *("", ".", "..", "a..b", "-a.org", "a-.org", "exa mple.org", "ex%61mple.org", "user@example.org"),
        *(
            "\u0430pple.com",
            "example\u3002org",
            "fe80::1%eth0",
            "::1]",
            "a" * 64 + ".org",
            "a." * 127 + "org",
            "a/b",
            "a\\b",
        ),
    ],
)
def test_odd_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the standard library's words
        Place.of(text, 443)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_impossible_port_is_refused(port: int) -> None:
    with pytest.raises(ValueError, match="port"):
        Place.of("example.org", port)


def test_key_names_port_outside_the_web() -> None:
    assert [Place.of("example.org", port).key for port in (80, 443, 22)] == ["example.org"] * 2 + ["example.org:22"]
    assert Place.of("2606:4700::1111", 22).key == "[2606:4700::1111]:22"


@pytest.mark.parametrize(
    ("host", "port", "known"),
    [
        ("pypi.org", 443, True),
        ("pypi.org", 22, False),
        ("evil.pypi.org", 443, False),
        ("pypi.org.evil.org", 443, False),
        ("de.archive.ubuntu.com", 80, True),
        ("a.de.archive.ubuntu.com", 80, False),
        ("evilarchive.ubuntu.com", 80, False),
        ("github.com", 443, False),
    ],
)
def test_registry_is_matched_exactly(host: str, port: int, *, known: bool) -> None:
    assert Place.of(host, port).is_registry is known


@pytest.mark.parametrize("host", ["localhost", "intranet", "a.localhost", "printer.local", "metadata.google.internal"])
def test_local_name_is_known(host: str) -> None:
    assert Place.of(host, 80).is_local_name


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),  # noqa: S104 - refused
        *("100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "::7f00:1", "fe80::1", "fe80::1%2", "fec0::1", "fd00:ec2::254", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2001:0:1::1", "2001:db8::1", "3fff::1", "4000::1"),
    ],
)
def test_inner_address_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"])
def test_outer_address_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
