"""read_canvas: the agent reads its canvas. Blocks that it was shown count as seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from claude_agent_sdk import SdkMcpTool, tool
from mcp.types import ToolAnnotations

from sprite.boot.canvas import CanvasContext, as_id, block_line, card_words
from sprite.memory.words import forms_of
from sprite.protocol.frames import well_formed
from sprite.protocol.framing import quoted
from sprite.protocol.shapes import Block, Card, Stack
from sprite.protocol.tools import READ_CANVAS_TOOL
from sprite.workspace.database import WorkspaceDB

#: About 5,000 tokens.
PAGE_CHARS = 16_000
#: Limit for the stacks listed when none has the requested name.
_MOST_KNOWN = 20


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    card: Card | None = None
    #: The block that it contains completely.
    block: Block | None = None


def canvas_reader(workspace: WorkspaceDB, sight: CanvasContext) -> SdkMcpTool[Any]:
    """Return the tool; `sight` records which blocks the agent was shown."""

    @tool(
        READ_CANVAS_TOOL,
        "Look at the canvas: a card, the cards of a stack, those that say some words, or (with nothing named) all open "
        "cards, newest first; each with its blocks, their data, versions and who changed them last. Read a card before "
        "you change what the person wrote on it.",
        {
            "type": "object",
            "properties": {
                "card_id": {"type": "string"},
                "stack_id": {"type": "string"},
                "query": {"type": "string", "description": "Words in titles and blocks"},
                "archived": {"type": "boolean", "description": "Also what was put away", "default": False},
                "page": {"type": "integer", "minimum": 1, "default": 1},
            },
        },
        annotations=ToolAnnotations(read_only_hint=True),
    )
    async def read_canvas(args: dict[str, Any]) -> dict[str, Any]:
        stacks = {stack.stack_id: stack for stack in await workspace.stacks()}
        try:
            cards = await _asked_for(workspace, stacks, args)
        except _UnknownError as unknown:
            return {"content": [{"type": "text", "text": str(unknown)}], "is_error": True}
        lines = [line for card in cards for line in _lines(card, stacks[card.stack_id])]
        text = _page(lines, args.get("page"), sight) if lines else f"No card found. {_known(stacks)}"
        return {"content": [{"type": "text", "text": text}]}

    return read_canvas


class _UnknownError(ValueError):
    """There is no such card or stack; the message is one line about it."""


async def _asked_for(workspace: WorkspaceDB, stacks: Mapping[str, Stack], args: dict[str, Any]) -> list[Card]:
    if (card_id := _given(args.get("card_id"))) is not None:
        card = await workspace.card(card_id)
        if card is None:
            raise _UnknownError(
                f"There is no card {card_id[:60]!r}; without card_id, read_canvas shows those there are."
            )
        # A card requested by id is shown wherever it is.
        return [card]
    stack_id = _given(args.get("stack_id"))
    if stack_id is not None and stack_id not in stacks:
        raise _UnknownError(f"There is no stack {stack_id[:60]!r}. {_known(stacks)}")
    with_archived = str(args.get("archived")).casefold() == "true"
    cards = [
        card
        for card in await workspace.newest_cards()
        if stack_id in {None, card.stack_id}
        and (with_archived or not (card.archived or stacks[card.stack_id].archived))
    ]
    return _matching(cards, _given(args.get("query")))


def _given(value: Any) -> str | None:
    text = "" if value is None else str(well_formed(str(value))).strip()
    return text or None


def _matching(cards: list[Card], query: str | None) -> list[Card]:
    """Return the cards with words of the query, best match first; all cards without a query."""
    if query is None:
        return cards
    wanted = forms_of(query)
    if not wanted:
        # Words without meaning of their own ("to be") are searched literally.
        return [card for card in cards if query.casefold() in _text(card).casefold()]
    counts = [(len(wanted & forms_of(_text(card))), card) for card in cards]
    return [card for count, card in sorted(counts, key=lambda found: -found[0]) if count]


def _text(card: Card) -> str:
    return " ".join([card.title, *(_words(block.data) for block in card.blocks)])


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(map(_words, value.values()))
    return " ".join(map(_words, value)) if isinstance(value, list) else str(value)


def _lines(card: Card, stack: Stack) -> list[_Line]:
    away = " (archived)" if card.archived or stack.archived else ""
    head = f"{card_words(card, stack.name)}{away}{_place(card)}"
    return [_Line(head), *(_Line(f"- {block_line(block)}", card, block) for block in card.blocks)]


def _place(card: Card) -> str:
    at = "" if card.position is None else f", at x {card.position.x:.0f}, y {card.position.y:.0f}"
    return at + ("" if card.size is None else f", {card.size.width:.0f} wide and {card.size.height:.0f} high")


def _page(lines: Sequence[_Line], number: Any, sight: CanvasContext) -> str:
    """Return a page of the lines; a block counts as seen where its line ends."""
    pages = _pages(lines)
    wanted = number if isinstance(number, int) and not isinstance(number, bool) else 1
    at = max(1, min(wanted, len(pages)))
    for line in pages[at - 1]:
        if line.card is not None and line.block is not None:
            sight.saw(line.card.card_id, line.block)
    text = "\n".join(line.text for line in pages[at - 1])
    if len(pages) == 1:
        return text
    return f"{text}\nPage {at} of {len(pages)}{f': page {at + 1} goes on' if at < len(pages) else ''}."


def _pages(lines: Sequence[_Line]) -> list[list[_Line]]:
    pages: list[list[_Line]] = [[]]
    left = PAGE_CHARS
    for line in _pieces(lines):
        if len(line.text) > left and pages[-1]:
            pages.append([])
            left = PAGE_CHARS
        pages[-1].append(line)
        left -= len(line.text)
    return pages


def _pieces(lines: Sequence[_Line]) -> list[_Line]:
    """Return the lines in pieces no longer than a page; only the last piece of a line completes its block."""
    pieces = []
    for line in lines:
        cuts = range(0, len(line.text), PAGE_CHARS)
        texts = [line.text[cut : cut + PAGE_CHARS] for cut in cuts]
        pieces += [*map(_Line, texts[:-1]), _Line(texts[-1], line.card, line.block)]
    return pieces


def _known(stacks: Mapping[str, Stack]) -> str:
    known = [f"{quoted(stack.name)} ({as_id(stack.stack_id)})" for stack in stacks.values() if not stack.archived]
    return f"Open stacks: {', '.join(known[-_MOST_KNOWN:]) or 'none'}."
