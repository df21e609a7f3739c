"""`python -m bridge chat` over a pipe: real bridge, sprite, SDK and CLI on the offline model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.bridge_harness import bridge_environment, running_bridge
from tests.forking import PYTHON, fork_module, forking_python
from tests.harness import PATIENCE, ROOT


async def chat(
    data: Path,
    *lines: str,
    options: Sequence[str] = ("--permissions", "bypass"),
    folder: Path = ROOT,
    code: int = 0,
    **variables: str,
) -> str:
    """Hold a conversation in `folder` and return its output; it must exit with `code`."""
    data.parent.mkdir(exist_ok=True)
    home = data.parent / "home"
    home.mkdir(exist_ok=True)
    process = await fork_module(
        "bridge",
        "chat",
        "--data",
        str(data),
        *options,
        env=bridge_environment(HOME=str(home), IS_SANDBOX="1", **{PYTHON: forking_python()}, **variables),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    try:
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.close()
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    finally:
        process.kill()
    printed = out.decode()
    assert process.returncode == code, f"{printed}\n{err.decode()}"
    # On a busy machine the agent starts slowly.
    said = [line for line in err.decode().splitlines() if not line.startswith("bridge: waiting for the agent: ")]
    assert said == []
    assert "\x1b" not in printed
    return printed


async def test_chat_without_bridge_works_and_remembers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    printed = await chat(
        data,
        "my name is Wilhelmina",
        "make a table card of apples 3, pears 5",
        "run `echo seen-by-a-person`",
        "/memory",
        "/memory user.md",
        "/status",
        "/forget Wilhelmina",
        folder=tmp_path,
    )
    banner, _, rest = printed.partition("my name is")
    assert "demo model" in banner
    assert rest.partition("make a table")[0].strip()
    cells = [
        line.strip("│ ").split() for line in printed.partition("▸ create_card")[2].splitlines() if line.startswith("│")
    ]
    assert ["apples", "3"] in cells
    assert ["pears", "5"] in cells
    assert "▸ Bash  echo seen-by-a-person" in printed
    assert "✓ seen-by-a-person" in printed
    for name in ("soul.md", "os.md", "tools.md", "files.md", "user.md", "context.md"):
        assert name in printed
    assert "deleted permanently: 1 turn" in printed
    assert "/forget needs a person" in printed
    assert "stopping the sprite" in printed
    printed = await chat(data, "/search Wilhelmina")
    assert "my name is Wilhelmina" in printed
    assert "Nothing found" not in printed


async def test_chat_joins_local_and_remote_bridge(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running_bridge(data) as bridge:
        printed = await chat(data, "my name is Wilhelmina")
        assert "demo model, not Claude" in printed
        assert "the bridge that runs on" in printed
        assert "stopping the sprite" not in printed
        token = (await bridge.run("users", "token", "local", "--full"))[1].splitlines()[-1]
        printed = await chat(data, "what is my name?", options=("--url", bridge.url), SPRITE_TOKEN=token)
        assert "Wilhelmina" in printed.partition("what is my name?")[2]
        assert f"connected to {bridge.url}" in printed
        printed = await chat(data, "hi", options=("--url", bridge.url, "--token", "wrong"), code=1)
        assert "does not know this token" in printed
