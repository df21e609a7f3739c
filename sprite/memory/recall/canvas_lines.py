"""Render the canvas for the agent (pure): one line per item; text on a card cannot pass for another line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sprite.memory.recall.framing import quoted
from sprite.memory.tokens import estimate_tokens
from sprite.protocol.shapes import Block, Card, Stack

#: Token budget for the open canvas in a new session; `read_canvas` has the rest.
OPEN_CANVAS_TOKENS = 3_000
#: More cards than this cannot fit.
MOST_CARDS = 150
_MOST_STACKS = 20
_MOST_BLOCKS = 12
#: An id that needs no quotation marks.
_PLAIN_ID = re.compile(r"[\w-]{1,64}", re.ASCII)


def open_canvas(stacks: Sequence[Stack], cards: Sequence[Card], number: int) -> str | None:
    """Render the open stacks and cards with their block ids, as far as they fit; None if there are none.

    `cards` are sorted by their last change, newest first; `number` is the count of all open cards.
    """
    names = {stack.stack_id: stack.name for stack in stacks if not stack.archived}
    if not names:
        return None
    shown = [f"{quoted(name)} ({as_id(stack_id)})" for stack_id, name in list(names.items())[-_MOST_STACKS:]]
    more = len(names) - len(shown)
    lines = [f"Stacks: {', '.join(shown)}{f' and {more} more' if more else ''}"]
    left = OPEN_CANVAS_TOKENS - estimate_tokens(lines[0])
    told = 0
    for card in cards:
        line = f"- {card_words(card, names.get(card.stack_id))}: {_blocks(card.blocks)}"
        left -= estimate_tokens(line)
        if left < 0:
            break
        lines.append(line)
        told += 1
    if told < number:
        lines.append(f"- And {number - told} more: read_canvas.")
    return "\n".join(lines)


def card_words(card: Card, stack_name: str | None = None) -> str:
    """Return a card's title, id and type, and its stack if named."""
    on = "" if stack_name is None else f", on {quoted(stack_name)}"
    return f"{quoted(card.title)} (card {as_id(card.card_id)}, {card.card_type}{on})"


def block_line(block: Block) -> str:
    """Render a block with all its data and the author of its last change."""
    return f"{as_id(block.id)} ({block.type}, version {block.version}, by {author(block)}): {quoted(block.data)}"


def author(block: Block) -> str:
    """Return the author of a block's last change in the agent's view."""
    return "the person" if block.by == "person" else "you"


def as_id(value: str) -> str:
    """Return an id, quoted if it could be misread."""
    return value if _PLAIN_ID.fullmatch(value) else quoted(value)


def _blocks(blocks: Sequence[Block]) -> str:
    shown: Iterable[str] = (
        f"{as_id(block.id)} {block.type}{' by the person' if block.by == 'person' else ''}"
        for block in blocks[:_MOST_BLOCKS]
    )
    more = len(blocks) - _MOST_BLOCKS
    return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])]) or "no blocks"
