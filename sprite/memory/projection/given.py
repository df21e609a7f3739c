"""What somebody could have exchanged in a true sentence: names, numbers, addresses, accounts (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import pairwise

from sprite.memory.projection.vocabulary import SAME
from sprite.memory.unkept import known_among as hashed_among

ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w|\b(?:https?://|www\.)[^\s<>\"')\]]*[\w/]", re.IGNORECASE)
_NUMBER = re.compile(r"\d[\d.,:'\u2019/\u00a0]*\d|\d")
GROUPED = re.compile(r"(?:\+?\d{1,4}|[A-Z]{2}\d{2})(?:[ -]?[A-Z0-9]{2,}){2,}")
DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_CLOCK = re.compile(r"\b([01]?\d|2[0-4])[:.h]([0-5]\d)\b")
#: A shorter one is a number like others.
_ACCOUNT_SIGNS = 7
#: Up to here people count by themselves.
_COUNTED = 100
#: So many digits are read as a number; of thousands, Python reads none.
_SHORT = 3
#: A number that is said not to be it harms nobody.
NEGATED = re.compile(r"\b(?:not|nicht|no|pas|niet|instead of|statt|rather than)\s+(?:\w+\s+)?\d[\d.,]*", re.IGNORECASE)
#: What tells that a date was meant that has to be worked out.
DATED = re.compile(
    r"\b(?:today|tomorrow|tonight|yesterday|next|this|last|week|month|year|mon|tue|wed|thu|fri|sat|sun|\w+days?|heute|"
    r"morgen|gestern|nächste\w*|woche|monat|jahr|\w+tags?|demain|hier|semaine|mois|lundi|mardi|mercredi|jeudi|vendredi|"
    r"samedi|dimanche|mañana|hoy|semana|mes|lunes|martes|miércoles|jueves|viernes|sábado|domingo|volgende|"
    r"vandaag|\w+dag)\b",
    re.IGNORECASE,
)


_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
#: Fewer letters are a form or a unit ("KE-0412", "mm").
_NAME_LETTERS = 3
_TITLES = frozenset("mrs miss herr frau mme madame monsieur prof señor señora mevrouw meneer".split())
#: What people say for parts of a hundred, of an hour, of a month.
_PARTS_OF = {
    "quarter": ("25", "15", "4"), "viertel": ("25", "15"), "half": ("50", "30"), "halb": ("30",), "hälfte": ("50",),
    "moitié": ("50",), "mitad": ("50",), "helft": ("50",), "third": ("33", "3"), "drittel": ("33", "3"),
    "end": ("28", "29", "30", "31"), "ende": ("28", "29", "30", "31"), "fin": ("28", "29", "30", "31"),
    "einde": ("28", "29", "30", "31"), "final": ("28", "29", "30", "31"), "double": ("2",), "doppelt": ("2",),
}  # fmt: skip
#: German and Dutch say the ones first: neunundzwanzig, negenentwintig.
_ONES = {
    "ein": 1, "een": 1, "zwei": 2, "twee": 2, "drei": 3, "drie": 3, "vier": 4, "fünf": 5, "vijf": 5, "sechs": 6,
    "zes": 6, "sieben": 7, "zeven": 7, "acht": 8, "neun": 9, "negen": 9,
}  # fmt: skip
_COMPOUND = re.compile(
    rf"({'|'.join(_ONES)})(?:und|en|ën)(zwanzig|dreißig|vierzig|fünfzig|sechzig|siebzig|achtzig|neunzig|twintig|"
    r"dertig|veertig|vijftig|zestig|zeventig|tachtig|negentig)"
)
_HALF_A_DAY = 12
_HOURS = 24


class Given:
    """A text in which names, numbers and addresses are looked for; it is taken apart when it is asked for each kind."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.as_written = " ".join(texts)

    @cached_property
    def text(self) -> str:
        """All of it in lower case."""
        return self.as_written.casefold()

    @cached_property
    def signs(self) -> str:
        """Its letters and digits alone: people group accounts as they like."""
        return "".join(filter(str.isalnum, self.text))

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Its numbers, and those that its words and times stand for."""
        return numbers_in(self.text)


class WorkWord:
    """What may be named in lines about the work: what people said, the agent did, and tools showed here.

    `unseen`: hashes of words in results of commands here that are not written down.
    """

    def __init__(self, given: Given, unseen: AbstractSet[int]) -> None:
        self._given = given
        self._unseen = unseen

    def lacks(self, line: str, old: str = "") -> str | None:
        """Why a line names what nobody named, or None; what the `old` file has is named."""
        if (what := exchanged_in(line, self._given)) is not None and exchanged_in(line, Given([old])) is not None:
            return f"nobody gave {what}"
        # Days and hours are worked out, and small numbers counted.
        rest = _CLOCK.sub(" ", without_given(without_given(DATE.sub(" ", line), self._given.text), old))
        for number in sorted(numbers_in(rest, as_written=True)):
            is_small = number.isdecimal() and len(number) <= _SHORT and int(number) <= _COUNTED
            if not is_small and number not in self._given.numbers and not hashed_among({number}, self._unseen):
                return f"nobody gave the number {number}"
        return None


def without_given(line: str, text: str) -> str:
    """A line without the accounts in it, and without numbers that stand in the text, in lower case, as they do here."""
    rest = GROUPED.sub(" ", line)
    return _NUMBER.sub(lambda found: " " if _stands_in(found[0], text) else found[0], rest)


def _stands_in(number: str, text: str) -> bool:
    return re.search(rf"(?<!\d){re.escape(number)}(?!\d)", text) is not None


def exchanged_in(line: str, given: Given) -> str | None:
    """An address or an account in a line that was not given."""
    for address in ADDRESS.findall(line):
        if address.casefold() not in given.text:
            return f"the address {address}"
    for account in GROUPED.findall(DATE.sub(" ", line)):
        plain = "".join(filter(str.isalnum, account.casefold()))
        if len(plain) >= _ACCOUNT_SIGNS and any(sign.isdigit() for sign in plain) and plain not in given.signs:
            return f"the number {account}"
    return None


def names_in(line: str) -> list[str]:
    """Words with a capital that do not merely begin a sentence."""
    found: list[str] = []
    body = re.sub(r"^[\s\-*+#>]*(?:[^:]{1,24}:\s)?", "", line)
    for sentence in re.split(r"(?<=[.!?:;(])\s+", body):
        words = _WORD.findall(sentence)
        found += [word for word in words[1:] if word[0].isupper() and _is_name(word)]
    return [re.sub(r"['\u2019]s$", "", name) for name in found]


def _is_name(word: str) -> bool:
    has_digits = any(sign.isdigit() for sign in word)
    known = word.casefold() in SAME or word.casefold() in _TITLES
    # "YYYY" is a form.
    is_form = len(set(word)) < _NAME_LETTERS
    return word[0].isupper() and not (has_digits or known or is_form) and len(word) >= _NAME_LETTERS


def numbers_in(text: str, *, as_written: bool = False) -> frozenset[str]:
    """The numbers of a text in one form; unless `as_written`, also those that its words and times stand for."""
    found: set[str] = set()
    for hour, minute in _CLOCK.findall(text):
        found |= {_trimmed(hour), _trimmed(minute)}
    for number in _NUMBER.findall(_CLOCK.sub(" ", text) if as_written else text):
        plain = re.sub(r"[.,'\u2019\u00a0](?=\d{3}(?!\d))", "", number)
        parts = [part for part in re.split(r"[.,:/]", plain) if part]
        found.add(_trimmed(plain.replace(",", ".")))
        if not as_written:
            found.update(_trimmed(part) for part in (*parts, *re.split(r"[.,:/'\u2019\u00a0]", number)) if part)
    if as_written:
        return frozenset(found)
    words = [word.casefold() for word in _WORD.findall(text)]
    spelled = [SAME[word] for word in words if SAME.get(word, "").isdigit()]
    found.update(spelled)
    found.update(number for word in words for number in _PARTS_OF.get(word, ()))
    found.update(str(_ONES[ones] + int(SAME[tens])) for ones, tens in _COMPOUND.findall(text.casefold()))
    for tens, ones in pairwise(spelled):
        found.update({str(int(tens) + int(ones)), str(int(tens) * int(ones))})
    for word in re.findall(r"\b(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-\w+", text, re.IGNORECASE):
        tens, ones = word.casefold().split("-", 1)
        found.add(str(int(SAME[tens]) + int(SAME.get(ones, "0") if SAME.get(ones, "").isdigit() else 0)))
    # "Half past seven", "halb acht", "7 pm".
    hours = {int(number) for number in found if number.isdecimal() and len(number) <= _SHORT and int(number) <= _HOURS}
    hours |= {hour - 1 for hour in hours}
    found.update(map(str, hours), (str(hour + _HALF_A_DAY) for hour in hours if hour <= _HALF_A_DAY))
    found.update({"0", "00", "15", "30", "45"} if hours else ())
    found.update(str(12 * hour) for hour in hours if "dozen" in words or "dutzend" in words)
    return frozenset(found)


def _trimmed(number: str) -> str:
    whole, point, rest = number.strip(".:/").partition(".")
    whole = whole.lstrip("0") or "0"
    rest = rest.rstrip("0")
    return f"{whole}.{rest}" if point and rest else whole
