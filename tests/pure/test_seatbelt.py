"""The profile of macOS's sandbox, as text: it cannot run here."""

from __future__ import annotations

from pathlib import Path

from sprite.sandbox.places import Kind
from sprite.sandbox.seatbelt import keeps, profile

HOME, WORK, SOCKET = Path("/Users/ada"), Path('/Users/ada/a "b"'), Path("/Users/ada/w/.os/run/egress.sock")


def test_profile_closes_all_but_workspace_and_own_ports() -> None:
    rules: dict[Path, Kind] = {HOME: "private", WORK: "write", WORK / ".envrc": "protect", WORK / ".os": "hide"}
    text = profile(rules, [], [SOCKET], [21])
    lines = text.splitlines()
    order = [
        '(deny file-read* file-write* (subpath "/Users/ada"))',
        '(allow file-read* file-write* (subpath "/Users/ada/a \\"b\\""))',
        keeps(WORK / ".envrc"),
        '(deny file-read* file-write* (subpath "/Users/ada/a \\"b\\"/.os"))',
        f'(allow file-read* (literal "{SOCKET}"))',
        f'(allow network-outbound (remote unix-socket (path-literal "{SOCKET}")))',
        '(allow network-outbound (remote ip "localhost:21"))',
    ]
    # The last matching rule counts.
    assert [line for line in lines if line in order] == order
    for closed in ("network*", "mach-lookup", "appleevent-send", "file-write*", "signal", "lsopen"):
        assert any(line.startswith("(deny ") and closed in line for line in lines[: lines.index(order[0])])
    assert sum(line.startswith("(allow network") for line in lines) == 3
    assert text.count("(") == text.count(")")
