"""Check a proposed line against its sources (pure): exact and independent of language.

Numbers, dates, addresses and handles of a line must stand in its sources. Letters must be visible and of one alphabet.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from text_to_num import alpha2digit  # type: ignore[import-untyped]

from sprite.memory.words import content_words

#: Days before and after the last turn in the prompt's calendar: for "next Friday", "in two weeks", "the 3rd".
CALENDAR_DAYS = 14
#: Languages in which spelled numbers are read.
_LANGUAGES = ("en", "de", "fr", "es", "nl", "it", "pt")
#: Reading spelled numbers takes up to 0.1 ms a word.
_MOST_SPELLED_CHARS = 4_000

_ADDRESS = re.compile(
    r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w|\b(?:https?://|www\.)[^\s<>\"')\]]*[\w/]|(?<![\w@])@\w[\w.-]*\w",
    re.IGNORECASE,
)
#: A host, or the name of a file.
_HOST = re.compile(r"(?<![\w/.-])[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}(?![\w-])", re.IGNORECASE)
#: Groups of digits and capitals, as in accounts and telephone numbers.
_ACCOUNT = re.compile(r"(?<![\w.,])\+?(?=[A-Z -]*[0-9])[A-Z0-9]{1,34}(?:[ -][A-Z0-9]{2,34}){0,12}(?![^\W_]|[.,]\d)")
#: Fewer digits are a number like others.
_ACCOUNT_SIGNS = 7
_DATE = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_MONTHS = """January February March April May June July August September October November December""".split()
_MONTH = "|".join(f"{name}|{name[:3]}" for name in _MONTHS)
#: A day as the curator's English names it: "5 October 2026", "Oct 5".
_NAMED_DAY = re.compile(
    rf"\b(?:(?P<day>\d{{1,2}}) (?P<month>{_MONTH})|(?P<month_>{_MONTH}) (?P<day_>\d{{1,2}}))\b"
    r"(?:,? (?P<year>\d{4})\b)?",
    re.IGNORECASE,
)
_TIME = re.compile(r"(?<![\d.,:])\b([01]?\d|2[0-4])[:.h]([0-5]\d)\b(?![.,:]\d)")
_NUMBER = re.compile(r"\d[\d.,:'\u2019/\u00a0]*\d|\d")
_THOUSANDS = re.compile(r"[.,'\u2019\u00a0 ](?=\d{3}(?!\d))")
#: A word with digits behind its letters ("T200", "KE-0412", "v1.2.3") is a name, not an amount.
_CODE = re.compile(r"(?<![\w-])[^\W\d_][\w-]*\d[\w-]*(?:\.\d[\w-]*)*")
#: Thousands may be grouped by spaces.
_SPACED = re.compile(r"(?<![\w.,])\d{1,3}(?: \d{3})+(?!\d)")
#: Signs between the letters and digits of an account: people group them as they like.
_BETWEEN = r"[\W_]{0,3}"
_LETTERS = re.compile(r"[^\W\d_]+")
#: Alphabets whose letters look like those of another.
_ALPHABETS = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "MATHEMATICAL", "FULLWIDTH"})
#: A word of so many letters and digits without a space is encoded text, unless a source has it.
_ENCODED = re.compile(r"[A-Za-z0-9+/=_%-]{24,}")
#: Times that people say without minutes: "half past seven", "a quarter to nine".
_QUARTERS = frozenset({0, 15, 30, 45})
_HALF_A_DAY = 12
_MISSING = " stands neither in its quote nor in the messages"


@dataclass(frozen=True)
class Given:
    """The texts that must contain the numbers and addresses of a proposed line."""

    texts: Sequence[str]

    @cached_property
    def text(self) -> str:
        """Return all of the texts in lower case."""
        return " \n ".join(self.texts).casefold()

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Return the numbers that the texts write in digits."""
        return frozenset(
            number
            for text in (self.text, _SPACED.sub(_unspaced, self.text))
            for found in _NUMBER.findall(text)
            for number in _values(found, in_parts=True)
        )

    @cached_property
    def spelled(self) -> frozenset[str]:
        """Return the numbers that the texts spell in words."""
        return frozenset(
            number
            for text in self.texts
            for name in _LANGUAGES
            for found in _NUMBER.findall(alpha2digit(text[:_MOST_SPELLED_CHARS], name, 0))
            for number in _values(found, in_parts=True)
        )

    def has(self, number: str) -> bool:
        """Return whether the texts have a number. For an hour such as 15, "3" in the texts is enough."""
        if number in self.numbers or number in self.spelled:
            return True
        # "3.1" for "3.1.11", and "22.2" for "22.20.0": the zero was trimmed.
        if "." in number and re.search(rf"(?<![\d.]){re.escape(number)}0*(?=\.\d)", self.text):
            return True
        is_afternoon = number.isdecimal() and len(number) == 2 and _HALF_A_DAY < int(number) <= 2 * _HALF_A_DAY  # noqa: PLR2004 - digits
        return is_afternoon and self.has(str(int(number) - _HALF_A_DAY))

    def lacks(self, line: str, day: date | None = None, *, may_name_files: bool = False) -> str | None:
        """Return the first number, date or address of a line that is not in these texts, or None.

        Days around `day` may be worked out from words like "tomorrow". With `may_name_files`, words like "notes.md" are
        names of files, not hosts.
        """
        rest = _ADDRESS.sub(" ", line)
        addresses = [*_ADDRESS.findall(line), *(() if may_name_files else _HOST.findall(rest))]
        if (unknown := next((each for each in addresses if not self._has_address(each.casefold())), None)) is not None:
            return str(unknown)
        rest = _NAMED_DAY.sub(lambda found: self._as_date(found, day), _HOST.sub(" ", rest))
        for found in _DATE.finditer(rest):
            if found[0] not in self.text and not self._has_day(found, day):
                return found[0]
        rest = _DATE.sub(" ", rest)
        for account in _ACCOUNT.findall(rest):
            if _is_long(account) and not self._has_account(account.casefold()):
                return str(account)
        # "10 000" is a number, and a long group was checked as a whole.
        rest = _ACCOUNT.sub(lambda found: " " if _is_long(found[0]) else found[0], rest)
        for code in _CODE.findall(rest):
            if sum(map(str.isdigit, code)) > 1 and not self._has_account(code.casefold()):
                return str(code)
        rest = _SPACED.sub(_unspaced, _CODE.sub(_last_digit, rest))
        for found in _TIME.finditer(rest):
            if not self._has_time(found):
                return found[0]
        # A year may be added to a day.
        years = {str(day.year + step) for step in (-1, 0, 1)} if day is not None else set()
        numbers = [number for found in _NUMBER.findall(_TIME.sub(" ", rest)) for number in _values(found)]
        return next((number for number in numbers if number not in years and not self.has(number)), None)

    def _as_date(self, found: re.Match[str], day: date | None) -> str:
        """Return a day of a month as the nearest ISO date, since "tomorrow" may mean it; unchanged if a text has it."""
        number, month = found["day"] or found["day_"], found["month"] or found["month_"]
        if day is None or self.has(number):
            return found[0]
        years = [int(found["year"])] if found["year"] else [day.year + step for step in (-1, 0, 1)]
        place = next(at for at, name in enumerate(_MONTHS, 1) if name[:3] == month[:3].capitalize())
        days = [meant for year in years if (meant := _date(year, place, int(number))) is not None]
        return min(days, key=lambda meant: abs(meant - day)).isoformat() if days else found[0]

    def _has_day(self, found: re.Match[str], day: date | None) -> bool:
        meant = _date(int(found[1]), int(found[2]), int(found[3]))
        if meant is None:
            return False
        if day is not None and abs((meant - day).days) <= CALENDAR_DAYS:
            return True
        # The month may be named in any language, and the year left out.
        return self.has(str(meant.day))

    def _has_time(self, found: re.Match[str]) -> bool:
        hour, minute = int(found[1]), int(found[2])
        # Written times are compared on a clock of twelve hours.
        if any((int(h) - hour) % _HALF_A_DAY == 0 and int(m) == minute for h, m in _TIME.findall(self.text)):
            return True
        if "." in found[0]:
            return self.has(_trimmed(found[0]))
        hours = {hour % _HALF_A_DAY, (hour + 1) % _HALF_A_DAY}
        known = {int(number) % _HALF_A_DAY for number in self.numbers | self.spelled if number.isdecimal()}
        return bool(hours & known) and (minute in _QUARTERS or self.has(str(minute)))

    def _has_address(self, address: str) -> bool:
        # A host may stand behind "www." or "@", but no mailbox is the end of another.
        before = r"(?<![\w.+-])" if "@" in address else r"(?<![\w-])"
        return re.search(rf"{before}{re.escape(address)}(?![\w-]|\.\w)", self.text) is not None

    def _has_account(self, account: str) -> bool:
        signs = _BETWEEN.join(map(re.escape, filter(str.isalnum, account)))
        return re.search(rf"(?<![^\W_]){signs}(?!\d)", self.text) is not None


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _is_long(code: str) -> bool:
    return sum(map(str.isdigit, code)) >= _ACCOUNT_SIGNS


def _last_digit(found: re.Match[str]) -> str:
    # The number of "Q4" may be spelled: "the fourth quarter".
    digits = [sign for sign in found[0] if sign.isdigit()]
    return f" {digits[0]} " if len(digits) == 1 else " "


def _unspaced(found: re.Match[str]) -> str:
    return found[0].replace(" ", "")


def _values(number: str, *, in_parts: bool = False) -> Iterator[str]:
    """Yield a number in normal form; with `in_parts`, also the parts of a date or a version ("4.8.", "3/4")."""
    whole = _THOUSANDS.sub("", number).replace(",", ".")
    is_amount = whole.count(".") <= 1 and whole.replace(".", "").isdecimal()
    parts = [part for part in re.split(r"[.:/]", whole) if part] if in_parts or not is_amount else []
    yield from map(_trimmed, dict.fromkeys([whole, *parts] if in_parts else parts or [whole]))


def short_numbers(text: str) -> str:
    """Return the short numbers of a text, joined by " and " so that no two of them look like one long number."""
    return " and ".join(number for number in _NUMBER.findall(text) if not _is_long(number))


def _trimmed(number: str) -> str:
    whole, point, rest = number.partition(".")
    whole, rest = whole.lstrip("0") or "0", rest.rstrip("0")
    return f"{whole}.{rest}" if point and rest else whole


def flaw(
    line: str, given: Given | None, day: date | None = None, *, may_name_files: bool = False, missing: str = _MISSING
) -> str | None:
    """Return why a line's sources do not support it, or None.

    It may have invisible, lookalike or encoded letters, no word at all, or something that the sources lack (see
    `Given.lacks`); `missing` follows this in the reason. With `given` None, only the letters count.
    """
    if any(unicodedata.category(sign).startswith("C") and sign not in "\t\u200d\ufe0f" for sign in line):
        return "it has invisible characters"
    if "<!--" in line or "-->" in line:
        return "it has a comment"
    known = "" if given is None else given.text
    for word in _LETTERS.findall(line):
        scripts = {unicodedata.name(sign, "").split(" ")[0] for sign in word if not sign.isascii()} & _ALPHABETS
        if any(sign.isascii() for sign in word):
            scripts.add("LATIN")
        if (len(scripts) > 1 or scripts & {"MATHEMATICAL", "FULLWIDTH"}) and word.casefold() not in known:
            return f"the letters of {word} are not of one usual alphabet"
    for token in _ENCODED.findall(line):
        if token.casefold() not in known and _is_encoded(token):
            return f"{token[:40]} looks encoded"
    if not content_words(line):
        return "it says nothing that can be compared"
    lacking = None if given is None else given.lacks(line, day, may_name_files=may_name_files)
    return None if lacking is None else f"{lacking}{missing}"


def _is_encoded(token: str) -> bool:
    parts = re.split(r"[/_=-]", token)
    is_path_or_words = len(parts) > 1 and all(len(part) < len(token) / 2 for part in parts)
    return not is_path_or_words and (any(sign.isdigit() or sign in "+=%" for sign in token) or not token[1:].islower())
