"""Long values cut to what is kept and shown, made fit to be written down first (pure).

A cut could leave half of a secret, so secrets go before it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from sprite.privacy.redaction import (
    discreet,
    secret_members,
)

#: Gives a text as it may be written down.
Discreet = Callable[[str], str]

#: Longest string kept of a tool call, its note of the cut included.
MAX_STRING = 2000
#: Most entries kept of a list or object in a tool's input.
MAX_ITEMS = 200
#: Longest input shown to people, as JSON: four bytes a character at most, and a frame takes a mebibyte.
MAX_SHOWN_CHARS = 100_000
#: A private key of the longest kind in use, with room.
LONGEST_SECRET = 20_000
#: Deepest nesting kept of a tool's input.
MAX_DEPTH = 12


def clean(text: str) -> str:
    """Text that SQLite and JSON can hold: lone surrogates become question marks."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def cut(text: str, limit: int = MAX_STRING, discreet: Discreet = discreet) -> str:
    """The text as it may be written down, or its beginning and how much was cut, in at most `limit` characters."""
    # Secrets go first: a cut could leave half of one. What lies far beyond the cut needs no search.
    text, left = text[: limit + LONGEST_SECRET], text[limit + LONGEST_SECRET :]
    said = discreet(clean(text))
    if left and len(said) < limit + LONGEST_SECRET // 2:
        said, left = discreet(clean(text + left)), ""
    if len(said) + len(left) <= limit:
        return said
    # The note's own length depends on the number in it; 40 characters always hold it.
    kept = limit - 40
    return f"{said[:kept]} [… {len(said) + len(left) - kept:,} characters cut]"


def cut_value(value: Any, depth: int = 0, discreet: Discreet = discreet) -> Any:
    """A JSON value as it may be written down: every string cut, and runaway lists and nesting cut as well."""
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
    """A tool's input as people see it: cut so that a frame holds it, whatever the agent wrote."""
    kept: dict[str, Any] = cut_value(value, discreet=discreet)
    text = json.dumps(kept, ensure_ascii=False)
    return kept if len(text) <= MAX_SHOWN_CHARS else {"…": cut(text)}


def _plain_number(value: Any) -> bool:
    """Whether this is a number that JSON has and every client can read."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and math.isfinite(value)


def result_text(response: Any, discreet: Discreet = discreet) -> str:
    """What a tool answered, as text: the shapes that the CLI's hooks and stream give it in."""
    if isinstance(response, str):
        return response
    if isinstance(response, list):
        return "\n".join(
            str(item.get("text", ""))
            if isinstance(item, dict) and item.get("type") == "text"
            else _dump(item, discreet)
            for item in response
        )
    if isinstance(response, dict) and "stdout" in response:
        return "\n".join(part for part in (str(response["stdout"]), str(response.get("stderr") or "")) if part)
    return "" if response is None else _dump(response, discreet)


def _dump(value: Any, discreet: Discreet) -> str:
    # Cut first: what is nested too deeply could not be dumped at all.
    return json.dumps(cut_value(value, discreet=discreet), ensure_ascii=False)
