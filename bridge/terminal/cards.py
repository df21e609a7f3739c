"""The canvas in the terminal: each card as a panel with one plain text per block (pure)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from bridge.terminal.drawing import clean, json_text, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sprite.protocol.shapes import Block


def draw_card(title: str, blocks: list[Block], *, subtitle: str = "") -> Panel:
    """Draw a card as a panel with its blocks below each other."""
    drawn = [draw_block(block) for block in blocks] or [Text("empty", style="dim italic")]
    return Panel(
        Group(*drawn),
        title=Text(one_line(title) or "Untitled", style="bold"),
        title_align="left",
        subtitle=Text(subtitle, style="dim") if subtitle else None,
        subtitle_align="right",
        box=box.ROUNDED,
        border_style="cyan",
        padding=(0, 1),
        expand=False,
    )


#: The plain text of each simple block; missing members are left out.
_TEXTS = {
    "heading": "{text}",
    "note": "{content}",
    "stat": "{value}  {label}  {description}",
    "badge": "[{text}]",
    "progress": "{value}%  {label}",
    "document": "{path}  {title}\n{excerpt}",
}


def draw_block(block: Block) -> RenderableType:
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
