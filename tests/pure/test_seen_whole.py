"""A permission can be granted from a notification only if the notification shows all of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridge.notify.notice import is_seen_whole
from sprite.protocol.messages import PermissionRequest

SHORT = PermissionRequest("r1", "m1", "Bash", {"command": "make deploy", "description": "Deploy", "timeout": 60})


def test_short_workspace_command_is_allowed() -> None:
    assert is_seen_whole(SHORT, "make deploy")


def test_host_is_allowed_if_it_is_shown() -> None:
    request = msgspec.structs.replace(SHORT, tool="network", input={"host": "example.org"})
    assert is_seen_whole(request, "example.org")
    assert not is_seen_whole(request, "example.or")
    assert not is_seen_whole(msgspec.structs.replace(request, input={"command": "ls"}), "ls")


@pytest.mark.parametrize(
    "change",
    [
        {"tool": "Write"},
        {"folder": "elsewhere"},
        {"redacted": True},
        {"input": {"command": "make deploy", "run_in_background": True}},
        {"input": {"command": "make deploy", "dangerouslyDisableSandbox": True}},
        {"input": {"command": "make deploy && rm -rf /"}},
        {"input": {"description": "make deploy"}},
        {"input": {"command": ["make deploy"]}},
        {"input": {}},
    ],
)
def test_request_with_unshown_parts_is_not_allowed(change: dict[str, Any]) -> None:
    assert not is_seen_whole(msgspec.structs.replace(SHORT, **change), "make deploy")


@pytest.mark.parametrize(
    "command",
    ["", "x" * 161, "ls\nrm -rf /", "ls\u2028rm", "ls \u202e fdp.exe", "ls \u200b", "ls\u00a0x", "ls \ue000", "\0"],
)
def test_long_or_obfuscated_request_is_not_allowed(command: str) -> None:
    assert not is_seen_whole(msgspec.structs.replace(SHORT, input={"command": command}), command)
