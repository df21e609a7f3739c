"""Words of a text as memory compares them (pure): for repeats, for what a line rests on, for what was dropped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache

#: What stands in the place of forgotten words.
FORGOTTEN = "[forgotten]"

_WORD = re.compile(r"\w+")
#: A sentence's words and every sign that could change what it says: C++ is not C, and -5 is not 5. What merely ends
#: or sets off a phrase is left out; inside a number it counts.
_TOKEN = re.compile(r"\w+|[.,:](?=\d)|[^\w\s.,:;!?'\"\u2018-\u201d()\[\]…`*]")
#: Articles, copulas and possessives: two sentences that differ in nothing else say the same. No negations and no
#: tenses are among them, since those change what is said.
_FILLERS = frozenset("a an the is are am be s of to that".split())
#: Too short to say whose words they are ("at", "my"); numbers count whatever their length.
_SHORT = 3
#: So many meaning-carrying words in a row are copied, not found alike by chance.
RUN = 4
Run = tuple[str, ...]

#: Scripts that put no space between words, as a regular expression's ranges: their signs are compared in pairs.
SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED = re.compile(f"[{SPACELESS}]+")
#: Letters of other scripts that pass for Latin ones (the lower-case part of Unicode's confusables that keyboards have).
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁһкмтвнгԛԝαεορυχικντβηγѵӏ",
    "aeopcyxijsdhkmtbhrqwaeopuxikvtbnyvl",
)


def said(text: str) -> str:
    """A sentence without fillers, case and punctuation: equal for sentences that say the same in the same order."""
    return " ".join(word for word in _TOKEN.findall(text.casefold()) if word not in _FILLERS)


def forms_of(text: str) -> frozenset[str]:
    """The words of a text that carry meaning, in one form for singular and plural; for a text that is asked once."""
    return frozenset(form for form in map(_form, set(_words(text))) if form)


content_words = lru_cache(maxsize=512)(forms_of)


def words_of(texts: Iterable[str]) -> set[str]:
    """The meaning-carrying words of several texts."""
    return set().union(*(content_words(text) for text in texts))


def run_words(text: str) -> list[str]:
    """The meaning-carrying words of a text in their order.

    Numbers are left out, since versions and dates are long; so are pairs of signs, since a name has many.
    """
    forms = map(_form, _words(text))
    return [form for form in forms if form and form.isalpha() and not _UNSPACED.match(form)]


def runs(words: Sequence[str]) -> Iterator[Run]:
    """Every RUN of words as they follow each other."""
    return zip(*(words[start:] for start in range(RUN)), strict=False)


class Text:
    """A text as words, taken apart when it is asked for them."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that carry meaning."""
        return content_words(self.text)

    @cached_property
    def runs(self) -> frozenset[Run]:
        """The words as they follow each other."""
        return frozenset(runs(run_words(self.text)))


def words_in(texts: Iterable[Text]) -> frozenset[str]:
    """The meaning-carrying words of several texts."""
    return frozenset[str]().union(*(text.words for text in texts))


def is_spaceless(word: str) -> bool:
    """Whether it is a pair of signs of a script that puts no space between words."""
    return _UNSPACED.match(word) is not None


def share(words: AbstractSet[str], of: AbstractSet[str]) -> float:
    """Which part of `words` is among the others, from 0 to 1; 1 where there are none."""
    return len(words & of) / len(words) if words else 1.0


@lru_cache(maxsize=20_000)
def _form(word: str) -> str:
    """A word in the form that stands for singular and plural, empty if it carries no meaning."""
    if (len(word) < _SHORT or word in _COMMON) and not (any(c.isdigit() for c in word) or _UNSPACED.match(word)):
        return ""
    return word[:-1] if len(word) > _SHORT and word.endswith("s") and not word.endswith("ss") else word


def plain(text: str) -> str:
    """A text as an eye reads it: no case, no invisible signs inside words, no accents, no letters that look alike."""
    text = text.casefold()
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKD", text)
    return "".join(c for c in text if unicodedata.category(c) not in {"Cf", "Mn"}).translate(_LOOKALIKES)


def _words(text: str) -> list[str]:
    text = plain(text)
    return _WORD.findall(text if text.isascii() else _UNSPACED.sub(_in_pairs, text))


def _in_pairs(run: re.Match[str]) -> str:
    signs = run[0]
    pairs = (signs[at : at + 2] for at in range(max(1, len(signs) - 1)))
    return f" {' '.join(pairs)} "


#: Function words that anybody's sentence has, and the curator's own ways of putting things.
_COMMON = frozenset(
    """about after all also and any are because been before but can could did does each for from had has have her him
    his how into its just may more most not now off only our out over should some such than that the their them then
    there these they this those was were what when where which while who why will with would you your user users
    """.split()
)
