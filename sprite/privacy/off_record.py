"""Whether a person asks, in their own words, that what they say now is not remembered (reads only its rules' file).

It is about the message it stands in, and what comes of it. What was said before is taken back by forgetting; what
memory should stop saying ("forget that I like tea") is a wish like any other, and curated. The phrases are data,
`rules/wishes.toml`; here is how they are applied.
"""

from __future__ import annotations

import functools
import re

from sprite.privacy.rule_files import Rule, WishFile, one_of, read

#: What is shown, quoted or pasted is not said: code, lines of a mail, and words between quotation marks.
_SHOWN = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]{1,400}`|^[ \t]*>.*$"
    r"|\"[^\"\n]{1,400}\"|\u201c[^\u201d\n]{1,400}\u201d|«[^»\n]{1,400}»|„[^“”\n]{1,400}[“”]"
    r"|(?<!\w)'[^'\n]{1,400}'(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_CURLED = str.maketrans("\u2018\u2019", "''")
#: A longer message is a paste with something around it: its first and its last paragraph are the person's.
_LONGEST_SAID = 1500
_PARAGRAPH = re.compile(r"\n\s*\n")
#: One of these is in every wish, in lower case: most messages are done with here.
_MARKERS = re.compile(
    r"off[ -]the[ -]record|remember|mem|m\u00e9mo|record|notes|\blogs?\b|merk|ged\u00e4chtnis|reti?en|esto\b"
    r"|lembre|guarde|ricord|onthoud|geheugen"
)


def is_off_record(message: str) -> bool:
    """Returns whether the person's words ask that this message and what comes of it are not remembered."""
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
    """Compiles some of a file's wishes: any of them."""
    pattern = one_of(f"(?:{rule.regex})" for rule in rules)
    for name in ("start", "end", "memory"):
        pattern = pattern.replace(f"{{{name}}}", getattr(file, name))
    return re.compile(pattern)
