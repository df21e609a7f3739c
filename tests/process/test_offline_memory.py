"""The offline model as curator and verifier of a real sprite: its lines pass the checks and reach memory."""

from __future__ import annotations

from pathlib import Path

from tests.harness import running_sprite
from tests.inspection import chat, memory, memory_file, transcript
from tests.scripted_model import OfflineModel

FIRST = [
    "Hi, my name is Ada Lovelace and I live in Lyon.",
    "I prefer short answers.",
    "We use Postgres. Our port is 5433.",
    "Please remember to send the October invoices.",
    "What is my name?",
    "My codename is Quibblewort, but don't note that anywhere.",
]
SECOND = [
    "No, it should be DD/MM/YYYY for dates.",
    "Actually, I live in Paris.",
    "I'm allergic to 3 kinds of nuts.",
]


async def test_offline_conversation_passes_every_check(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, *FIRST)
        await client.ask("system", {"action": "new_session"})
        assert "- Send the October invoices.\n" in memory_file(workspace, "context.md")
        await chat(client, *SECOND)
        await client.ask("system", {"action": "flush"})
    assert memory(workspace, "SELECT kind, detail FROM reports") == []
    assert "## Profile\n- The user's name is Ada Lovelace.\n- The user lives in Paris.\n" in memory_file(
        workspace, "user.md"
    )
    assert "## Preferences\n- The user prefers short answers.\n" in memory_file(workspace, "user.md")
    assert "## Corrections\n- It should be DD/MM/YYYY for dates.\n" in memory_file(workspace, "user.md")
    learned = {row["content"]: row for row in memory(workspace, "SELECT * FROM learnings")}
    assert learned["The user lives in Lyon."]["superseded_by"] == learned["The user lives in Paris."]["id"]
    (action,) = memory(workspace, "SELECT status FROM pending_actions")
    assert action["status"] == "open"
    # A message that the person wants forgotten is off the record.
    assert not [content for content in learned if "Quibblewort" in content]
    (turn,) = transcript(workspace, "SELECT processed FROM observations WHERE user_message LIKE '%Quibblewort%'")
    assert turn["processed"] == 3


async def test_scripted_verifier_refuses_matching_line(model: OfflineModel, workspace: Path) -> None:
    model.script.verifier({"refuse": "Lyon"})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada and I live in Lyon.")
        await client.ask("system", {"action": "flush"})
    assert "Ada" in memory_file(workspace, "user.md")
    assert "Lyon" not in memory_file(workspace, "user.md")
    assert {row["kind"] for row in memory(workspace, "SELECT kind FROM reports")} == {"not_verified", "line_refused"}


async def test_verifier_agrees_to_scripted_curator(model: OfflineModel, workspace: Path) -> None:
    """Without a script for the curator, the offline verifier would not agree to this line."""
    model.script.curator({"raw_text": 'PREFERENCE [t1] Ada wants her tea hot. | "tea must be hot"'})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "For me tea must be hot.")
        await client.ask("system", {"action": "flush"})
    (learning,) = memory(workspace, "SELECT type, origin FROM learnings")
    assert learning == {"type": "PREFERENCE", "origin": "user"}
