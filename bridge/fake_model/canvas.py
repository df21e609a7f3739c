"""Translate plain words to canvas tool calls: create, update, close and read cards.

Pure: text in, the tool's name and input out. The tools' input is `{title, card_type, blocks}` with blocks `{type,
data}`; `update_card` and `close_card` take a `card_id`, which `known_cards` resolves.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.fake_model.request import Request, ToolOutcome
from bridge.fake_model.words import significant
from sprite.protocol.tools import OWN_TOOLS, READ_CANVAS_CALL

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


_NOUN = r"(?:(?:note|notes|document|table)\s+)?(?:card|table)|notes?"
_CREATE = re.compile(
    rf"\b(?:make|draw|create|show|build|add|put)\s+(?:me\s+|us\s+)?(?:up\s+)?(?:an?|another|the)\s+(?:new\s+|small\s+)?"
    rf"({_NOUN})\b(.*)",
    re.IGNORECASE | re.DOTALL,
)
_UPDATE = re.compile(
    rf"\b(?:update|change|edit)\s+(?:the|that|this|my)\s+(?:[\w'-]+\s+)?(?:{_NOUN})\b(.*)", re.IGNORECASE | re.DOTALL
)
_CLOSE = re.compile(
    rf"\b(?:close|remove|hide|archive|delete)\s+(?:the|that|this|my)\s+(?:[\w'-]+\s+)?(?:{_NOUN})\b", re.IGNORECASE
)
_TITLE = re.compile(
    r"\b(?:titled|called|named|with (?:the )?title)\s+"
    r"(?:[\"'`\u201c](.+?)[\"'`\u201d]|(.+?)(?=\s+(?:with|of|containing|and)\b|[:,.\n]|\Z))",
    re.IGNORECASE | re.DOTALL,
)
_COLUMNS = re.compile(r"\bwith (?:the )?columns?\s+([^:;.\n]+)", re.IGNORECASE)
_OPENING = re.compile(
    r"\A[\s:,.\u2013-]*(?:(?:to|of|for|with|containing|showing|that says|about)\b)?[\s:]*", re.IGNORECASE
)
# "of sales: Jan 10, Feb 20" has a topic; "of apples: 1, pears: 2" has none.
_TOPIC = re.compile(r"\s*(?:of|about|showing|with)\s+(?!the column|columns?\b)([^:,;\n\d]{2,40}):\s*(?=[A-Za-z])")
_ITEMS = re.compile(r"\s*[,;\n]\s*(?:and\s+)?|\s+and\s+")
_PAIR = re.compile(r"(.*?\S)\s*(?:[:=]|\s)\s*([$\u20ac\u00a3]?-?\d[\d.,]*\s?\S{0,3})")
_LOOK = re.compile(r"\b(?:what(?:'s| is| do you see)|look|read|show|list)\b[^.?!]*?\b(?:canvas|cards)\b", re.IGNORECASE)
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_DEFAULT_COLUMNS = ["Item", "Value"]
_LONGEST_TITLE = 40

Call = tuple[str, dict[str, Any]]


def canvas_call(text: str, cards: Sequence[KnownCard]) -> Call | None:
    """Return `(tool name, input)` when `text` asks for the canvas; `card_id` is empty for an unknown card.

    `cards` are the cards that the agent knows, newest first.
    """
    if update := _UPDATE.search(text):
        card = _meant(text, cards)
        return f"{OWN_TOOLS}update_card", {"card_id": card.card_id, "blocks": _in_place(_content(update[1])[1], card)}
    if _CLOSE.search(text):
        return f"{OWN_TOOLS}close_card", {"card_id": _meant(text, cards).card_id}
    if create := _CREATE.search(text):
        return f"{OWN_TOOLS}create_card", _card(create[1].lower(), create[2])
    if _LOOK.search(text):
        return READ_CANVAS_CALL, {}
    return None


def _meant(text: str, cards: Sequence[KnownCard]) -> KnownCard:
    """Return the card whose id is in `text`, else the newest one whose title shares most words with it."""
    if named := _UUID.search(text):
        return next((card for card in cards if card.card_id == named[0]), KnownCard(named[0], ""))
    words = significant(text)
    return max(cards, key=lambda card: len(words & significant(card.title)), default=KnownCard("", ""))


def _in_place(blocks: Iterable[dict[str, Any]], card: KnownCard) -> list[dict[str, Any]]:
    """Return the blocks, each with the id of the card's first block of its type, so that it replaces that one."""
    return [{**block, "id": card.blocks[block["type"]]} if block["type"] in card.blocks else block for block in blocks]


def _card(noun: str, rest: str) -> dict[str, Any]:
    title = _TITLE.search(rest)
    said = _TITLE.sub("", rest, count=1)
    topic = _TOPIC.match(said)
    kind, blocks = _content(said[topic.end() :] if topic else said, noun)
    topical = _capital(topic[1]) if topic else _default_title(blocks[-1])
    name = (title[1] or title[2]).strip() if title else topical
    return {"title": name, "card_type": kind, "blocks": blocks}


def _content(rest: str, noun: str = "") -> tuple[str, list[dict[str, Any]]]:
    """Return the card type and its blocks: a table for pairs with numbers, else a note."""
    columns = _COLUMNS.search(rest)
    said = _OPENING.sub("", _COLUMNS.sub("", rest)).strip().rstrip(".!")
    items = [item for item in _ITEMS.split(said) if item.strip()]
    pairs = [_PAIR.fullmatch(item.strip()) for item in items]
    if "table" in noun or (pairs and all(pairs)):
        heads = [name for name in _ITEMS.split(columns[1]) if name] if columns else _DEFAULT_COLUMNS
        rows = [[pair[1], pair[2]] if pair else [item.strip(), ""] for item, pair in zip(items, pairs, strict=True)]
        # Every row needs as many cells as the header.
        fitted = [(row + [""] * len(heads))[: len(heads)] for row in rows]
        return "table", [{"type": "table", "data": {"columns": heads, "rows": fitted}}]
    if "document" in noun:
        return "document", [{"type": "text", "data": {"content": said}}]
    return "notes", [{"type": "note", "data": {"content": said}}]


def _default_title(block: dict[str, Any]) -> str:
    data = block["data"]
    words = ", ".join(row[0] for row in data["rows"]) if "rows" in data else data.get("content", "")
    return _capital(str(words)[:_LONGEST_TITLE]) or "Untitled"


def _capital(text: str) -> str:
    stripped = text.strip()
    return stripped[:1].upper() + stripped[1:]
