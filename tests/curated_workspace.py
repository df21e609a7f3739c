"""A workspace with a curated memory of nine turns, and a search over every byte below its `.os/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.harness import running_sprite
from tests.inspection import chat
from tests.looks import files_below
from tests.scripted_model import OfflineModel

#: Messages of the first session, turn by turn (1 to 6), and of the second (7 to 9).
FIRST = [
    "My name is Ada.",
    "My codename is Quibblewort.",
    "I prefer tables.",
    "Make a table of snorgle 3, pears 5",
    "Remember to water the ficus.",
    "What is my codename?",
]
SECOND = ["My sister is Belzoni.", "run `echo Frobnitz`", "Who is my sister?"]
TYPED = "<!-- pin -->\n- Never call before ten.\n<!-- /pin -->\n- Keeps three llamas."


async def curate_workspace(workspace: Path) -> None:
    """Fill a workspace with two curated sessions, and a person's edit with a pin."""
    workspace.mkdir()
    async with (
        OfflineModel() as model,
        running_sprite(workspace, model.url) as sprite,
        sprite.client() as client,
    ):
        await chat(client, *FIRST)
        await client.ask("system", {"action": "new_session"})
        content = (workspace / ".os/memory/user.md").read_text() + f"{TYPED}\n"
        await client.ask("memory", {"op": "edit", "name": "user.md", "content": content})
        await chat(client, *SECOND)
        await client.ask("system", {"action": "flush"})


def files_containing(workspace: Path, *words: str) -> list[tuple[str, str]]:
    """Return every file below `.os/` that contains one of the words, ignoring case."""
    found = []
    for path, content in sorted(files_below(workspace / ".os").items()):
        kept = content.lower()
        found += [(str(path.relative_to(workspace)), word) for word in words if word.lower().encode() in kept]
    return found


def without_marks(dumped: dict[str, Any]) -> dict[str, Any]:
    """Return a dump of memory.db without its marks of the disk and the log, which are not memory."""
    return {name: rows for name, rows in dumped.items() if name not in {"written_files", "log_seen"}}
