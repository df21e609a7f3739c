"""WebFetch contacts only the host of the page."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.harness import running_sprite
from tests.scripted_model import OfflineModel


async def test_web_fetch_contacts_only_page_host(workspace: Path, model: OfflineModel) -> None:
    asked: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reject every request of the proxy's client."""
        asked.append((await reader.readline()).split()[1].decode())
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    page = {"url": "https://pages.example/", "prompt": "What does it say?"}
    model.script.agent({"tool": "WebFetch", "input": page, "on": "prompt"}, {"text": "Nothing.", "on": "result"})
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with (
            # In a sandbox it would use the egress proxy.
            running_sprite(
                workspace, model.url, HTTPS_PROXY=address, NO_PROXY="127.0.0.1", SPRITE_SANDBOX="off"
            ) as sprite,
            sprite.client() as client,
        ):
            await client.mission("What does pages.example say?")
    assert set(asked) == {"pages.example:443"}
