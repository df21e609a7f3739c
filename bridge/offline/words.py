"""Significant words: the only notion of meaning the offline model has.

Shared by recall (which memory lines answer a question?) and by the curator (which line does a correction
replace?). Pure; knows nothing of requests or memory files.
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
# Words that mean the same to a person asking. Left: what is said; right: the one spelling compared.
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
    """Undoes simple plurals and possessives: "dates" and "date's" are both "date"."""
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
    """Returns the stemmed words of `text` without stop words."""
    words = _WORD.findall(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    return frozenset(_stem(word) for word in words if word not in _STOP_WORDS)


def normalised(text: str) -> str:
    """Returns `text` in lower case with only its words, for telling a repeat from news."""
    return " ".join(_WORD.findall(text.lower()))
