"""Cards of the canvas as terminal panels: one shape and one drawing per block type.

Pure: data in, rich renderables out. Blocks that are malformed or of an unknown type are shown as a placeholder.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from bridge.terminal.drawing import clean, counted, one_line
from sprite.protocol.shapes import Card, Stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from sprite.protocol.messages import CanvasUpdate, StateSync
    from sprite.protocol.shapes import Block


class Board:
    """The canvas state, updated by the sprite's messages. `current` is the shown stack, None to show all."""

    def __init__(self, *, shows_one_stack: bool) -> None:
        """With `shows_one_stack`, the newest open stack is shown until the person chooses; otherwise all are."""
        self.cards: dict[str, Card] = {}
        self.stacks: dict[str, Stack] = {}
        self._shows_one_stack = shows_one_stack
        self._chosen: str | None = None

    @property
    def current(self) -> Stack | None:
        """Return the current stack. It stays the same when another one is created."""
        chosen = self.stacks.get(self._chosen or "")
        if chosen is not None and not chosen.archived:
            return chosen
        is_open = [stack for stack in self.stacks.values() if not stack.archived]
        if not is_open or not (self._shows_one_stack or self._chosen):
            return None
        self._chosen = is_open[-1].stack_id
        return is_open[-1]

    @property
    def stack_id(self) -> str | None:
        """Return the current stack's id."""
        return None if self.current is None else self.current.stack_id

    @property
    def shown(self) -> list[Card]:
        """Return the cards of the current stack, oldest first."""
        return [card for card in self.cards.values() if self.is_shown(card.stack_id)]

    def is_shown(self, stack_id: str) -> bool:
        """Return whether cards of that stack are shown."""
        current = self.current
        return current is None or current.stack_id == stack_id

    def choose(self, words: str) -> Stack | None:
        """Switch to an open stack by list number or name and return it, or None if there is none."""
        stacks = list(self.stacks.values())
        if words.isdecimal() and 1 <= int(words) <= len(stacks):
            found = [stacks[int(words) - 1]]
        else:
            found = [stack for stack in stacks if stack.name.casefold() == words.casefold()]
        is_open = [stack for stack in found if not stack.archived]
        if not is_open:
            return None
        self._chosen = is_open[-1].stack_id
        return is_open[-1]

    def number(self, stack_id: str) -> int:
        """Return a stack's number in the list, from 1; 0 if it is unknown."""
        return list(self.stacks).index(stack_id) + 1 if stack_id in self.stacks else 0

    def sync(self, state: StateSync) -> None:
        """Replace the state by a synced one."""
        self.cards = {card.card_id: card for card in state.cards if not card.archived}
        self.stacks = {stack.stack_id: stack for stack in state.stacks}

    def take(self, update: CanvasUpdate) -> None:
        """Apply a card's update."""
        if update.command == "close_card":
            self.cards.pop(update.card_id, None)
            return
        self.cards[update.card_id] = Card(
            update.card_id, update.stack_id, update.title, update.card_type, None, None, update.blocks, archived=False
        )


_GAUGE_CELLS = 24
_PERCENT = 100
_VARIANTS = {
    "default": "reverse",
    "success": "bold black on green",
    "warning": "bold black on yellow",
    "destructive": "bold white on red",
}
_HEADINGS = {1: "bold underline", 2: "bold", 3: "bold dim", 4: "italic"}


class _Shape(msgspec.Struct):
    pass


class _Heading(_Shape):
    text: str
    level: int = 1


class _Stat(_Shape):
    label: str
    value: Any
    description: str | None = None


class _Pair(_Shape):
    key: str
    value: Any


class _KeyValue(_Shape):
    pairs: list[_Pair]


class _Table(_Shape):
    columns: list[Any]
    rows: list[list[Any]]


class _Badge(_Shape):
    text: str
    variant: str = "default"


class _Progress(_Shape):
    value: float
    label: str | None = None


class _Content(_Shape):
    content: str


class _Separator(_Shape):
    pass


class _Document(_Shape):
    path: str
    title: str | None = None
    excerpt: str | None = None


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


def stacks_table(board: Board) -> RenderableType:
    """Draw the stacks with number, card count and a mark for the current one."""
    if not board.stacks:
        return Text("No stacks yet: /stacks new NAME makes one.", style="dim")
    counts = Counter(card.stack_id for card in board.cards.values())
    current = board.current
    drawn = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    drawn.add_column(style="cyan", justify="right", no_wrap=True)
    drawn.add_column()
    drawn.add_column(style="dim", no_wrap=True)
    for number, stack in enumerate(board.stacks.values(), 1):
        about = "archived" if stack.archived else counted(counts[stack.stack_id], "card")
        here = ", you are here" if stack is current else ""
        drawn.add_row(Text(str(number)), Text(one_line(stack.name)), Text(about + here))
    return drawn


def cards_in_words(board: Board) -> str:
    """Return the number of cards and how to show them."""
    shown, others = len(board.shown), len(board.cards) - len(board.shown)
    current = board.current
    if current is None or not others:
        return f"{counted(shown, 'card')} on the canvas: /cards draws"
    beside = f"{counted(others, 'card')} on other stacks: /stack shows them"
    return f"{counted(shown, 'card')} on the stack {one_line(current.name)}: /cards draws; {beside}"


def draw_block(block: Block) -> RenderableType:
    """Draw one block."""
    known = _DRAWINGS.get(block.type)
    if known is None:
        return _unknown(f"[{one_line(block.type)}: this client cannot draw it]")
    shape, draw = known
    try:
        data = msgspec.convert(block.data, shape, strict=False)
    except msgspec.ValidationError:
        return _unknown(f"[{block.type}: its data does not fit]")
    return draw(data)


def gauge(value: float, limit: float, *, cells: int = _GAUGE_CELLS) -> Text:
    """Draw a bar that is full at the limit. It turns yellow at 80 % and red at 95 %."""
    share = min(1.0, max(0.0, value / limit)) if limit > 0 else 0.0
    full = round(share * cells)
    return Text.assemble(("█" * full, _fullness(share)), ("░" * (cells - full), "dim"))


def _fullness(share: float) -> str:
    nearly, almost = 0.95, 0.8
    return "red" if share >= nearly else "yellow" if share >= almost else "green"


def _unknown(text: str) -> Text:
    return Text(text, style="dim italic")


def _heading(data: _Heading) -> Text:
    return Text(clean(data.text), style=_HEADINGS.get(data.level, "italic"))


def _stat(data: _Stat) -> Text:
    drawn = Text.assemble((_value(data.value), "bold cyan"), "  ", clean(data.label))
    if data.description:
        drawn.append(f"\n{clean(data.description)}", style="dim")
    return drawn


def _key_value(data: _KeyValue) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for pair in data.pairs:
        grid.add_row(Text(clean(pair.key)), Text(_value(pair.value)))
    return grid


def _table(data: _Table) -> RenderableType:
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    width = max([len(data.columns), *(len(row) for row in data.rows)])
    for index in range(width):
        name = _value(data.columns[index]) if index < len(data.columns) else ""
        cells = [row[index] for row in data.rows if index < len(row)]
        drawn.add_column(Text(name), justify="right" if _all_numbers(cells) else "left")
    for row in data.rows:
        drawn.add_row(*(Text(_value(cell)) for cell in row))
    return drawn if data.rows else Group(drawn, _unknown("no rows"))


def _badge(data: _Badge) -> Text:
    return Text(f" {one_line(data.text)} ", style=_VARIANTS.get(data.variant, "reverse"), end="\n")


def _progress(data: _Progress) -> Text:
    bar = gauge(data.value, _PERCENT)
    # On a card a full bar is a success; in memory it is a warning.
    bar.stylize("green", 0, bar.plain.count("█"))
    drawn = Text.assemble(bar, f" {data.value:g}%")
    return drawn.append(f"  {clean(data.label)}") if data.label else drawn


def _text(data: _Content) -> Markdown:
    return markdown(data.content)


def _note(data: _Content) -> Panel:
    return Panel(Text(clean(data.content)), box=box.MINIMAL, style="italic", padding=(0, 1), expand=False)


def _separator(_data: _Separator) -> Rule:
    return Rule(style="dim")


def _document(data: _Document) -> Text:
    drawn = Text.assemble("▤ ", (clean(data.title or data.path), "bold"))
    if data.title:
        drawn.append(f"  {clean(data.path)}", style="dim")
    if data.excerpt:
        drawn.append(f"\n{clean(data.excerpt)}", style="dim")
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
    return clean(value) if isinstance(value, str | int) else clean(msgspec.json.encode(value).decode())


def _all_numbers(cells: list[Any]) -> bool:
    filled = [_value(cell) for cell in cells if cell not in (None, "")]
    return bool(filled) and all(_is_number(cell) for cell in filled)


def _is_number(cell: str) -> bool:
    try:
        float(cell.strip("$€£%+ ").replace(",", ""))
    except ValueError:
        return False
    return True


_DRAWINGS: dict[str, tuple[type[Any], Callable[[Any], RenderableType]]] = {
    "heading": (_Heading, _heading),
    "stat": (_Stat, _stat),
    "key-value": (_KeyValue, _key_value),
    "table": (_Table, _table),
    "badge": (_Badge, _badge),
    "progress": (_Progress, _progress),
    "text": (_Content, _text),
    "separator": (_Separator, _separator),
    "document": (_Document, _document),
    "note": (_Content, _note),
}
