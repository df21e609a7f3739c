"""What happens in a conversation, as things rich can print: pure, no terminal and no connection.

Lines are one terminal line each and are cut to its width; the rest takes the room it needs.
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

#: Stands before what a person says.
MARK = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
_BEGAN: dict[Origin, str] = {
    "person": "a message from elsewhere",
    "agent": "Sprite, by itself",
    "schedule": "Sprite, as scheduled",
}
#: What the CLI puts around a tool's own refusal.
_TAGS = re.compile(r"</?tool_use_error>")
_LONGEST_SUMMARY = 300
_HISTORY_MESSAGES = 6
_HISTORY_LINES = 3
#: The end of a longer question stands beside the keys, its beginning does not.
_LINES_AT_A_GLANCE = 20
_CHARS_AT_A_GLANCE = 1000
#: The input that tells a tool call from another of the same tool, by the tool's usual name for it.
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
    """Returns one line that is cut, not wrapped."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def note(text: str) -> Text:
    """Draws a remark of the client's own."""
    return Text(clean(text), style="dim")


def problem(text: str, advice: str = "") -> Text:
    """Draws what went wrong, and what a person can do."""
    drawn = Text.assemble(("✗ ", "bold red"), (clean(text), "red"))
    return drawn.append(f"\n  {advice}", style="dim") if advice else drawn


def said(text: str) -> Text:
    """Draws a person's own message."""
    return Text.assemble((MARK, "bold cyan"), (clean(text).replace("\n", "\n  "), "bold"))


def tool_name(name: str) -> str:
    """Returns the name people know a tool by."""
    return one_line(name.removeprefix(OWN_TOOLS))


def shows_itself(name: str) -> bool:
    """Whether what a tool did is seen on the canvas, so that its result needs no line."""
    return name.startswith(OWN_TOOLS) and name.endswith("_card")


def tool_started(name: str, tool_input: dict[str, Any]) -> Text:
    """Draws `▸ Bash  ls -la`."""
    return line(("▸ ", "cyan"), (tool_name(name), "bold dim"), (f"  {telling(tool_input)}", "dim"))


def tool_ended(name: str, summary: str, *, is_error: bool) -> Text:
    """Draws `✓ total 12`; `name` is given where it is not clear which tool is meant."""
    mark = ("  ✗ ", "bold red") if is_error else ("  ✓ ", "green")
    who = f"{tool_name(name)}  " if name else ""
    outcome = one_line(_TAGS.sub("", summary))[:_LONGEST_SUMMARY] or ("failed" if is_error else "done")
    return line(mark, (f"{who}{outcome}", "red" if is_error else "dim"))


def how_to_go_on(paused: Paused) -> str:
    """What a person types to let the agent go on."""
    does = "raises today's limit and goes on" if paused.by == "budget" else "lets it go on"
    return f"/go-on {does}."


#: Said of a turn whose earlier attempt did nothing.
BEGUN_AGAIN = "Begun again: Sprite was stopped before it had done anything."


def began(origin: Origin) -> Text:
    """Draws who began a turn that nobody asked for here."""
    return note(f"▸ {_BEGAN[origin]}")


def by_schedule(text: str) -> Text:
    """Draws what a schedule began."""
    return line(("▸ by schedule: ", "cyan"), (one_line(text), "bold dim"))


def by_program(name: str, text: str) -> Text:
    """Draws what a program asked, which nobody typed."""
    return line((f"▸ {one_line(name)} asks: ", "cyan"), (one_line(text), "bold dim"))


def interrupted() -> Text:
    """Draws the end of a turn that was stopped."""
    return Text("■ stopped", style="yellow")


def stopped(what: list[str]) -> Text:
    """Draws what a stop ended in the background."""
    return line(("■ stopped in the background: ", "yellow"), (", ".join(one_line(each) for each in what), "dim"))


def used(tools: list[UsedTool]) -> Text:
    """Draws the tools of a past turn: `▸ Bash x2, Read (failed)`."""
    counts = Counter((tool_name(tool.name), tool.is_error) for tool in tools)
    told = [
        f"{name}{f' x{count}' if count > 1 else ''}{' (failed)' if is_error else ''}"
        for (name, is_error), count in counts.items()
    ]
    return line(("  ▸ ", "cyan"), (", ".join(told), "dim"))


def remembered(update: MemoryUpdate) -> Text:
    """Draws `remembered 2 things · user.md updated`."""
    count = len(update.learnings)
    parts = [f"remembered {count} thing{'s' if count != 1 else ''}"] if count else []
    if update.files:
        parts.append(f"{', '.join(one_line(name) for name in update.files)} updated")
    return line(("✎ ", "magenta"), (" · ".join(parts), "dim"))


def drifted(names: list[str]) -> Text:
    """Draws that files wait for the person's word."""
    who = ", ".join(one_line(name) for name in names)
    return line(("! ", "bold yellow"), (f"{who} changed without your word: /drift shows it, and takes your word", ""))


def history(chat: list[ChatMessage]) -> Group | None:
    """Draws the last few messages of the conversation so far, shortened."""
    newest = chat[-_HISTORY_MESSAGES:]
    if not newest:
        return None
    left_out = len(chat) - len(newest)
    earlier = f"earlier ({left_out} more before)" if left_out else "earlier"
    return Group(Text(f"── {earlier} ──", style="dim"), *(_past(message) for message in newest))


def question(request: PermissionRequest) -> RenderableType:
    """Draws what the agent wants to do, whole and character by character, and the keys that answer."""
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
    """Draws what answers a question; "always" says what it would allow, and is there only where that is little."""
    drawn = Text("  ")
    answers = [("y", "allow"), ("n", "deny")]
    if request.always is not None:
        answers.append(("a", f"always allow {one_line(request.always)}"))
    for key, answer in answers:
        drawn.append(key, style="bold yellow").append(f" {answer}   ")
    return drawn.append("then Enter", style="dim")


def allowed_always(words: str) -> Text:
    """Draws the outcome of an "always"."""
    return line((f"  ✓ always allowed: {one_line(words)}", "green"), ("  /permissions takes it back", "dim"))


def help_table(rows: list[tuple[str, str]]) -> Table:
    """Draws commands or keys with what they do."""
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
    """What tells a tool call from another of the same tool, in one line."""
    for key in _TELLING:
        value = tool_input.get(key)
        if isinstance(value, str) and value.strip():
            return one_line(value)[:_LONGEST_SUMMARY]
    return one_line(json_text(tool_input))[:_LONGEST_SUMMARY] if tool_input else ""


def _whole_input(request: PermissionRequest) -> RenderableType:
    rows = list(request.input.items())
    if not rows:
        return Text("without any input", style="dim italic")
    # What is long comes after what is short, and what the agent says of a call after what it does.
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
    """Draws how long a question is, where its beginning may be out of sight."""
    texts = [_field(value) for value in request.input.values()]
    chars, lines = sum(map(len, texts)), sum(text.count("\n") + 1 for text in texts)
    if chars <= _CHARS_AT_A_GLANCE and lines <= _LINES_AT_A_GLANCE:
        return []
    return [Text(f"  {chars:,} characters in {lines:,} lines: scroll up to read all of it", style="bold yellow")]


def _field(value: object) -> str:
    return value if isinstance(value, str) else json_text(value)


def json_text(value: object) -> str:
    """A value as JSON."""
    return msgspec.json.encode(value).decode()
