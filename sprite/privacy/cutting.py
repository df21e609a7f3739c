"""Cut long values to the stored and shown length, after secrets are redacted: a cut could leave half of one (pure)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from sprite.privacy.redaction import discreet, secret_members

#: Returns a text in the form to store.
Discreet = Callable[[str], str]

#: Limit for a string of a tool call, including the note about the cut.
MAX_STRING = 2000
#: Limit for the entries of a list or an object in a tool's input.
MAX_ITEMS = 200
#: Limit for an input shown to people, as JSON: at most four bytes a character, and a frame holds a mebibyte.
MAX_SHOWN_CHARS = 100_000
#: A private key of the longest kind in use, with a margin.
LONGEST_SECRET = 20_000
#: Limit for the nesting of a tool's input.
MAX_DEPTH = 12


def clean(text: str) -> str:
    """Return text that SQLite and JSON can store: lone surrogates become question marks."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def cut(text: str, limit: int = MAX_STRING, discreet: Discreet = discreet) -> str:
    """Return the text to store; if it is longer than `limit`, its beginning and the length of the cut."""
    # Redacted before the cut, which could leave half of a secret. Text far beyond the cut is not searched.
    text, left = text[: limit + LONGEST_SECRET], text[limit + LONGEST_SECRET :]
    said = discreet(clean(text))
    if left and len(said) < limit + LONGEST_SECRET // 2:
        said, left = discreet(clean(text + left)), ""
    if len(said) + len(left) <= limit:
        return said
    # The note's length depends on the number in it; 40 characters are always enough.
    kept = limit - 40
    return f"{said[:kept]} [… {len(said) + len(left) - kept:,} characters cut]"


def cut_value(value: Any, depth: int = 0, discreet: Discreet = discreet) -> Any:
    """Return a JSON value to store, with long strings, long lists and deep nesting cut."""
    if isinstance(value, str):
        return cut(value, discreet=discreet)
    if depth >= MAX_DEPTH and isinstance(value, dict | list):
        return "[… nested too deeply, cut]"
    if isinstance(value, dict):
        items = dict(list(value.items())[:MAX_ITEMS])
        secret = secret_members(items)
        kept = {
            cut(str(name), discreet=discreet): secret.get(name) or cut_value(item, depth + 1, discreet)
            for name, item in items.items()
        }
        if len(value) > MAX_ITEMS:
            kept["…"] = f"{len(value) - MAX_ITEMS:,} entries cut"
        return kept
    if isinstance(value, list):
        entries = [cut_value(item, depth + 1, discreet) for item in value[:MAX_ITEMS]]
        return [*entries, f"[… {len(value) - MAX_ITEMS:,} entries cut]"] if len(value) > MAX_ITEMS else entries
    return value if value is None or _plain_number(value) else cut(str(value), discreet=discreet)


def shown_input(value: dict[str, Any], discreet: Discreet = discreet) -> dict[str, Any]:
    """Return a tool's input to show to people, cut to fit a frame for any input."""
    kept: dict[str, Any] = cut_value(value, discreet=discreet)
    text = json.dumps(kept, ensure_ascii=False)
    return kept if len(text) <= MAX_SHOWN_CHARS else {"…": cut(text)}


def _plain_number(value: Any) -> bool:
    """Return whether this is a number that JSON allows and every client can read."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and math.isfinite(value)


def result_text(response: Any, discreet: Discreet = discreet) -> str:
    """Return a tool's result as text, from any of the formats of the CLI's hooks and stream."""
    if isinstance(response, list):
        return "\n".join(
            _text(item.get("text"), discreet)
            if isinstance(item, dict) and item.get("type") == "text"
            else _dump(item, discreet)
            for item in response
        )
    if isinstance(response, dict) and "stdout" in response:
        said = (_text(response.get(name) or "", discreet) for name in ("stdout", "stderr"))
        return "\n".join(part for part in said if part)
    return _text(response, discreet)


def _text(value: Any, discreet: Discreet) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _dump(value, discreet)


def _dump(value: Any, discreet: Discreet) -> str:
    # Cut before dumping: a value that is nested too deeply cannot be dumped.
    return json.dumps(cut_value(value, discreet=discreet), ensure_ascii=False)
