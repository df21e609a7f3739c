"""The curator's line edits on the whole stack: numbered in the prompt, and named by their first words."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import rebuild
from tests.harness import running_sprite
from tests.inspection import curations, memory_file
from tests.memory_stores import seed_turns
from tests.scripted_model import OfflineModel


async def test_line_edit_is_applied_and_rebuilt(model: OfflineModel, workspace: Path) -> None:
    """The curator edits a line by its number, and a rebuild restores it from the log."""
    model.script.curator(
        {"raw_text": 'USER_MD_EDIT:\nADD Profile | [t1] - Ada lives in Bern. | "I live in Bern"\n'},
        {
            "raw_text": 'FACT [t2] Ada lives in Thun (town). | "live in Thun"\n'
            'USER_MD_EDIT:\nREPLACE 5 "- Ada lives" | [t2] - Ada lives in Thun. | "I live in Thun now"\n'
        },
    )
    for said in ("I live in Bern.", "I moved, I live in Thun now."):
        await seed_turns(workspace, said)
        async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
            await client.ask("system", {"action": "flush"})
    shown = [str(request.body["messages"]) for request in model.requests if request.kind == "curator"]
    assert "4| ## Profile" in shown[0]
    assert "5| - Ada lives in Bern." in shown[1]
    # No other turn waited, so no next call would read the instructions from the prompt cache.
    systems = [request.body["system"] for request in model.requests if request.kind == "curator"]
    assert all("cache_control" not in system[0] for system in systems)
    assert 'REPLACE 5 "- Ada lives" | [t2] - Ada lives in Thun.' in curations(workspace)[1]["response"]
    user = memory_file(workspace, "user.md")
    assert "## Profile\n- Ada lives in Thun.\n" in user
    assert "Bern" not in user
    (workspace / ".os/memory/memory.db").unlink()
    (workspace / ".os/memory/user.md").unlink()
    await rebuild(workspace)
    assert memory_file(workspace, "user.md") == user
