"""`bridge serve --follow`: what is said in Claude Code is in the local person's memory."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bridge.offline.model import OfflineModel
from tests.bridge_harness import bridge_process, run_bridge
from tests.claude_code import ClaudeCode, boot_file
from tests.harness import PATIENCE
from tests.inspection import children, eventually
from tests.process.test_following import said


def follower_of(pid: int) -> int | None:
    """The process id of a bridge's follower."""
    for child in children(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"follow" in words:
            return child
    return None


async def test_a_bridge_follows_claude_code_for_the_local_person_whatever_dies(
    model: OfflineModel, tmp_path: Path
) -> None:
    claude = ClaudeCode(tmp_path / "person", model.url)
    folder = tmp_path / "code"
    folder.mkdir()
    logs = claude.home / ".claude/projects"
    async with bridge_process(tmp_path / "data", "--follow", str(logs)) as bridge:
        assert bridge.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            await bridge.process.stdout.readuntil(
                f"Claude Code's sessions below {logs} are followed, and become memory, too.".encode()
            )
        pid = bridge.process.pid
        await claude.say("Hello without a page", folder)
        await eventually(lambda: said(bridge.workspace) == ["Hello without a page"], "it is in the log")
        begins = boot_file(bridge.workspace, folder)
        await eventually(
            lambda: begins.exists() and "Hello without a page" in begins.read_text(), "the next session begins with it"
        )
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            first = follower_of(pid)
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await claude.say("Hello beside a page", folder)
            await eventually(lambda: len(said(bridge.workspace)) == 2, "it is in the log as well")
        second = follower_of(pid)
        assert second not in {None, first}
        assert await bridge.stop() == 0
        assert not Path(f"/proc/{second}").exists()


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--provider", "sprites", "--follow"], "for a sprite on this machine")]
)
async def test_only_a_sprite_on_this_machine_can_be_followed_for(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    code, _, complaint = await run_bridge("serve", "--data", str(tmp_path), "--port", "0", *arguments)
    assert code == 2
    assert words in complaint
    code, _, complaint = await run_bridge("users", "add", "ada", "--data", str(tmp_path))
    assert code == 0, complaint
    code, _, complaint = await run_bridge("serve", "--data", str(tmp_path), "--port", "0", "--follow")
    assert code == 2
    assert "people were added here" in complaint
