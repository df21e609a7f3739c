"""Only what a notification shows whole can be allowed from it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridge.notify.notice import is_seen_whole
from sprite.protocol.messages import PermissionRequest

SHORT = PermissionRequest("r1", "m1", "Bash", {"command": "make deploy", "description": "Deploy", "timeout": 60})


def test_a_short_command_in_the_workspace_is_seen_whole() -> None:
    assert is_seen_whole(SHORT, "make deploy")


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
def test_what_has_more_to_it_than_its_words_is_not(change: dict[str, Any]) -> None:
    assert not is_seen_whole(msgspec.structs.replace(SHORT, **change), "make deploy")


@pytest.mark.parametrize(
    "command",
    ["", "x" * 161, "ls\nrm -rf /", "ls\u2028rm", "ls \u202e fdp.exe", "ls \u200b", "ls\u00a0x", "ls \ue000", "\0"],
)
def test_what_is_long_or_hides_something_is_not(command: str) -> None:
    assert not is_seen_whole(msgspec.structs.replace(SHORT, input={"command": command}), command)
