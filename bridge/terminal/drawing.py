"""Events of a conversation as rich renderables (pure)."""

import re
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from sprite.protocol.events import ToolUse
from sprite.protocol.messages import MemoryUpdate, PermissionRequest, RuleApplied, RuleOffered
from sprite.protocol.shapes import Block, ChatMessage, Origin, Paused, UsedTool, counted
from sprite.protocol.tools import NETWORK, OWN_TOOLS, leaves_of, telling

#: Inside the year 9999 in every time zone.
_LATEST = 253_402_214_400.0
_NEAR = {-1: "yesterday", 0: "today", 1: "tomorrow"}
_WEEK_DAYS = 7
_LOCAL_TIME = Path("/etc/localtime")
_ZONES = "zoneinfo/"
#: Zones of machines without a location, which are no information about the person.
_NOWHERE = frozenset({"UTC", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "Universal", "UCT", "Zulu", "GMT"})


def moment_words(at: float, now: float | None = None) -> str:
    """Return a local time as text: `today 14:03`, `Tue 09:00` within a week, `2026-12-01 09:00`."""
    then, today = _clock(at), _clock(time.time() if now is None else now)
    days = (then.date() - today.date()).days
    day = _NEAR.get(days) or (f"{then:%a}" if abs(days) < _WEEK_DAYS else f"{then:%Y-%m-%d}")
    return f"{day} {then:%H:%M}"


def due_words(due: float, tz: str | None, now: float | None = None) -> str:
    """Return a due time as text, with the time in `tz` if that differs from the local one."""
    is_late = due < (time.time() if now is None else now)
    words = f"overdue since {moment_words(due, now)}" if is_late else moment_words(due, now)
    there = _clock(due, _zone(tz) if tz else None)
    here = _clock(due)
    if (there.date(), there.hour, there.minute) == (here.date(), here.hour, here.minute):
        return words
    day = "" if there.date() == here.date() else f"{there:%Y-%m-%d} "
    return f"{words} ({day}{there:%H:%M} in {tz})"


def own_zone(setting: str) -> str | None:
    """Return this machine's IANA time zone, from `setting` (TZ) or /etc/localtime, or None if it is unset or UTC."""
    name = setting.removeprefix(":")
    if not name and _LOCAL_TIME.is_symlink():
        _, _, name = str(_LOCAL_TIME.resolve()).partition(_ZONES)
    return name if name and name not in _NOWHERE and _zone(name) is not None else None


def _clock(at: float, zone: ZoneInfo | None = None) -> datetime:
    """Return the time in a zone, by default the local one. Times out of range are clamped."""
    return datetime.fromtimestamp(min(max(at, 0.0), _LATEST), zone)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


_MARK = "reverse yellow"
#: Unstyled, because styles make texts with many lines very slow to draw.
_ENDS = str.maketrans({"\n": "\N{RETURN SYMBOL}\n", "\t": "\N{RIGHTWARDS ARROW TO BAR}\t"})
#: Control, format, surrogate, private-use and unassigned characters, spaces, and line separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
#: Invisible characters of other categories, and variation selectors.
_BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
_SELECTORS = {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}


def exact(text: str, style: str = "") -> Text:
    """Draw a text with visible line ends, and with marks such as `<U+202E>` for invisible characters."""
    drawn = Text(overflow="fold", style=style)
    for is_unseen, letters in groupby(text, _is_unseen):
        if is_unseen:
            drawn.append("".join(f"<U+{ord(letter):04X}>" for letter in letters), style=_MARK)
        else:
            drawn.append("".join(letters).translate(_ENDS))
    return drawn


def _is_unseen(letter: str) -> bool:
    if letter in " \n\t":
        return False
    return unicodedata.category(letter) in _UNSEEN or ord(letter) in _BLANK or ord(letter) in _SELECTORS


#: C0 except tab and newline, DEL, C1, and lone surrogates.
_CONTROLS = {*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)} - {ord("\t"), ord("\n")}
#: Line separators and bidirectional controls.
_SEPARATORS = {0x061C, *range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
_FORBIDDEN = dict.fromkeys(_CONTROLS | _SEPARATORS)


def clean(text: object) -> str:
    """Return the text without characters that control a terminal."""
    return str(text).translate(_FORBIDDEN)


def one_line(text: object) -> str:
    """Return the cleaned text with each run of white space replaced by one space."""
    return " ".join(clean(text).split())


#: Precedes a person's message.
MARK = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
_BEGAN: dict[Origin, str] = {
    "person": "a message from elsewhere",
    "agent": "Sprite, by itself",
    "schedule": "Sprite, as scheduled",
}
#: Tags that the CLI puts around a tool's own refusal.
_TAGS = re.compile(r"</?tool_use_error>")
_LONGEST_SUMMARY = 300
_HISTORY_MESSAGES = 6
_HISTORY_LINES = 3
#: A longer question may scroll its start out of sight.
_LINES_AT_A_GLANCE = 20
_CHARS_AT_A_GLANCE = 1000
#: Own tools whose result is seen elsewhere, and has numbers for the agent alone.
_SEEN_ELSEWHERE = ("_card", "schedule", "_action", "_actions")


def line(*parts: str | tuple[str, str]) -> Text:
    """Return a line that is cut, not wrapped."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def note(text: str) -> Text:
    """Draw a remark of the client."""
    return Text(clean(text), style="dim")


def problem(text: str, advice: str = "") -> Text:
    """Draw an error message and, below it, what the person can do."""
    drawn = Text.assemble(("✗ ", "bold red"), (clean(text), "red"))
    return drawn.append(f"\n  {advice}", style="dim") if advice else drawn


def said(text: str) -> Text:
    """Draw a person's own message."""
    return Text.assemble((MARK, "bold cyan"), (clean(text).replace("\n", "\n  "), "bold"))


def tool_name(name: str) -> str:
    """Return a tool's name for people."""
    return one_line(name.removeprefix(OWN_TOOLS))


def shows_itself(name: str) -> bool:
    """Return whether the canvas or the to-do list shows a tool's effect, so that its result needs no line."""
    return name.startswith(OWN_TOOLS) and name.endswith(_SEEN_ELSEWHERE)


def tool_started(name: str, tool_input: dict[str, Any]) -> Text:
    """Draw the start of a tool call: `▸ Bash ls -la`."""
    return line(("▸ ", "cyan"), (tool_name(name), "bold dim"), (f"  {telling_line(tool_input)}", "dim"))


def tool_ended(name: str, summary: str, *, is_error: bool) -> Text:
    """Draw the result of a tool call: `✓ total 12`; `name` is given where it is unclear which tool ended."""
    mark = ("  ✗ ", "bold red") if is_error else ("  ✓ ", "green")
    who = f"{tool_name(name)}  " if name else ""
    outcome = one_line(_TAGS.sub("", summary))[:_LONGEST_SUMMARY] or ("failed" if is_error else "done")
    return line(mark, (f"{who}{outcome}", "red" if is_error else "dim"))


def how_to_go_on(paused: Paused) -> str:
    """Return the command that resumes the agent."""
    does = "raises today's limit and resumes the agent" if paused.by == "budget" else "resumes the agent"
    return f"/go-on {does}."


#: Shown for a turn whose earlier attempt had no effect.
BEGUN_AGAIN = "Begun again: Sprite was stopped before it had done anything."


def began(origin: Origin) -> Text:
    """Draw the origin of a turn that was not started here."""
    return note(f"▸ {_BEGAN[origin]}")


def by_schedule(text: str) -> Text:
    """Draw a message from a schedule."""
    return line(("▸ by schedule: ", "cyan"), (one_line(text), "bold dim"))


def by_program(name: str, text: str) -> Text:
    """Draw a message from a program."""
    return line((f"▸ {one_line(name)} asks: ", "cyan"), (one_line(text), "bold dim"))


def stopped(what: list[str]) -> Text:
    """Draw the stopped background work."""
    return line(("■ stopped in the background: ", "yellow"), (", ".join(one_line(each) for each in what), "dim"))


def used(tools: list[UsedTool]) -> Text:
    """Draw the tools that a past turn used: `▸ Bash x2, Read (failed)`."""
    counts = Counter((tool_name(tool.name), tool.is_error) for tool in tools)
    told = [
        f"{name}{f' x{count}' if count > 1 else ''}{' (failed)' if is_error else ''}"
        for (name, is_error), count in counts.items()
    ]
    return line(("  ▸ ", "cyan"), (", ".join(told), "dim"))


def remembered(updates: list[MemoryUpdate]) -> Text:
    """Draw what was learned: `remembered 2 things · user.md updated`."""
    count = sum(len(update.learnings) for update in updates)
    files = dict.fromkeys(one_line(name) for update in updates for name in update.files)
    parts = [f"remembered {counted(count, 'thing')}"] if count else []
    if files:
        parts.append(f"{', '.join(files)} updated")
    return line(("✎ ", "magenta"), (" · ".join(parts), "dim"))


def drifted(names: list[str]) -> Text:
    """Draw that these memory files changed on disk and wait for the person's decision."""
    who = ", ".join(one_line(name) for name in names)
    return line(("! ", "bold yellow"), (f"{who} changed on disk: accept or discard the change on your page", ""))


def rule_event(event: RuleOffered | RuleApplied) -> RenderableType | None:
    """Draw the offer of a rule, or what a rule did to a call without a question; None for other changes."""
    if isinstance(event, RuleApplied):
        if event.did in {"allowed", "denied"}:
            return None
        again = f"  /rules override {event.rule_id} lets this call run once" if event.did == "stopped" else ""
        return Group(line(("! ", "bold yellow"), (one_line(event.said), "")), *([note(again)] if again else []))
    rule = event.rule
    if rule.status == "offered":
        said = [f'  you said: "{one_line(rule.quote)}"'] if rule.quote else []
        perhaps = {True: "", False: " (perhaps: the log does not tell the branch)"}
        examples = [f"  {each.tool}: {telling(each.input)}{perhaps[each.certain]}" for each in rule.examples[-3:]]
        keys = f"  /rules accept {rule.id}, or /rules dismiss {rule.id}"
        ask = line(("? ", "bold yellow"), (one_line(f"Make it a rule? {rule.words}: {rule.reason}"), ""))
        return Group(ask, *map(note, [*said, f"  {rule.past}", *examples, keys]))
    return note(f"rule {rule.id}: {one_line(rule.doubt)} /rules retire {rule.id} ends it") if rule.doubt else None


def history(chat: list[ChatMessage]) -> Group | None:
    """Draw the last few messages of the conversation, shortened."""
    newest = chat[-_HISTORY_MESSAGES:]
    if not newest:
        return None
    left_out = len(chat) - len(newest)
    earlier = f"earlier ({left_out} more before)" if left_out else "earlier"
    return Group(Text(f"── {earlier} ──", style="dim"), *(_past(message) for message in newest))


def question(request: PermissionRequest, asking: ToolUse | None = None) -> RenderableType:
    """Draw a permission request with its whole input and the answer keys; `asking` is the call that asks for a host."""
    title = Text.assemble("May the agent use ", (tool_name(request.tool), "bold"), "?")
    if request.tool == NETWORK:
        title = Text.assemble("May the agent reach ", (one_line(request.input.get("host")), "bold"), "?")
    return Group(
        _panel(_drawn_input(request), title, "yellow"),
        *_length(request),
        *(Text(f"  {source}: {words}", style="yellow") for source, words in foreign_words(request)),
        *([] if asking is None else [Text("  ") + tool_started(asking.name or "a tool", asking.input)]),
        _keys(request),
    )


def _panel(content: RenderableType, title: Text, border: str, subtitle: str = "") -> Panel:
    return Panel(
        content,
        title=title,
        title_align="left",
        subtitle=Text(subtitle, style="dim") if subtitle else None,
        subtitle_align="right",
        box=box.ROUNDED,
        border_style=border,
        padding=(0, 1),
        expand=False,
    )


def foreign_words(request: PermissionRequest) -> list[tuple[str, str]]:
    """Return the words of the input that come from outside, by their sources."""
    texts = dict(leaves_of(request.input))
    found: dict[str, dict[str, None]] = {}
    for span in request.foreign:
        words = one_line(texts.get(span.field, "")[span.start : span.end])[:_LONGEST_SUMMARY]
        found.setdefault(span.source, {})[words] = None
    return [(f"from outside, {source_words(source)}", ", ".join(words)) for source, words in found.items()]


def source_words(source: str) -> str:
    """Return a session's source as shown to people."""
    return one_line(source.replace(":", " ", 1))


def _keys(request: PermissionRequest) -> Text:
    """Draw the answer keys. "always" appears only for a narrow rule, which it shows."""
    drawn = Text("  ")
    answers = [("y", "allow" if request.session is None else "allow in this turn"), ("n", "deny")]
    if request.session is not None:
        answers.append(("s", "allow in this session"))
    if request.always is not None:
        answers.append(("a", f"always allow {one_line(request.always)}"))
    for key, answer in answers:
        drawn.append(key, style="bold yellow").append(f" {answer}   ")
    return drawn.append("then Enter", style="dim")


def short_keys(request: PermissionRequest) -> str:
    """Return the answer keys for the state line."""
    answers = ["y allow", "n deny"]
    answers += ["s this session"] if request.session is not None else []
    answers += ["a always"] if request.always is not None else []
    return " · ".join(answers)


def allowed_always(request: PermissionRequest) -> Text:
    """Draw the outcome of "always"."""
    where = "your page" if request.tool == NETWORK else "/permissions"
    words = f"  ✓ always allowed: {one_line(request.always or '')}"
    return line((words, "green"), (f"  {where} revokes it", "dim"))


def help_table(rows: list[tuple[str, str]]) -> Table:
    """Draw commands or keys with their descriptions."""
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="cyan", max_width=26)
    grid.add_column(style="dim")
    for name, meaning in rows:
        grid.add_row(Text(name), Text(meaning))
    return grid


def _past(message: ChatMessage) -> Group:
    lines = [text for text in clean(message.text).splitlines() if text.strip()]
    if len(lines) > _HISTORY_LINES:
        lines[_HISTORY_LINES - 1 :] = ["…"]
    mark = {"user": MARK, "assistant": "  ", "error": "✗ "}[message.role]
    style = "dim red" if message.role == "error" else "dim"
    drawn = [line((f"{'  ' if index else mark}{text}", style)) for index, text in enumerate(lines)]
    if message.role == "user" and message.origin == "schedule":
        return Group(by_schedule(message.text))
    if message.role == "user" and message.asked_by is not None:
        return Group(by_program(message.asked_by, message.text))
    before = [began(message.origin)] if message.origin == "agent" else []
    return Group(*before, *([used(message.tools)] if message.tools else []), *drawn)


def telling_line(tool_input: dict[str, Any]) -> str:
    """Return the part of the input that identifies a tool call, on one line."""
    # A to-do's id alone says nothing to people.
    words = telling(tool_input) or (json_text(tool_input) if tool_input.keys() - {"id"} else "")
    return one_line(words)[:_LONGEST_SUMMARY]


def whole_input(request: PermissionRequest) -> list[tuple[str, str]]:
    """Return the input of a permission request, and what else it is about, as names and texts."""
    before = (("leads to", request.real_path), ("in folder", request.folder), ("rule", request.rule))
    rows = [(name, value if isinstance(value, str) else json_text(value)) for name, value in request.input.items()]
    # Short values come first, and the agent's own description comes last.
    rows.sort(key=lambda row: (row[0] == "description", len(row[1]) > _CHARS_AT_A_GLANCE))
    return [*((name, text) for name, text in before if text is not None), *rows]


def _drawn_input(request: PermissionRequest) -> RenderableType:
    rows = whole_input(request)
    if not rows:
        return Text("without any input", style="dim italic")
    if [name for name, _ in rows] == ["command"]:
        return exact(rows[0][1])
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, text in rows:
        grid.add_row(Text(one_line(name)), exact(text))
    return grid


def _length(request: PermissionRequest) -> list[Text]:
    """Draw the length of a question whose start may be out of sight."""
    texts = [text for _, text in whole_input(request)]
    chars, lines = sum(map(len, texts)), sum(text.count("\n") + 1 for text in texts)
    if chars <= _CHARS_AT_A_GLANCE and lines <= _LINES_AT_A_GLANCE:
        return []
    return [Text(f"  {chars:,} characters in {lines:,} lines: scroll up to read all of it", style="bold yellow")]


def json_text(value: object) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value).decode()


def draw_card(title: str, blocks: list[Block], *, subtitle: str = "") -> Panel:
    """Draw a card as a panel with its blocks below each other."""
    drawn = [_block(block) for block in blocks] or [Text("empty", style="dim italic")]
    return _panel(Group(*drawn), Text(one_line(title) or "Untitled", style="bold"), "cyan", subtitle)


#: The plain text of each simple block; missing members are left out.
_TEXTS = {
    "heading": "{text}",
    "note": "{content}",
    "stat": "{value}  {label}  {description}",
    "badge": "[{text}]",
    "progress": "{value}%  {label}",
    "document": "{path}  {title}\n{excerpt}",
}


def _block(block: Block) -> RenderableType:
    """Draw one block. A block that is unknown or malformed is shown as JSON."""
    kind, data = block.type, block.data
    try:
        if kind == "text":
            return markdown(data["content"])
        if kind == "key-value":
            return _table([(pair["key"], pair["value"]) for pair in data["pairs"]])
        if kind == "table":
            return _table(data["rows"], data["columns"])
        if kind == "separator":
            return Rule(style="dim")
        values = defaultdict(str, {name: _value(value) for name, value in data.items()})
        return Text(_TEXTS[kind].format_map(values).rstrip(), style="bold" if kind == "heading" else "")
    except (KeyError, TypeError, ValueError, AttributeError):
        return Text(f"{one_line(kind)} {clean(json_text(data))}", style="dim")


def _table(rows: Iterable[Sequence[Any]], columns: Sequence[Any] = ()) -> Table:
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=bool(columns))
    for name in columns:
        drawn.add_column(Text(_value(name)))
    for row in rows:
        # Rich adds columns for longer rows.
        drawn.add_row(*(Text(_value(cell)) for cell in row))
    return drawn


def markdown(text: str) -> Markdown:
    """Return Markdown in the terminal's colours, with visible link targets, because link texts may mislead."""
    return Markdown(clean(text), code_theme="ansi_dark", hyperlinks=False)


def _value(value: object) -> str:
    """Return a cell's text: 3 instead of 3.0, "" for null, yes and no."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    return clean(value if isinstance(value, str | int) else json_text(value))
