"""Refusals of `bridge serve --follow`; test_one_memory.py covers its function."""

from __future__ import annotations

from pathlib import Path

from tests.bridge_harness import run_bridge


async def test_follow_requires_single_local_sprite(tmp_path: Path) -> None:
    arguments = ("serve", "--data", str(tmp_path), "--port", "0", "--follow")
    code, _, complaint = await run_bridge(*arguments, "--provider", "sprites")
    assert code == 2
    assert "for a sprite on this machine" in complaint
    code, _, complaint = await run_bridge("users", "add", "ada", "--data", str(tmp_path))
    assert code == 0, complaint
    code, _, complaint = await run_bridge(*arguments)
    assert code == 2
    assert "people were added here" in complaint
