"""Questions about hosts: from a program's connection to a person's answer, the list of hosts, and its commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import command
from tests.harness import PATIENCE, Client, SpriteServer, running_sprite
from tests.inspection import request_seen
from tests.scripted_model import OfflineModel

TASK = "think for ever"
INSIDE = {"SPRITE_TESTS_EGRESS_INSIDE": "1"}


@asynccontextmanager
async def echo() -> AsyncIterator[str]:
    """Run a server on loopback; yield the name of its rule."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"localhost:{server.sockets[0].getsockname()[1]}"


class Program:
    """A program of the agent that connects to a host through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connecting(cls, workspace: Path, host: str) -> Program:
        reader, writer = await asyncio.open_unix_connection(workspace / ".os/run/egress.sock")
        writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return cls(reader, writer)

    async def status(self) -> str:
        async with asyncio.timeout(PATIENCE):
            return (await self.reader.readuntil(b"\r\n")).decode().removeprefix("HTTP/1.1 ").strip()

    async def ended(self) -> bytes:
        """Return the rest after the connection's end."""
        async with asyncio.timeout(PATIENCE):
            rest = await self.reader.read()
        self.writer.close()
        return rest


async def _question(client: Client) -> dict[str, Any]:
    message = await client.until(lambda m: m["type"] == "permission_request")
    payload: dict[str, Any] = message["payload"]
    return payload


async def _answer(client: Client, question: dict[str, Any], decision: str) -> None:
    await client.ask("permission", {"request_id": question["request_id"], "decision": decision})


async def _reach(client: Client, **payload: str) -> dict[str, Any]:
    answer = await client.ask("reach", payload)
    assert answer["type"] == "reach_result", answer
    found: dict[str, Any] = answer["payload"]
    return found


@asynccontextmanager
async def working(sprite: SpriteServer, model: OfflineModel) -> AsyncIterator[tuple[Client, str]]:
    """Keep the agent at work on a mission for so long."""
    async with sprite.client() as client:
        mission = client.send("mission", {"text": TASK})
        await request_seen(model, lambda request: TASK in request.user_text)
        yield client, mission
        await client.ask("interrupt", {"mission_id": mission})


async def test_always_survives_restart_until_revoked(model: OfflineModel, workspace: Path) -> None:
    async with echo() as host:
        async with (
            running_sprite(workspace, model.url, permissions="ask", **INSIDE) as sprite,
            working(sprite, model) as (client, mission),
        ):
            program = await Program.connecting(workspace, host)
            question = await _question(client)
            assert (question["tool"], question["input"]) == ("network", {"host": host})
            assert question["mission_id"] == mission
            assert (question["always"], question["session"], question["background"]) == (host, host, False)
            await _answer(client, question, "always")
            assert (await program.status()).startswith("200")
            found = await _reach(client)
            (rule,) = found["allowed"]
            assert (rule["host"], rule["until"], rule["message"]) == (host, "always", TASK)
            (use,) = found["hosts"]
            assert (use["decision"], use["open"], use["message"]) == ("always", 1, TASK)
            assert found["mode"] == "ask"
            assert found["writable"] == ([str(workspace)] if found["holds"] else [])
            program.writer.close()
        async with (
            running_sprite(workspace, model.url, permissions="ask", **INSIDE) as sprite,
            sprite.client() as client,
        ):
            program = await Program.connecting(workspace, host)
            assert (await program.status()).startswith("200")
            assert (await _reach(client, revoke=host))["allowed"] == []
            await program.ended()
            again = await Program.connecting(workspace, host)
            question = await _question(client)
            assert (question["mission_id"], question["background"]) == (None, True)
            await _answer(client, question, "deny")
            assert (await again.status()).startswith("403 The person does not allow")
            await again.ended()
            refused = await client.ask("reach", {"revoke": host})
            assert (refused["type"], refused["payload"]["code"]) == ("error", "not_found")


async def test_host_without_person_is_refused(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url, permissions="ask"):
        program = await Program.connecting(workspace, "example.org:443")
        assert await program.status() == "403 No client is connected that could allow example.org."
        await program.ended()


async def test_interrupt_denies_waiting_host(model: OfflineModel, workspace: Path) -> None:
    async with (
        running_sprite(workspace, model.url, permissions="ask") as sprite,
        working(sprite, model) as (client, mission),
    ):
        program = await Program.connecting(workspace, "example.org:443")
        question = await _question(client)
        await client.ask("interrupt", {"mission_id": mission})
        resolved = await client.ever(lambda m: m["type"] == "permission_resolved")
        assert resolved["payload"] == {"request_id": question["request_id"], "decision": "deny"}
        assert (await program.status()).startswith("403 ")
        await program.ended()


@pytest.mark.parametrize("base_url", ["http://bridge.example:8080", "http://8.8.8.8:8080"])
async def test_plain_model_endpoint_is_refused(workspace: Path, base_url: str) -> None:
    async with running_sprite(workspace, base_url, permissions="ask", SPRITE_EGRESS="open"):
        host = base_url.removeprefix("http://").partition(":")[0]
        program = await Program.connecting(workspace, f"{host}:443")
        assert await program.status() == f"403 Sprite does not let the agent reach {host}."
        await program.ended()


async def test_forgetting_deletes_hosts(model: OfflineModel, workspace: Path) -> None:
    async with (
        echo() as host,
        running_sprite(workspace, model.url, permissions="ask", **INSIDE) as sprite,
        sprite.client() as client,
    ):
        # It hears questions from here on.
        await _reach(client)
        program = await Program.connecting(workspace, host)
        await _answer(client, await _question(client), "always")
        assert (await program.status()).startswith("200")
        program.writer.write_eof()
        await program.ended()
        await client.ask("memory", {"op": "forget", "text": host.partition(":")[0], "yes": True})
        found = await _reach(client)
        assert (found["allowed"], found["hosts"]) == ([], [])


async def test_commands_list_and_revoke(model: OfflineModel, workspace: Path) -> None:
    async with echo() as host:
        async with (
            running_sprite(workspace, model.url, permissions="ask", **INSIDE) as sprite,
            sprite.client() as client,
        ):
            await _reach(client)
            for _ in range(2):
                program = await Program.connecting(workspace, host)
                await _answer(client, await _question(client), "always")
                assert (await program.status()).startswith("200")
                listed = await command(workspace, "reach", "list", "--json")
                assert [rule["host"] for rule in json.loads(listed[1])["allowed"]] == [host]
                revoked = await command(workspace, "reach", "revoke", host)
                assert revoked[:2] == (0, f"{host} is not allowed any more.\n")
                await program.ended()
        told = await command(workspace, "reach", "list")
        assert told[1].startswith(f"always    {host}  (2 connections, 0 bytes sent")
        missing = await command(workspace, "reach", "revoke", host)
        assert missing[0] == 2
        assert "is not a host that you always allow" in missing[2]
