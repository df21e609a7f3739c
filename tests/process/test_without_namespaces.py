"""Without namespaces, guards and permission requests replace the sandbox; tested through a real bridge."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bridge.admin import control
from tests.bridge_harness import BridgeProcess, PageClient, bridge_process
from tests.forking import fork_module
from tests.harness import PATIENCE, Message, sprite_environment
from tests.inspection import eventually
from tests.scripted_model import OfflineModel

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="namespaces are Linux's"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
#: Runs the program in a user namespace that allows no further ones.
WITHOUT_NAMESPACES = "tests.unshared"
#: A new value in each run, so that files of earlier runs do not match.
PLANTED = f"planted{secrets.token_hex(8)}"
PERSON = "# User\n\nAda drinks tea.\n"


@dataclass(frozen=True, slots=True)
class House:
    """A bridge with a sprite in ask mode, and a page of its person."""

    bridge: BridgeProcess
    key: Path
    model: OfflineModel
    page: PageClient

    async def calls(self, decision: str, *wanted: tuple[str, dict[str, Any]]) -> list[Message]:
        """Run a turn with these tool calls, and give this decision on each request. Return the permission requests."""
        blocks = [{"type": "tool_use", "name": tool, "input": tool_input} for tool, tool_input in wanted]
        self.model.script.agent({"on": "prompt", "blocks": blocks})
        mission = await self.page.send("mission", {"text": "Do it"})
        asked: list[Message] = []
        while True:
            message = await self.page.until(
                lambda m: (
                    m["type"] == "permission_request"
                    or (m["type"] == "agent_event" and m["payload"]["event"] in {"complete", "error", "interrupted"})
                )
            )
            if message["type"] == "agent_event":
                assert message["payload"]["mission_id"] == mission
                return asked
            asked.append(message["payload"])
            # The acknowledgment may arrive after the next request.
            answer = {"request_id": message["payload"]["request_id"], "decision": decision}
            await self.page.send("permission", answer)

    async def bash(self, decision: str, *commands: str) -> int:
        """Run a turn with these commands. Return the number of permission requests."""
        return len(await self.calls(decision, *(("Bash", {"command": command}) for command in commands)))

    async def drift(self) -> list[str]:
        status = await self.page.ask("system", {"action": "status"})
        found: list[str] = status["payload"]["memory"]["drift"]
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="house")
async def _house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("house")
    key = folder / "home/.ssh/id_ed25519"
    key.parent.mkdir(parents=True)
    key.write_text(f"{PLANTED}\n")
    async with (
        OfflineModel() as model,
        bridge_process(
            folder / "data",
            "--permissions",
            "ask",
            program=(WITHOUT_NAMESPACES, "bridge"),
            SPRITE_SANDBOX="on",
            ANTHROPIC_API_KEY="sk-ant-planted-real-key",
            ANTHROPIC_BASE_URL=model.url,
        ) as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.link("ready")
        yield House(bridge, key, model, page)


async def test_every_command_without_namespaces_needs_permission(house: House) -> None:
    (house.bridge.workspace / "plain").write_text("plain\n")
    harmless = (f"diff --to-file={house.key} plain", f"wc --files0-from={house.key}", "ls", "pwd && echo hello")
    assert await house.bash("deny", *harmless, f"cat {house.key}") == len(harmless) + 1
    assert await house.calls("allow", ("Read", {"file_path": str(house.key)})) == []
    assert PLANTED not in str([request.body for request in house.model.requests])
    # An allowed command is not asked about again in this session.
    assert await house.bash("always", "ls -d .") == 1
    assert await house.bash("deny", "ls -d .") == 0


async def test_detached_program_cannot_answer_permission_request(house: House) -> None:
    """Detached programs, with or without an environment, call the route that pages use."""
    path = control.socket_of(house.bridge.data / "run")
    lines, ends = [], []
    for number, before in enumerate(("", "setsid", "env -i setsid")):
        end = house.bridge.data.parent / f"ended-{number}"
        script = f"sleep 0.2; curl -sSi --unix-socket {path} 'http://bridge/ws?person=local' > {end}.new 2>&1"
        lines.append(f'({before} /bin/sh -c "{script}; mv {end}.new {end}" > /dev/null 2>&1 &) ; true')
        ends.append(end)
    assert await house.bash("allow", *lines) == len(lines)
    for end in ends:
        await eventually(end.exists, "the program did not end")
        assert "HTTP/1.1 403" in end.read_text()
        assert "does not answer programs of an agent" in end.read_text()


async def test_guards_and_drift_check_replace_sandbox(house: House) -> None:
    page, workspace = house.page, house.bridge.workspace
    await page.ask("memory", {"op": "edit", "name": "user.md", "content": PERSON})
    hidden = "d=.o; echo 'Ada lives in Bern.' >> ${d}s/memory/user.md"
    asked = await house.calls(
        "allow", ("Bash", {"command": "cat .os/run/token > stolen"}), ("Bash", {"command": hidden})
    )
    assert [each["input"]["command"] for each in asked] == [hidden]
    denied = next(m["payload"] for m in page.received if m["type"] == "agent_event" and m["payload"].get("is_error"))
    assert denied["event"] == "tool_result"
    assert not (workspace / "stolen").exists()
    assert await house.drift() == []
    # The drift check runs at the session's end, because a detached program may write until then.
    await page.ask("system", {"action": "new_session"})
    assert await house.drift() == ["user.md"]
    file = (await page.ask("memory", {"op": "file", "name": "user.md"}))["payload"]
    assert (file["content"], file["drift"]) == (PERSON, PERSON + "Ada lives in Bern.\n")


async def test_status_reports_missing_sandbox(house: House) -> None:
    status = ("sprite", "status", "--workspace", str(house.bridge.workspace))
    pipe = asyncio.subprocess.PIPE
    process = await fork_module(WITHOUT_NAMESPACES, *status, env=sprite_environment(None), stdout=pipe, stderr=pipe)
    async with asyncio.timeout(PATIENCE):
        out, err = (said.decode() for said in await process.communicate())
    assert re.search(r"sandbox +none: the agent can read all that you can read.*protected only by checks", out + err), (
        out + err
    )
