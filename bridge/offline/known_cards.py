"""Cards that the agent knows: those in its first prompt, and those it has drawn since. Pure."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bridge.offline.request import Request, ToolOutcome

_BOARD = re.compile(r"<open_canvas>\n(.*?)\n</open_canvas>", re.DOTALL)
_LINE = re.compile(r'- ("(?:[^"\\]|\\.)*") \(card ([\w-]+), [^\n]*?\): (.*)')
_BLOCK = re.compile(r"([\w-]+) ([a-z-]+)(?: by the person)?(?:, |\Z)")
_CARD_ID = re.compile(r"card_id\W{1,5}([\w-]+)")


@dataclass(frozen=True, slots=True)
class KnownCard:
    """A card; `blocks` maps each known block type to the id of the card's first block of that type."""

    card_id: str
    title: str
    blocks: dict[str, str] = field(default_factory=dict)


def known_cards(request: Request) -> list[KnownCard]:
    """Return the open cards, newest first: those drawn in this conversation before those on the canvas at its start."""
    cards = {card.card_id: card for card in _listed(f"{request.system}\n{request.context}")}
    for outcome in (entry.outcome for entry in request.timeline if entry.outcome):
        if outcome.is_error or "_card" not in outcome.name or not (found := _CARD_ID.search(outcome.text)):
            continue
        before = cards.pop(found[1], KnownCard(found[1], ""))
        if not outcome.name.endswith("close_card"):
            title = str(outcome.input.get("title") or before.title)
            cards[found[1]] = KnownCard(found[1], title, _first_by_type(_drawn(outcome)))
    return list(reversed(cards.values()))


def _listed(text: str) -> Iterator[KnownCard]:
    """Yield the cards of the newest list, oldest first."""
    boards = _BOARD.findall(text)
    for line in reversed(boards[-1].splitlines() if boards else []):
        if found := _LINE.fullmatch(line):
            yield KnownCard(found[2], str(json.loads(found[1])), _first_by_type(_BLOCK.findall(found[3])))


def _drawn(outcome: ToolOutcome) -> Iterable[tuple[str, str]]:
    try:
        return [(str(block["id"]), str(block["type"])) for block in json.loads(outcome.text)["blocks"]]
    except (ValueError, KeyError, TypeError):
        return []


def _first_by_type(blocks: Iterable[tuple[str, str]]) -> dict[str, str]:
    first: dict[str, str] = {}
    for block_id, kind in blocks:
        first.setdefault(kind, block_id)
    return first
