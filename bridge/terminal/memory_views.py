"""Answers of the sprite to commands, drawn for the terminal (pure)."""

import math
import re
import time
from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bridge.terminal.drawing import clean, due_words, exact, markdown, moment_words, one_line
from sprite.common.due_times import repeat_words
from sprite.protocol import shapes
from sprite.protocol.memory import ChangesResult, UndoResult
from sprite.protocol.messages import StandingRule, Status
from sprite.protocol.shapes import counted

_HIT_CHARS = 300
_TURNS_LISTED = 20
#: The last part of a turn's hit. The search indents the lines of all parts, so that no text looks like another part.
_TOOLS = re.compile(r"^Tools: .*", re.MULTILINE | re.DOTALL)
_SERVER = re.compile(r"\bmcp__\w+?__(\w+)")
_JSON_MARKS = re.compile(r'[{}\[\]"]')


def files(states: list[shapes.FileState]) -> Table:
    """Draw the memory files with their lines and limits."""
    drawn = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("file", "lines", "comes from", "changed"):
        drawn.add_column(name, justify="right" if name == "lines" else "left", no_wrap=True)
    for state in states:
        curated = state.managed == "curated"
        drawn.add_row(
            Text(one_line(state.name), style="bold"),
            Text(f"{state.lines}/{state.limit}" if curated and state.limit else str(state.lines)),
            Text("memory" if curated else "Sprite", style="dim"),
            Text(when(state.updated_at), style="dim"),
        )
    return drawn


def memory_file(name: str, content: str) -> RenderableType:
    """Draw one memory file."""
    body = markdown(content) if content.strip() else Text("empty", style="dim italic")
    return Panel(body, title=Text(one_line(name), style="bold"), title_align="left", border_style="magenta")


def learnings(rows: list[shapes.LearningRow]) -> RenderableType:
    """Draw the newest learnings, newest first."""
    if not rows:
        words = "Nothing learned yet. Sprite learns after a few turns or a pause, and at once with /flush."
        return Text(words, style="dim")
    drawn = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for style in ("dim", "magenta", ""):
        drawn.add_column(style=style, no_wrap=style != "")
    for row in rows:
        gone = "strike dim" if row.superseded_by is not None else ""
        mark = (" (unverified)", "yellow") if row.is_unverified and not gone else ""
        quote = (f'  "{one_line(row.evidence)}"' if row.evidence else "", "dim")
        drawn.add_row(
            Text(when(row.created_at)),
            Text(one_line(row.type)),
            Text.assemble((one_line(row.content), gone), mark, _whence(row.source_observation_id, row.project), quote),
        )
    return drawn


def actions(rows: list[shapes.ActionRow]) -> RenderableType:
    """Draw open actions: failed ones first, then by due time, then by priority."""
    pending = sorted(
        (row for row in rows if row.status in {"open", "failed"}),
        key=lambda row: (row.status == "open", math.inf if row.due is None else row.due, -row.priority, row.id),
    )
    if not pending:
        return Text("No open to-dos. Ask the agent to remind you of something.", style="dim")
    drawn = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    drawn.add_column()
    drawn.add_column(style="dim")
    for row in pending:
        drawn.add_row(Text(one_line(row.content)), _when_due(row))
    return drawn


def _when_due(row: shapes.ActionRow) -> Text:
    if row.status == "failed":
        why = one_line(row.history[-1].what) if row.history else ""
        return Text(f"did not work: {why}" if why else "did not work", style="red")
    parts = [due_words(row.due, row.tz)] if row.due is not None else []
    if row.rrule:
        parts.append(repeat_words(row.rrule))
    is_late = row.due is not None and row.due < time.time()
    return Text(one_line(", ".join(parts)) or f"since {when(row.created_at)}", style="red" if is_late else "")


def hits(found: list[shapes.SearchHit], *, waiting: int, notes: Sequence[str] = ()) -> RenderableType:
    """Draw search hits in rank order, the search's notes and the number of turns without learnings so far."""
    after = [Text(one_line(note), style="dim") for note in notes]
    if waiting:
        after.append(Text(f"{counted(waiting, 'turn')} not learned from yet (/flush does it now).", style="dim"))
    if not found:
        return Group(Text("Nothing found."), *after)
    drawn = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for style in ("dim", "magenta", ""):
        drawn.add_column(style=style, no_wrap=style != "")
    for hit in found:
        kind = hit.type if hit.kind == "learning" else f"turn {hit.id}"
        text = one_line(_TOOLS.sub(_plain_calls, hit.text))
        short = text[:_HIT_CHARS] + (" …" if len(text) > _HIT_CHARS else "")
        drawn.add_row(
            Text(when(hit.at)),
            Text(one_line(kind)),
            Text.assemble(
                (short, "strike dim" if hit.superseded_by is not None else ""),
                (" (unverified)" if hit.unverified else "", "yellow"),
                (" (undone)" if hit.undone else "", "yellow"),
                _whence(hit.turn_id if hit.kind == "learning" else None, hit.project),
            ),
        )
    return Group(drawn, *after)


def _plain_calls(tools: re.Match[str]) -> str:
    """Return the part of a hit with a turn's tool calls, without servers' names and the marks of JSON."""
    names = _SERVER.sub(lambda found: found[1].replace("_", " "), tools[0])
    return _JSON_MARKS.sub("", names)


def _whence(turn: int | None, project: str | None) -> tuple[str, str]:
    """Return the source of a learning or hit: its turn and its project."""
    said = f"  turn {turn}" if turn is not None else ""
    return said + (f"  project {one_line(project)}" if project is not None else ""), "dim"


def forgetting(what: shapes.Forgotten) -> RenderableType:
    """Draw what a forget would remove, and what it leaves."""
    counts = {"turn": len(what.turns), "learning": what.learnings, "curated line": what.lines, "card": what.cards}
    told = ", ".join(counted(number, noun) for noun, number in counts.items() if number) or "what is listed here"
    drawn = [Text.assemble("This would be deleted permanently: ", (told, "bold yellow"), ".")]
    if what.turns:
        listed = ", ".join(str(turn) for turn in what.turns[:_TURNS_LISTED])
        more = len(what.turns) - _TURNS_LISTED
        drawn.append(Text(f"Turns {listed}{f' and {more} more' if more > 0 else ''}.", style="dim"))
    drawn += [_place(place) for place in what.gone]
    if what.more:
        drawn.append(Text(f"and {what.more} more", style="dim"))
    if what.still:
        drawn += [Text("It stays in these places:", style="bold"), *map(_place, what.still)]
    return Group(*drawn)


def forgotten(what: shapes.Forgotten) -> RenderableType:
    """Draw the result of a forget: whether any store still has the content, and where."""
    words = "Forgotten. Memory's history keeps only the time and the amount. This window still shows the words."
    done = Text(words, style="dim")
    if not what.still:
        return Group(done, Text("No store contains it any more.", style="dim"))
    return Group(done, Text("These stores still contain it:", style="bold"), *map(_place, what.still))


def _place(place: shapes.Place) -> Text:
    return Text.assemble((f"{one_line(place.where)}: ", "dim"), one_line(place.text))


def status(state: Status, *, link: str) -> Table:
    """Draw the sprite's status."""
    memory, session = state.memory, state.session
    asks = "asks about new hosts, paths outside the workspace and the like"
    known = f"{counted(memory.turns, 'turn')}, {counted(memory.learnings, 'learning')}, {memory.waiting} waiting"
    here = f"here ({counted(memory.unshipped_forgets, 'forget')}); the bridge's replica still contains it"
    rows = [
        ("connection", link),
        ("model", state.model or "chosen by Claude Code"),
        ("effort", session.effort or "default"),
        ("permissions", asks if state.permissions == "ask" else "acts without asking anybody"),
        ("session", counted(session.turns, "turn") if session.session_id else "begins with your next message"),
        ("under way", _under_way(session)),
        ("memory", known),
        *(
            ("set aside", f"turn {turn.turn_id}: {one_line(turn.reason)} (/retry {turn.turn_id} tries again)")
            for turn in memory.quarantined
        ),
        *([("forgotten", here)] if memory.unshipped_forgets else []),
        *(("drift", f"{name} changed on disk (accept or discard the change on your page)") for name in memory.drift),
        *(
            ("background", f"{one_line(work.title)}, since {when(work.since)} (Ctrl-C stops)")
            for work in session.background
        ),
        ("next", f"{moment_words(state.next_due.at)} (/actions lists it)" if state.next_due else "nothing is due"),
        ("time zone", state.tz),
        *_spent(state.spend),
        ("last error", state.last_error or "none"),
    ]
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column()
    for name, text in rows:
        drawn.add_row(Text(name), Text(clean(text)))
    return drawn


def _spent(spend: shapes.Spend | None) -> list[tuple[str, str]]:
    if spend is None:
        return []
    if spend.plan is not None:
        limits = [f"{limit.name} {limit.used:.0%}, resets {when(limit.resets_at)}" for limit in spend.plan]
        return [("Claude plan", "; ".join(limits) or "pays; its limits are known after a turn")]
    turn = "not known" if spend.turn is None else _cost(spend.turn)
    return [("spent today", _costs(spend.today)), ("this session", _costs(spend.session)), ("last turn", turn)]


def _costs(costs: shapes.Costs) -> str:
    parts = {"agent": costs.agent, "schedules": costs.schedules, "memory": costs.memory}
    whole = shapes.Cost(sum(each.settled for each in parts.values()), sum(each.estimated for each in parts.values()))
    return f"{_cost(whole)} ({', '.join(f'{name} {_cost(each)}' for name, each in parts.items())})"


def _cost(cost: shapes.Cost) -> str:
    estimated = f" + ${cost.estimated:.4f} estimated" if cost.estimated else ""
    return f"${cost.settled:.4f}{estimated}"


def when(at: float | None) -> str:
    """Return a time (Unix seconds) as local date and time, or "" for None."""
    return "" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def _under_way(session: shapes.SessionState) -> str:
    parts = ["the agent is at work" if session.running_mission_id else "nothing"]
    if session.queued:
        parts.append(f"{session.queued} queued")
    titles = "; ".join(work.title for work in session.background)
    return ", ".join([*parts, f"in the background: {titles}"] if titles else parts)


def rules(rules: list[StandingRule]) -> Table:
    """Draw standing permissions by number."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column()
    drawn.add_column(style="dim", no_wrap=True)
    for number, rule in enumerate(rules, 1):
        words = Text(one_line(rule.words))
        if rule.command:
            words = Text.assemble(words, "\n", exact(rule.command))
        drawn.add_row(Text(str(number)), words, Text(when(rule.at)))
    return drawn


def call_rules(rules: list[shapes.RuleRow]) -> RenderableType:
    """Draw the rules about tool calls that hold or wait, by number."""
    drawn = Table.grid(padding=(0, 2))
    for style in ("bold", "cyan", ""):
        drawn.add_column(style=style)
    for rule in rules:
        if rule.status in {"active", "offered"}:
            told = f"{rule.reason} {rule.doubt}".strip()
            drawn.add_row(str(rule.id), rule.status, Text(f"{one_line(rule.words)}\n{one_line(told)}"))
    return drawn if drawn.row_count else Text("no rules yet", style="dim")


_KINDS = {"added": ("+ ", "green"), "modified": ("~ ", "yellow"), "deleted": ("- ", "red")}
_LINES = {"+": "green", "-": "red", "@": "cyan"}
#: Lines shown of one diff.
_MOST_LINES = 60


def changed(found: ChangesResult) -> RenderableType:
    """Draw a change set with diffs."""
    name = f"Turn {found.turn_id}" if found.turn_id is not None else one_line(found.turn)
    drawn = [Text.assemble((name, "bold"), (" (undone)" if found.undone_by else "", "yellow"))]
    for file in found.files:
        drawn.append(_file(file))
        lines = (file.diff or "").split("\n")
        drawn += [exact(line, style=_LINES.get(line[:1], "dim")) for line in lines[:_MOST_LINES] if line]
        if len(lines) > _MOST_LINES:
            drawn.append(Text(f"and {counted(len(lines) - _MOST_LINES, 'line')} more", style="dim"))
    if found.more:
        drawn.append(Text(f"and {counted(found.more, 'file')} more", style="dim"))
    return Group(*drawn)


def _file(file: shapes.ChangedFile) -> Text:
    sign, style = _KINDS[file.kind]
    marks = "" if file.kept else " (not kept: cannot be undone)"
    marks += " (maybe your own change: undone only if you name it)" if file.yours else ""
    return Text.assemble((sign, style), one_line(file.path), (marks, "dim"))


def undone(done: UndoResult) -> RenderableType:
    """Draw the result of an undo."""
    groups = (
        ("restored: ", done.restored),
        ("changed again since then, so not restored (--over FILE restores it): ", done.conflicts),
        ("maybe your own change, so not restored (name it to restore it): ", done.yours),
        ("earlier content not kept, so not restored: ", done.unkept),
    )
    drawn = [Text.assemble((words, "dim"), one_line(path)) for words, paths in groups for path in paths]
    if done.undo is not None:
        drawn.append(Text("/undo undo takes this back.", style="dim"))
    return Group(*drawn) if drawn else Text("Nothing to restore: the files are as they were before.")
