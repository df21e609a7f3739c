"""Significant words: the offline model's only measure of similarity.

Used by recall (memory lines that answer a question) and by the curator (the line that a correction replaces). Pure.
"""

import re

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_STOP_WORDS = frozenset(
    """
    a about again all also am an and any anything are as at be been being but by call called can could did do does
    doing don't
    everything for from had has have how i i'd i'll i'm i've if in into is it it's its just
    know let me my of off on or our please recall remember said say shall should so tell than that the
    their them then there these they thing this those to too us use used uses using was we were what
    what's when where which who whom whose why will with would you your yours
    user user's users assistant team team's now no not yes actually exactly still currently
    """.split()
)
# Words with the same meaning in questions. Left: spelling in a text; right: the spelling that is compared.
_SAME = {
    "wrote": "write",
    "written": "write",
    "favorite": "favourite",
    "color": "colour",
    "preferred": "prefer",
    "preference": "prefer",
    "living": "live",
    "working": "work",
    "job": "work",
    "installed": "install",
    "todo": "action",
}
_SHORTEST_PLURAL = 4


def _stem(word: str) -> str:
    """Remove simple plurals and possessives: "dates" and "date's" are both "date"."""
    word = word.removesuffix("'s")
    if len(word) >= _SHORTEST_PLURAL:
        if word.endswith("ies"):
            word = word[:-3] + "y"
        elif word.endswith(("xes", "ches", "shes", "sses")):
            word = word[:-2]
        elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    return _SAME.get(word, word)


def significant(text: str) -> frozenset[str]:
    """Return the stemmed words of `text` without stop words."""
    words = _WORD.findall(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    return frozenset(_stem(word) for word in words if word not in _STOP_WORDS)


def normalised(text: str) -> str:
    """Return the words of `text` in lower case, for the detection of repeats."""
    return " ".join(_WORD.findall(text.lower()))
