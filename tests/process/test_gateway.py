"""A gateway between the bridge and the model's API: an address with a path, and a bearer token instead of a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web

from tests.bridge_harness import running_bridge
from tests.harness import observations
from tests.model_proxy import served
from tests.scripted_model import OfflineModel

TOKEN = "gateway-token"


def gateway(upstream: str, models: set[str]) -> web.Application:
    """Return a gateway that takes its own names of models, as gateways to other clouds do."""

    async def forward(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}" or "X-Api-Key" in request.headers:
            return web.Response(status=401)
        body = await request.read()
        models.add(json.loads(body)["model"])
        async with ClientSession() as session, session.post(f"{upstream}/v1/messages", data=body) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        return response

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/team/anthropic/v1/messages", forward)
    return app


async def test_agent_and_curator_work_behind_gateway(tmp_path: Path) -> None:
    models: set[str] = set()
    async with OfflineModel() as model, served(gateway(model.url, models)) as url:
        variables: dict[str, Any] = {
            "ANTHROPIC_BASE_URL": f"{url}/team/anthropic",
            "ANTHROPIC_AUTH_TOKEN": TOKEN,
            "SPRITE_MODEL": "eu.anthropic.claude-sonnet-5-v1:0",
            "SPRITE_CURATOR_MODEL": "eu.anthropic.claude-haiku-4-5-v1:0",
        }
        async with (
            running_bridge(tmp_path / "data", **variables) as bridge,
            bridge.page(await bridge.login()) as page,
        ):
            await page.type("state_sync")
            end = await page.end_of(await page.send("mission", {"text": "My name is Ada"}))
            assert end["event"] == "complete", end
            status = (await page.ask("system", {"action": "flush"}))["payload"]
    assert (status["memory"]["waiting"], status["last_error"]) == (0, None)
    assert observations(bridge.workspace)[0]["outcome"] == "complete"
    assert {"eu.anthropic.claude-sonnet-5-v1:0", "eu.anthropic.claude-haiku-4-5-v1:0"} <= models
