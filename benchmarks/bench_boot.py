"""The boot prompt at each session start of the recorded histories, in characters, by part.

    python -m benchmarks.bench_boot [--write FOLDER]
    python -m benchmarks.bench_boot --history FILE --variant NAME

Each start is measured twice: while the turns of the session before wait for their curation, and after it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
from collections import Counter
from pathlib import Path

from benchmarks.curation_replay import Workspace, replay
from benchmarks.history import History, Turn, load, shipped
from benchmarks.recordings import Recordings
from sprite.boot.prompt import BootPrompt

_PARTS = re.compile(
    r'^<(?:memory_file name="(?P<file>[a-z.]+)"|(?P<tag>[a-z_]+))>\n.*?^</[a-z_]+>$', re.MULTILINE | re.DOTALL
)
COLUMNS = ("fixed", "tools.md", "user.md", "files.md", "context.md", "standing_preferences", "open_actions")
LAST = ("files_changed", "recent_turns", "all")


def sizes(prompt: str) -> Counter[str]:
    """The characters of each part; `fixed` is all outside of parts: soul.md, os.md and the introduction."""
    found = Counter({each["file"] or each["tag"]: len(each[0]) for each in _PARTS.finditer(prompt)})
    found["fixed"] = len(prompt) - found.total()
    found["all"] = len(prompt)
    return found


async def measured(history: History, recordings: Recordings, folder: Path | None) -> None:
    """Prints one line a session start."""
    columns = (*COLUMNS, *LAST)
    print(f"{'':<26}{''.join(f'{name[:10]:>12}' for name in columns)}")
    totals: Counter[str] = Counter()

    async def look(workspace: Workspace, turn: Turn) -> None:
        boot = BootPrompt(workspace.files, workspace.memory, workspace.transcript)
        waiting = await workspace.transcript.waiting_count()
        prompt = await boot.text()
        found = sizes(prompt)
        totals.update(found)
        name = f"t{turn.n} {turn.at:%Y-%m-%d} {waiting} wait"
        print(f"{name:<26}{''.join(f'{found[column]:>12,}' for column in columns)}")
        if folder is not None:
            folder.mkdir(exist_ok=True, parents=True)
            (folder / f"t{turn.n:02}-{waiting:02}.md").write_text(prompt)

    await replay(history, recordings, lambda answer, _: answer, at_session=look)
    print(f"{'sum':<26}{''.join(f'{totals[column]:>12,}' for column in columns)}\n")


async def main() -> None:
    """Prints every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--variant")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write every prompt there")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    for path in [arguments.history] if arguments.history else shipped():
        history = load(path)
        if arguments.variant:
            recordings = Recordings.of_answers(history.answers[arguments.variant])
        else:
            recordings = Recordings.of_folder(min(path.with_suffix(".answers").iterdir()))
        print(path.stem)
        await measured(history, recordings, arguments.write)


if __name__ == "__main__":
    asyncio.run(main())
