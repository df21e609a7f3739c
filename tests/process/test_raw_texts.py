"""Every failure of the upstream, as people get it: page, terminal, editor (ACP) and API, on one bridge and one CLI."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from bridge.admin import control
from bridge.client.link import BridgeLink
from bridge.terminal.conversation import Conversation
from bridge.terminal.pipe import Pipe
from tests import api_grammar
from tests.acp_editor import editor
from tests.bridge_harness import Bridge, running_bridge
from tests.chat_stage import Watched
from tests.harness import PATIENCE, SpriteInBridge, observations, start_in_thread
from tests.scripted_model import OfflineModel, Script

#: Parts of texts of the CLI and the API.
RAW = ("API Error", "Request ID", "Message ID", "ede_diagnostic", "CLAUDE_CODE_MAX", "BASE_URL", "RAWTEXT", "req_",
       "gateway", "safeguards", "token maximum", "Prompt is too long", "/login", "try again")  # fmt: skip
FIRST_MODEL, SECOND_MODEL = "claude-fable-5", "claude-opus-4-8"
STEPS: dict[str, dict[str, Any]] = {
    **{name: {**step, "times": 1 if name == "tool_use" else -1} for name, step in api_grammar.STOPS.items()},
    **{kind: {"error": status, "type": kind, "times": -1} for kind, status in api_grammar.ERRORS.items()},
    "too long": {"error": 400, "message": "prompt is too long: 210000 tokens > 200000 maximum RAWTEXT", "times": -1},
    "no credit": {"error": 400, "message": "Your credit balance is too low. RAWTEXT", "times": -1},
    "unknown": {"error": 418, "type": "teapot", "message": "The kettle is empty.", "times": -1},
    **{name: {**step, "message": "Overloaded RAWTEXT", "times": -1} for name, step in api_grammar.BREAKS.items()},
}


async def _token(bridge: Bridge) -> str:
    async with control.control_session(bridge.data / "run") as session:
        secret: str = (await control.ask(session, "POST", "/users/local/tokens", {"label": "p", "scopes": None}))[
            "secret"
        ]
        return secret


async def _without_retries(workspace: Path, environment: Mapping[str, str], permissions: str | None) -> SpriteInBridge:
    return await start_in_thread(workspace, {**environment, "CLAUDE_CODE_MAX_RETRIES": "0"}, permissions)


@pytest.mark.parametrize(
    "access", ["ANTHROPIC_API_KEY", pytest.param("CLAUDE_CODE_OAUTH_TOKEN", marks=pytest.mark.soak)]
)
async def test_no_client_gets_raw_text(tmp_path: Path, access: str) -> None:
    """The refusals also change the model, which is an event and in the log."""
    answers: dict[str, Any] = {}
    data = tmp_path / "data"
    variables: dict[str, Any] = {access: "a-planted-key-0123456789", "SPRITE_MODEL": FIRST_MODEL}
    async with (
        OfflineModel() as model,
        running_bridge(data, start_sprite=_without_retries, ANTHROPIC_BASE_URL=model.url, **variables) as bridge,
        bridge.http(headers={"Authorization": f"Bearer {await _token(bridge)}"}) as http,
        bridge.page(await bridge.login()) as page,
        BridgeLink(lambda: http.ws_connect("/ws")) as link,
        editor("--data", str(data)) as acp,
    ):
        await acp.start()
        seen, (read, write) = Watched(), os.pipe()
        terminal = asyncio.create_task(Conversation(link, Pipe(seen, fd=read), banner=lambda: Text("")).follow())
        await page.link("ready")
        for name, step in STEPS.items():
            model.script = Script(agent=[{"for": "any", "message": f"RAWTEXT {name}", **step}])
            body = {"model": "sprite", "messages": [{"role": "user", "content": f"Say {name}"}]}
            async with http.post("/v1/chat/completions", json=body) as response:
                answers[name] = await response.json()
        await page.mission("Hello at last")
        async with asyncio.timeout(PATIENCE):
            while "Hello at last" not in seen.getvalue():
                seen.written.clear()
                await seen.written.wait()
        terminal.cancel()
        os.close(read)
        os.close(write)
        got = {
            "page": page.received,
            "terminal": seen.getvalue(),
            "editor": acp.messages,
            "API": answers,
        }
    for client, texts in got.items():
        told = texts if isinstance(texts, str) else json.dumps(texts)
        # The original text of an unknown failure, which the page folds.
        told = told.replace('"details": "API Error: 418 ', "")
        assert [told[max(at - 300, 0) : at + 100] for word in RAW if (at := told.find(word)) >= 0] == [], client
        assert told.count("The model declined to answer") >= 2, client
    changed = f"{FIRST_MODEL} declined to answer: {SECOND_MODEL} continues."
    assert all(changed in json.dumps(got[client]) for client in ("page", "terminal", "editor"))
    assert changed in "".join(turn["notice"] for turn in observations(bridge.workspace))
