"""Limits of the curated text and of the curator calls that carry it, in estimated tokens (pure).

An answer may rewrite all that memory holds. If the sum did not fit, this answer and all later ones would be cut off:

    the four curated files together     CURATED_TOKENS     21,500   four full files of ASCII are 21,336
    learnings, headers, fences          LEARNINGS_TOKENS    4,500   for 25 turns, 180 each
    one answer                          MAX_ANSWER_TOKENS  26,000   Claude 4 and later allow at least 32,000

    the four curated files                                 21,500
    line numbers                                            1,500   750 lines
    the static part, the calendar                           4,500
    known learnings, related ones, refusals                11,000
    the turns                                              25,500
    one prompt                      PROMPT_BUDGET_TOKENS   64,000

A file has a limit in bytes as well. 16,000 bytes are 5,334 tokens of ASCII, but 8,000 of Chinese: four files within
their own limits can be too large together.
"""

from __future__ import annotations

from typing import Final

CURATED_TOKENS: Final = 21_500
LEARNINGS_TOKENS: Final = 4_500
#: All four files rewritten, with the learnings.
MAX_ANSWER_TOKENS: Final = CURATED_TOKENS + LEARNINGS_TOKENS
#: The whole prompt of a curator call. A batch that does not fit is split.
PROMPT_BUDGET_TOKENS: Final = 64_000
