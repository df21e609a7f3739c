"""By which rules an answer of the curator becomes memory: those of the prompt that it answers (pure).

An old log has to give the memory that it gave, to the byte: what an answer may do was told to the model that gave it,
and learnings, files and reports made since rest on what came of it. So rules only ever change together with the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: The SHA-256 of the first prompts that answers were given to.
FIRST_PROMPT = "823b4d779555bf712ebded6326a2a390af40ac0087b0a3b5c906991ae3116e0c"
SECOND_PROMPT = "dce57afe3a036037dda9bebe8d342f577be3cacec1e578b1d2c2ef2d03a63bd7"
THIRD_PROMPT = "37e226ff71f1ff90efb4055c476c8f3c9c3f7e7f8c03849673b238110ddfbe48"
FOURTH_PROMPT = "0a631103607f5d4712ece46bb84abf79a8930afb227e25cc68b0527499b8d1f8"


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for the answers to one prompt; the defaults are today's."""

    #: A code fence around one header and its content is taken off, and not taken for a part of that content.
    unwraps_headers: bool = True
    #: The four files together have a limit too.
    limits_together: bool = True
    #: A quote needs the turn's words and not each of its signs, and what is kept of it is the turn's own wording.
    reads_quotes_by_words: bool = True
    #: A command of the agent's shows that it was done, whoever asked for it.
    acts_close_actions: bool = True
    #: What a tool on this computer showed may be told in the files about the work.
    results_may_be_told: bool = True
    #: Lines that are left out without a reason are put back, where a rewrite was refused for them.
    puts_lines_back: bool = True
    #: A file that a hand made too large is shown in part, and not replaced as a whole.
    keeps_what_is_not_shown: bool = True
    #: A refusal says which words it is about, so that the next call can do better.
    tells_why: bool = True
    #: The longest report.
    report_chars: int = 2000
    #: A learning has the day of its turn, and not that of its curation.
    dates_by_turn: bool = True
    #: Words keep their origin: pasted text is known without marks, a sentence is its first speaker's, what the log cut
    #: away counts, and a line of user.md needs the person's word.
    traces_origins: bool = True
    #: Reminders whose day has passed leave.
    takes_out_past: bool = True
    #: An ACTION may say when it is due and how it repeats.
    reads_due: bool = True


TODAYS = Rules()
_FOURTH = Rules(reads_due=False)
_THIRD = replace(_FOURTH, keeps_what_is_not_shown=False, traces_origins=False)
_SECOND = replace(
    _THIRD,
    reads_quotes_by_words=False,
    acts_close_actions=False,
    results_may_be_told=False,
    puts_lines_back=False,
    tells_why=False,
    report_chars=200,
    dates_by_turn=False,
    takes_out_past=False,
)
_FIRST = replace(_SECOND, unwraps_headers=False, limits_together=False)
_OF_OLD_PROMPTS = {FIRST_PROMPT: _FIRST, SECOND_PROMPT: _SECOND, THIRD_PROMPT: _THIRD, FOURTH_PROMPT: _FOURTH}


def rules_of(prompt_sha256: str | None) -> Rules:
    """The rules under which answers to this prompt are read."""
    return _OF_OLD_PROMPTS.get(prompt_sha256 or "", TODAYS)
