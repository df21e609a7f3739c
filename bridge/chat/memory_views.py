"""Memory as a person looks at it: files with their limits, what was learned, what a search finds. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bridge.chat.cards import gauge, markdown
from bridge.chat.counted import counted
from bridge.chat.untrusted import clean, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sprite.protocol.messages import Status
    from sprite.protocol.rows import LearningRow, SearchHit
    from sprite.protocol.shapes import FileState, SessionState

_HIT_CHARS = 300


def files(states: list[FileState]) -> Table:
    """Draws the memory files with their lines against their limits."""
    drawn = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("file", "lines", "", "kept by", "changed"):
        drawn.add_column(name, justify="right" if name == "lines" else "left", no_wrap=True)
    for state in states:
        curated = state.managed == "curated"
        drawn.add_row(
            Text(one_line(state.name), style="bold"),
            Text(f"{state.lines}/{state.limit}" if curated and state.limit else str(state.lines)),
            gauge(state.lines, state.limit) if curated and state.limit else Text(""),
            Text("memory" if curated else "you", style="dim"),
            Text(when(state.updated_at), style="dim"),
        )
    return drawn


def memory_file(name: str, content: str) -> RenderableType:
    """Draws one memory file."""
    body = markdown(content) if content.strip() else Text("empty", style="dim italic")
    return Panel(body, title=Text(one_line(name), style="bold"), title_align="left", border_style="magenta")


def learnings(rows: list[LearningRow]) -> RenderableType:
    """Draws what was learned last, newest first."""
    if not rows:
        return Text("Nothing learned yet: that happens every few turns, at /new, and with /flush.", style="dim")
    drawn = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for style in ("dim", "magenta", ""):
        drawn.add_column(style=style, no_wrap=style != "")
    for row in rows:
        gone = "strike dim" if row.superseded_by else ""
        drawn.add_row(
            Text(when(row.created_at)),
            Text(one_line(row.type)),
            Text(one_line(row.content), style=gone),
        )
    return drawn


def hits(found: list[SearchHit], *, waiting: int) -> RenderableType:
    """Draws the hits of a search in rank order, and how many turns no learning can exist for yet."""
    after = (
        Text(
            f"{waiting} turn{'s' if waiting != 1 else ''} not looked through for learnings yet (/flush does).",
            style="dim",
        )
        if waiting
        else Text("")
    )
    if not found:
        return Group(Text("Nothing found."), after) if waiting else Text("Nothing found.")
    drawn = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for style in ("dim", "magenta", ""):
        drawn.add_column(style=style, no_wrap=style != "")
    for hit in found:
        kind = hit.type if hit.kind == "learning" else f"turn {hit.id}"
        text = one_line(hit.text)
        short = text[:_HIT_CHARS] + (" …" if len(text) > _HIT_CHARS else "")
        drawn.add_row(
            Text(when(hit.at)),
            Text(one_line(kind)),
            Text(short, style="strike dim" if hit.superseded_by else ""),
        )
    return Group(drawn, after) if waiting else drawn


def status(state: Status, *, link: str) -> Table:
    """Draws the sprite in numbers."""
    memory, session = state.memory, state.session
    limit = {"ask": "asks before what needs your word", "bypass": "does as it sees fit"}
    rows = [
        ("connection", link),
        ("model", state.model or "the CLI's choice"),
        ("permissions", limit.get(state.permissions, state.permissions)),
        ("session", counted(session.turns, "turn") if session.session_id else "begins with your next message"),
        ("under way", _under_way(session)),
        (
            "memory",
            f"{counted(memory.turns, 'turn')}, {counted(memory.learnings, 'learning')}, {memory.waiting} waiting",
        ),
        ("spent", f"${memory.spend_usd:.4f} on memory"),
        ("last error", state.last_error or "none"),
    ]
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column()
    for name, text in rows:
        drawn.add_row(Text(name), Text(clean(text)))
    return drawn


def when(at: float | None) -> str:
    """Returns a time (Unix seconds) as a date and time of this place, or nothing."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def _under_way(session: SessionState) -> str:
    parts = ["the agent is at work" if session.running_mission_id else "nothing"]
    if session.queued:
        parts.append(f"{session.queued} queued")
    titles = "; ".join(work.title for work in session.background)
    return ", ".join([*parts, f"in the background: {titles}"] if titles else parts)
