"""Print how many days of recorded histories are exposed, and by what: `python benchmarks/exposed_days.py [FILE...]`.

The histories have neither change sets nor connections. Here a command has network traffic if it names a program that
downloads, and what follows it in the same folder is as the log shows it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.history import Turn, load, shipped
from benchmarks.report import line
from sprite.curation.provenance.evidence import own_words
from sprite.curation.provenance.kinds import WEB_TOOLS
from sprite.labels.session import PASTE
from sprite.protocol.tools import OWN_TOOLS

_DOWNLOADS = re.compile(
    r"\b(?:curl|wget|gh|ssh|scp|rsync|npx|aws|pip3?\s+install|npm\s+(?:i|ci|install)|yarn|pnpm|cargo\s+(?:add|install)"
    r"|uv\s+(?:sync|add|pip)|go\s+get|git\s+(?:clone|pull|fetch)|apt(?:-get)?\s+(?:install|update)|docker\s+pull)\b"
)
MOST = 0.5


def sources(turn: Turn) -> set[str]:
    """Return the kinds of untrusted content that a turn has read."""
    found = {PASTE} if turn.trigger == "user" and own_words(turn.user)[1] else set[str]()
    for call in turn.tools:
        if call.name in WEB_TOOLS:
            found.add("web page")
        elif call.name == "Bash" and _DOWNLOADS.search(str(call.input.get("command", ""))):
            found.add("command with network traffic")
        elif call.name == "Read" and "documents/" in str(call.input.get("file_path", "")):
            found.add("uploaded file")
        elif call.name.startswith("mcp__") and not call.name.startswith(OWN_TOOLS):
            found.add("connection")
    return found


def measure(path: Path) -> None:
    """Print the share of exposed days and sessions of one history."""
    by_session: dict[str, Counter[str]] = defaultdict(Counter)
    days: dict[str, bool] = {}
    for turn in load(path).turns:
        by_session[turn.session].update(sources(turn))
        # A session stays exposed.
        day = turn.at.date().isoformat()
        days[day] = days.get(day, False) or bool(by_session[turn.session])
    share = sum(days.values()) / len(days)
    exposed = sum(map(bool, by_session.values()))
    why = ", ".join(name for name, _ in sum(by_session.values(), Counter[str]()).most_common())
    value = f"{sum(days.values())} of {len(days)} ({share:.0%}), {exposed} of {len(by_session)} sessions"
    line(f"{path.stem}: exposed days", value, f"<= {MOST:.0%}", ok=share <= MOST)
    print(f"      by: {why}")


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:]) if sys.argv[1:] else shipped():
        measure(each)
