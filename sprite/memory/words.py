"""The words of a text in the form that memory compares (pure): for duplicates, evidence and lost lines."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

from sprite.protocol.pasted import Edit, Marked

#: Placeholder for forgotten words.
FORGOTTEN = "[forgotten]"

# C0 and C1 without tab, newline and carriage return, and the two non-characters that XML forbids.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"\w+")
#: The words of a sentence and every sign that can change its meaning: C++ is not C, and -5 is not 5. Punctuation is
#: left out, except inside a number.
_TOKEN = re.compile(r"\w+|[.,:](?=\d)|[^\w\s.,:;!?'\"\u2018-\u201d()\[\]…`*]")
#: Articles, copulas and possessives: sentences that differ only in these are equal. Negations and tenses change the
#: meaning, so they are not included.
_FILLERS = frozenset("a an the is are am be s of to that".split())
#: Shorter words ("at", "my") do not identify a source. Numbers of any length count.
_SHORT = 3
#: This many content words in a row are a copy, not a coincidence.
RUN = 4
Run = tuple[str, ...]

#: Scripts without spaces between words, as regular expression ranges. Their characters are compared in pairs.
SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED = re.compile(f"[{SPACELESS}]+")
#: Letters of other scripts that look Latin: the lower-case part of Unicode's confusables that keyboards have.
_LOOKALIKES = str.maketrans("аеорсухіјѕԁһкмтвнгԛԝαεορυχικντβηγѵӏ", "aeopcyxijsdhkmtbhrqwaeopuxikvtbnyvl")


def plain_text(text: str) -> str:
    r"""Return text safe for storage and XML: `\n` line ends, no control characters, no lone surrogates."""
    text = _CONTROL.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATE.sub("\ufffd", text)


def said(text: str) -> str:
    """Normalize a sentence, without fillers, case and punctuation. Equal results mean equal sentences."""
    return " ".join(word for word in _TOKEN.findall(text.casefold()) if word not in _FILLERS)


def forms_of(text: str) -> frozenset[str]:
    """Return the content words of a text, singular and plural in one form, without caching."""
    return frozenset(form for form in map(_form, set(_words(text))) if form)


content_words = lru_cache(maxsize=512)(forms_of)


def words_of(texts: Iterable[str]) -> set[str]:
    """Return the content words of several texts."""
    return set().union(*(content_words(text) for text in texts))


def run_words(text: str) -> list[str]:
    """Return the content words of a text in order, for `runs`.

    Numbers would make long runs of versions and dates, and one name has many character pairs: both are left out.
    """
    return [form for form in map(_form, _words(text)) if form and form.isalpha() and not _UNSPACED.match(form)]


def runs(words: Sequence[str]) -> Iterator[Run]:
    """Yield every run of RUN consecutive words."""
    return zip(*(words[start:] for start in range(RUN)), strict=False)


def share(words: AbstractSet[str], of: AbstractSet[str]) -> float:
    """Return the fraction of `words` that also occur in `of`, from 0 to 1; 1 if `words` is empty."""
    return len(words & of) / len(words) if words else 1.0


@lru_cache(maxsize=20_000)
def _form(word: str) -> str:
    """Return a word in a common form for singular and plural, or an empty string for a function word."""
    if (len(word) < _SHORT or word in _COMMON) and not (any(c.isdigit() for c in word) or _UNSPACED.match(word)):
        return ""
    return word[:-1] if len(word) > _SHORT and word.endswith("s") and not word.endswith("ss") else word


def plain(text: str) -> str:
    """Normalize a text to its visible form: no case, no invisible characters, no accents, no lookalike letters."""
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


#: Common function words, and the curator's usual phrases.
_COMMON = frozenset(
    """about after all also and any are because been before but can could did does each for from had has have her him
    his how into its just may more most not now off only our out over should some such than that the their them then
    there these they this those was were what when where which while who why will with would you your user users
    """.split()
)


_TAG = "sprite_memory"
_BEGIN = f"<{_TAG} "
_END = f"</{_TAG}>"
TAKEN_OUT = "[what memory gave to this session]"


def given(project: str | None, text: str) -> str:
    """Wrap text for a session of a project in tags that mark it as memory. It must not contain the closing tag."""
    key = "" if project is None else f'project="{html.escape(project)}" '
    return f"{_BEGIN}{key}>\n{text}\n{_END}\n"


def without_memory(text: str) -> str:
    """Return the text without the memory that Sprite added. An opening tag without a closing one stays."""
    return marked_without_memory(Marked(text)).text


def marked_without_memory(message: Marked) -> Marked:
    """Return a message without the memory that Sprite added, with the message's spans."""
    edits: list[Edit] = []
    at, text = 0, message.text
    while (start := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, start)) >= 0:
        at = end + len(_END)
        edits.append((start, at, TAKEN_OUT))
    return message.replaced(edits)
