"""Translate plain words to the input of `create_card` (pure)."""

import re
from typing import Any

_NOUN = r"(?:(?:note|notes|document|table)\s+)?(?:card|table)|notes?"
_CREATE = re.compile(
    rf"\b(?:make|draw|create|show|build|add|put)\s+(?:me\s+|us\s+)?(?:up\s+)?(?:an?|another|the)\s+(?:new\s+|small\s+)?"
    rf"({_NOUN})\b(.*)",
    re.IGNORECASE | re.DOTALL,
)
_TITLE = re.compile(
    r"\b(?:titled|called|named|with (?:the )?title)\s+"
    r"(?:[\"'`\u201c](.+?)[\"'`\u201d]|(.+?)(?=\s+(?:with|of|containing|and)\b|[:,.\n]|\Z))",
    re.IGNORECASE | re.DOTALL,
)
_OPENING = re.compile(
    r"\A[\s:,.\u2013-]*(?:(?:to|of|for|with|containing|showing|that says|about)\b)?[\s:]*", re.IGNORECASE
)
_ITEMS = re.compile(r"\s*[,;\n]\s*(?:and\s+)?|\s+and\s+")
_PAIR = re.compile(r"(.*?\S)\s*(?:[:=]|\s)\s*([$\u20ac\u00a3]?-?\d[\d.,]*\s?\S{0,3})")
_COLUMNS = ["Item", "Value"]
_LONGEST_TITLE = 40


def card(text: str) -> dict[str, Any] | None:
    """Return the card that `text` asks for, or None."""
    found = _CREATE.search(text)
    if found is None:
        return None
    noun, rest = found[1].lower(), found[2]
    title = _TITLE.search(rest)
    kind, blocks = _content(_TITLE.sub("", rest, count=1), noun)
    name = (title[1] or title[2]).strip() if title else _default_title(blocks[-1])
    return {"title": name, "card_type": kind, "blocks": blocks}


def _content(rest: str, noun: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the card type and its blocks: a table for pairs with numbers, else a note."""
    said = _OPENING.sub("", rest).strip().rstrip(".!")
    items = [item for item in _ITEMS.split(said) if item.strip()]
    pairs = [_PAIR.fullmatch(item.strip()) for item in items]
    if "table" in noun or (pairs and all(pairs)):
        rows = [[pair[1], pair[2]] if pair else [item.strip(), ""] for item, pair in zip(items, pairs, strict=True)]
        return "table", [{"type": "table", "data": {"columns": _COLUMNS, "rows": rows}}]
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
