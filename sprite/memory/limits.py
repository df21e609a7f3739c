"""How much curated text there may be, and the calls that have to hold it (pure). All in estimated tokens.

One sum has to come out, or an answer that rewrites all that memory holds, as it may, is cut off, and so is every
later one:

    the four curated files together     CURATED_TOKENS     21,500   four full files of ASCII are 21,336
    learnings, headers, fences          LEARNINGS_TOKENS    4,500   for 25 turns, 180 each
    one answer                          MAX_ANSWER_TOKENS  26,000   the least that Claude 4 and later allow is 32,000

    the four curated files                                 21,500
    their lines' numbers                                    1,500   750 lines
    the static part, the calendar                           4,500
    what stands, what is near, what was refused            11,000
    what is left for turns                                 25,500
    one prompt                      PROMPT_BUDGET_TOKENS   64,000

A file's own limit is in bytes, and 16,000 of them are 5,334 tokens of ASCII, but 8,000 of Chinese: so four files that
are each within their own limit can be too much together.
"""

from __future__ import annotations

from typing import Final

CURATED_TOKENS: Final = 21_500
LEARNINGS_TOKENS: Final = 4_500
#: Room for all four files rewritten, with the learnings.
MAX_ANSWER_TOKENS: Final = CURATED_TOKENS + LEARNINGS_TOKENS
#: The whole of a curator call's prompt. A batch that does not fit is split.
PROMPT_BUDGET_TOKENS: Final = 64_000
