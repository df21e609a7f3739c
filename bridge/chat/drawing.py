"""Events of a conversation as rich renderables: pure, without terminal or connection.

A line takes one terminal line and is cut to its width. Other renderables take the space they need.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bridge.chat.exact import exact
from bridge.chat.untrusted import clean, one_line
from sprite.protocol.tools import OWN_TOOLS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sprite.protocol.messages import MemoryUpdate, PermissionRequest
    from sprite.protocol.shapes import ChatMessage, Origin, Paused, UsedTool

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
#: Input fields that identify a tool call, in order of preference.
_TELLING = (
    "command",
    "file_path",
    "notebook_path",
    "path",
    "pattern",
    "query",
    "title",
    "url",
    "description",
    "card_id",
    "name",
)


def line(*parts: str | tuple[str, str]) -> Text:
    """Return a line that is cut, not wrapped."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def note(text: str) -> Text:
    """Draw a remark of the client."""
    return Text(clean(text), style="dim")


def problem(text: str, advice: str = "") -> Text:
    """Draw a problem and the advice for it."""
    drawn = Text.assemble(("✗ ", "bold red"), (clean(text), "red"))
    return drawn.append(f"\n  {advice}", style="dim") if advice else drawn


def said(text: str) -> Text:
    """Draw a person's own message."""
    return Text.assemble((MARK, "bold cyan"), (clean(text).replace("\n", "\n  "), "bold"))


def tool_name(name: str) -> str:
    """Return a tool's name for people."""
    return one_line(name.removeprefix(OWN_TOOLS))


def shows_itself(name: str) -> bool:
    """Return whether the canvas shows a tool's effect, so that its result needs no line."""
    return name.startswith(OWN_TOOLS) and name.endswith("_card")


def tool_started(name: str, tool_input: dict[str, Any]) -> Text:
    """Draw `▸ Bash ls -la`."""
    return line(("▸ ", "cyan"), (tool_name(name), "bold dim"), (f"  {telling(tool_input)}", "dim"))


def tool_ended(name: str, summary: str, *, is_error: bool) -> Text:
    """Draw `✓ total 12`; `name` is needed where the tool is ambiguous."""
    mark = ("  ✗ ", "bold red") if is_error else ("  ✓ ", "green")
    who = f"{tool_name(name)}  " if name else ""
    outcome = one_line(_TAGS.sub("", summary))[:_LONGEST_SUMMARY] or ("failed" if is_error else "done")
    return line(mark, (f"{who}{outcome}", "red" if is_error else "dim"))


def how_to_go_on(paused: Paused) -> str:
    """Return the command that resumes the agent."""
    does = "raises today's limit and goes on" if paused.by == "budget" else "lets it go on"
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


def interrupted() -> Text:
    """Draw the end of a stopped turn."""
    return Text("■ stopped", style="yellow")


def stopped(what: list[str]) -> Text:
    """Draw the stopped background work."""
    return line(("■ stopped in the background: ", "yellow"), (", ".join(one_line(each) for each in what), "dim"))


def used(tools: list[UsedTool]) -> Text:
    """Draw the tools of a past turn: `▸ Bash x2, Read (failed)`."""
    counts = Counter((tool_name(tool.name), tool.is_error) for tool in tools)
    told = [
        f"{name}{f' x{count}' if count > 1 else ''}{' (failed)' if is_error else ''}"
        for (name, is_error), count in counts.items()
    ]
    return line(("  ▸ ", "cyan"), (", ".join(told), "dim"))


def remembered(update: MemoryUpdate) -> Text:
    """Draw `remembered 2 things · user.md updated`."""
    count = len(update.learnings)
    parts = [f"remembered {count} thing{'s' if count != 1 else ''}"] if count else []
    if update.files:
        parts.append(f"{', '.join(one_line(name) for name in update.files)} updated")
    return line(("✎ ", "magenta"), (" · ".join(parts), "dim"))


def drifted(names: list[str]) -> Text:
    """Draw that files wait for the person's decision."""
    who = ", ".join(one_line(name) for name in names)
    return line(("! ", "bold yellow"), (f"{who} changed without your word: /drift shows it, and takes your word", ""))


def history(chat: list[ChatMessage]) -> Group | None:
    """Draw the last few messages of the conversation, shortened."""
    newest = chat[-_HISTORY_MESSAGES:]
    if not newest:
        return None
    left_out = len(chat) - len(newest)
    earlier = f"earlier ({left_out} more before)" if left_out else "earlier"
    return Group(Text(f"── {earlier} ──", style="dim"), *(_past(message) for message in newest))


def question(request: PermissionRequest) -> RenderableType:
    """Draw a permission request with its whole input, character by character, and the answer keys."""
    return Group(
        Panel(
            _whole_input(request),
            title=Text.assemble("May the agent use ", (tool_name(request.tool), "bold"), "?"),
            title_align="left",
            box=box.ROUNDED,
            border_style="yellow",
            padding=(0, 1),
            expand=False,
        ),
        *_length(request),
        keys(request),
    )


def keys(request: PermissionRequest) -> Text:
    """Draw the answer keys. "always" appears only for a narrow rule, which it shows."""
    drawn = Text("  ")
    answers = [("y", "allow"), ("n", "deny")]
    if request.always is not None:
        answers.append(("a", f"always allow {one_line(request.always)}"))
    for key, answer in answers:
        drawn.append(key, style="bold yellow").append(f" {answer}   ")
    return drawn.append("then Enter", style="dim")


def allowed_always(words: str) -> Text:
    """Draw the outcome of "always"."""
    return line((f"  ✓ always allowed: {one_line(words)}", "green"), ("  /permissions takes it back", "dim"))


def help_table(rows: list[tuple[str, str]]) -> Table:
    """Draw commands or keys with their descriptions."""
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="cyan", no_wrap=True)
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


def telling(tool_input: dict[str, Any]) -> str:
    """Return the part of the input that identifies a tool call, on one line."""
    for key in _TELLING:
        value = tool_input.get(key)
        if isinstance(value, str) and value.strip():
            return one_line(value)[:_LONGEST_SUMMARY]
    return one_line(json_text(tool_input))[:_LONGEST_SUMMARY] if tool_input else ""


def _whole_input(request: PermissionRequest) -> RenderableType:
    rows = list(request.input.items())
    if not rows:
        return Text("without any input", style="dim italic")
    # Short values come first, and the agent's own description comes last.
    rows.sort(key=lambda row: (row[0] == "description", len(_field(row[1])) > _CHARS_AT_A_GLANCE))
    if request.folder is not None:
        rows.insert(0, ("in folder", request.folder))
    if request.real_path is not None:
        rows.insert(0, ("leads to", request.real_path))
    if [name for name, _ in rows] == ["command"]:
        return exact(_field(rows[0][1]))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in rows:
        grid.add_row(Text(one_line(name)), exact(_field(value)))
    return grid


def _length(request: PermissionRequest) -> list[Text]:
    """Draw the length of a question whose start may be out of sight."""
    texts = [_field(value) for value in request.input.values()]
    chars, lines = sum(map(len, texts)), sum(text.count("\n") + 1 for text in texts)
    if chars <= _CHARS_AT_A_GLANCE and lines <= _LINES_AT_A_GLANCE:
        return []
    return [Text(f"  {chars:,} characters in {lines:,} lines: scroll up to read all of it", style="bold yellow")]


def _field(value: object) -> str:
    return value if isinstance(value, str) else json_text(value)


def json_text(value: object) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value).decode()
