"""Estimate the tokens of a text without a tokenizer (pure)."""

from __future__ import annotations

import math

# Anthropic's glossary gives about 3.5 English characters per token; JSON, code and paths come closer to 3.
ASCII_CHARS_PER_TOKEN = 3.0
# In UTF-8 a CJK character is 3 bytes and about 1 to 1.5 tokens, an emoji 4 bytes and 2 to 3 tokens, a Cyrillic letter 2
# bytes and less than 1 token.
OTHER_BYTES_PER_TOKEN = 2.0


def estimate_tokens(text: str) -> int:
    """Return a conservative token count: ASCII by characters, other text by UTF-8 bytes."""
    ascii_chars = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "replace")) - ascii_chars
    return math.ceil(ascii_chars / ASCII_CHARS_PER_TOKEN + other_bytes / OTHER_BYTES_PER_TOKEN)
