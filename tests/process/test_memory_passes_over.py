"""What was said in one session is known in the next, however the first one ended."""

from __future__ import annotations

from pathlib import Path

from bridge.offline.model import OfflineModel
from tests.harness import running_sprite


def _first_system_prompt(model: OfflineModel, user_text: str) -> str:
    request = next(r for r in model.requests if r.kind == "main" and user_text in r.user_text)
    return str(request.body["system"])


async def test_a_fact_and_a_correction_reach_the_next_sessions_first_request(
    model: OfflineModel, workspace: Path
) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.mission("My name is Ada Lovelace.")
        await client.mission("No, it should be DD/MM/YYYY for dates.")
        assert await sprite.stop() == 0
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.mission("Hello again")
    prompt = _first_system_prompt(model, "Hello again")
    assert "Ada Lovelace" in prompt
    assert "DD/MM/YYYY" in prompt
