"""Detect that a person asks not to remember what they say now (reads only its rules' file).

It applies to the message that contains it, and to its results. Earlier statements are removed by forgetting. A
request that memory stop saying something ("forget that I like tea") is an ordinary wish and is curated. The phrases
are data, `rules/wishes.toml`; this module applies them.
"""

from __future__ import annotations

import functools
import re

from sprite.privacy.rule_files import Rule, WishFile, one_of, read

#: Shown, quoted or pasted text is not the person's statement: code, quoted mail, and text in quotation marks.
_SHOWN = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]{1,400}`|^[ \t]*>.*$"
    r"|\"[^\"\n]{1,400}\"|\u201c[^\u201d\n]{1,400}\u201d|«[^»\n]{1,400}»|„[^“”\n]{1,400}[“”]"
    r"|(?<!\w)'[^'\n]{1,400}'(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_CURLED = str.maketrans("\u2018\u2019", "''")
#: A longer message is a paste with text around it: only its first and its last paragraph are the person's.
_LONGEST_SAID = 1500
_PARAGRAPH = re.compile(r"\n\s*\n")
#: Every such wish contains one of these in lower case, so most messages are decided here.
_MARKERS = re.compile(
    r"off[ -]the[ -]record|remember|mem|m\u00e9mo|record|notes|\blogs?\b|merk|ged\u00e4chtnis|reti?en|esto\b"
    r"|lembre|guarde|ricord|onthoud|geheugen"
)


def is_off_record(message: str) -> bool:
    """Return whether the person asks not to remember this message and its results."""
    said = message.lower().translate(_CURLED)
    if not _MARKERS.search(said):
        return False
    said = _SHOWN.sub(" … ", said)
    if len(said) <= _LONGEST_SAID:
        return _wish().search(said) is not None
    paragraphs = _PARAGRAPH.split(said.strip())
    ends = (paragraphs[0][:_LONGEST_SAID], paragraphs[-1][-_LONGEST_SAID:])
    return any(_wish().search(end) for end in ends)


@functools.cache
def _wish() -> re.Pattern[str]:
    rules = read("wishes.toml", WishFile)
    return compiled_wishes(rules, rules.wish)


def compiled_wishes(file: WishFile, rules: tuple[Rule, ...]) -> re.Pattern[str]:
    """Return one pattern that matches any of these wishes of a file."""
    pattern = one_of(f"(?:{rule.regex})" for rule in rules)
    for name in ("start", "end", "memory"):
        pattern = pattern.replace(f"{{{name}}}", getattr(file, name))
    return re.compile(pattern)
