"""Size of the first request beside the person's words, against the same agent with the CLI's defaults.

Both are measured in one run, on the same workspace, boot prompt and tools of ours: only what the CLI adds differs.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

from benchmarks.report import line
from sprite.protocol.tools import TOOL_SERVER
from tests.harness import sprite_environment, sprite_process
from tests.scripted_model import OfflineModel

HELLO = "hello there"
WANTED = 0.40


def fixed_bytes(body: dict[str, Any]) -> dict[str, int]:
    """The bytes of each part, without the person's words."""
    parts = {name: len(json.dumps(body[name]).encode()) for name in ("tools", "system", "messages")}
    parts["messages"] -= len(HELLO)
    return parts


async def served(model: OfflineModel, workspace: Path) -> dict[str, Any]:
    """The first request of a mission through the whole server."""
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await client.mission(HELLO)
    return model.requests[0].body


async def with_defaults(model: OfflineModel, workspace: Path, own_tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The first request of a client that leaves everything to the CLI; `own_tools` are added as they are."""
    env = sprite_environment(model.url)
    options = ClaudeAgentOptions(
        cwd=workspace,
        permission_mode="bypassPermissions",
        setting_sources=[],
        system_prompt={"type": "file", "path": str(workspace / ".os/run/boot.md")},
        env={
            **{name: value for name, value in env.items() if name.startswith(("ANTHROPIC", "CLAUDE"))},
            "CLAUDE_CONFIG_DIR": str(workspace.parent / "claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "IS_SANDBOX": "1",
        },
    )
    before = len(model.requests)
    async with ClaudeSDKClient(options) as client:
        await client.query(HELLO)
        async for message in client.receive_messages():
            if isinstance(message, ResultMessage):
                break
    body = model.requests[before].body
    return {**body, "tools": [*body["tools"], *own_tools]}


async def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(name) / "workspace"
        workspace.mkdir()
        async with OfflineModel() as model:
            ours = await served(model, workspace)
            own_tools = [tool for tool in ours["tools"] if tool["name"].startswith(f"mcp__{TOOL_SERVER}__")]
            theirs = await with_defaults(model, workspace, own_tools)
    found, baseline = fixed_bytes(ours), fixed_bytes(theirs)
    for part in found:
        print(f"      {part}: {found[part]:,} bytes, with the CLI's defaults {baseline[part]:,}")
    print(f"      tools: {len(ours['tools'])} (ours: {len(own_tools)}), with the CLI's defaults {len(theirs['tools'])}")
    ratio = sum(found.values()) / sum(baseline.values())
    value = f"{ratio:.2f} x  ({sum(found.values()):,} / {sum(baseline.values()):,} bytes)"
    line("first request without the person's words", value, f"<= {WANTED:.2f} x", ok=ratio <= WANTED)


if __name__ == "__main__":
    asyncio.run(main())
