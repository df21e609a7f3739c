"""Words in which a line and what people said are compared, whatever their form and language (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

from sprite.memory.query import forms
from sprite.memory.words import content_words

#: Names of code have up to three words or so; from here on, joined words are a sentence.
SENTENCE_PARTS = 4
#: So many words in digits are no accident; one is a name (k8s, b2b).
_LEET_WORDS = 2
#: So many single letters with spaces between them are a word.
_SPACED = re.compile(r"(?<!\w)(?:[^\W\d_][ \u00a0.\u00b7_*|/-]{1,3}){4,}[^\W\d_](?!\w)")
_LEET = re.compile(
    r"(?<![\w/.-])(?=\w*[a-z])(?:\w*?[a-z][013457@$]+[a-z]\w*|[013457][a-z]+[013457][a-z]\w*)(?![\w/.-])",
    re.IGNORECASE,
)
#: So much of a long word is named.
_SHOWN = 60
_DISGUISED_WORD = re.compile(r"\w+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: Letters that are drawn like others and are no other letter by any of Unicode's mappings.
_SMALL_CAPITALS = re.compile("[\u1d00-\u1d22\u0262\u026a\u0274\u0280\u029c\u029f\ua730\ua731\u1d1b\ua7af]")


def told_apart(text: str) -> str:
    """The text with joined words as words of their own."""
    return _CAMEL.sub(" ", text).replace("_", " ")


def disguise_of(line: str, is_known: Callable[[str], bool], *, personal: bool) -> str | None:
    """Why this line is written in disguise, in words, or None; what somebody honest spelled so `is_known` and is none.

    In a `personal` line no words are joined either: it has no names of code that are sentences.
    """
    joined = [word for word in _DISGUISED_WORD.findall(line) if len(told_apart(word).split()) >= SENTENCE_PARTS]
    if personal and any(not is_known(word) for word in joined):
        return f"its words are joined: {joined[0][:_SHOWN]}"
    if (spaced := _SPACED.search(line)) is not None and not is_known(spaced[0]):
        return "its words are spaced out"
    leet = {found[0] for found in _LEET.finditer(line) if not is_known(found[0])}
    if len(leet) >= _LEET_WORDS:
        return f"digits stand for letters: {', '.join(sorted(leet))}"
    return None if line.isascii() else _foreign_letters(line, is_known)


def _foreign_letters(line: str, is_known: Callable[[str], bool]) -> str | None:
    if any(unicodedata.category(sign) == "Cf" and sign not in "\u200d\ufe0f" for sign in line):
        return "there are invisible signs in it"
    for word in _DISGUISED_WORD.findall(line):
        if not word.isascii() and not is_known(word) and _is_masked(word):
            return f"letters of other alphabets stand for others: {word}"
    return None


def _is_masked(word: str) -> bool:
    """Whether letters in a word stand for others: two alphabets, or letters that are drawn as others."""
    if _SMALL_CAPITALS.search(word):
        return True
    letters = [sign for sign in word if sign.isalpha()]
    # Mathematical and full-width letters are others in another dress; an accent is none.
    if any(unicodedata.decomposition(sign).startswith(("<font>", "<wide>", "<circle>")) for sign in letters):
        return True
    alphabets = {unicodedata.name(sign, "").split(" ")[0] for sign in letters}
    return len(alphabets & {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}) > 1


#: Words are akin that begin alike over so much of the longer one ("invoice", "invoicing"), and so many letters at
#: least.
_ALIKE, _ALIKE_LETTERS = 0.6, 4
#: Shorter words are not taken for misspelled ones.
_MISSPELLED_LETTERS = 5

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
#: How curators begin a line about a person; nobody says it of themselves.
_CURATORS = frozenset(
    """want prefer like wish ask need expect user person möchte bevorzugt will wünscht veut préfère souhaite
    quiere prefiere wil wenst
    """.split()
)


def _classes(text: str) -> dict[str, str]:
    """Words of closed classes to one form each: the same in five languages, so that a translation keeps them."""
    found: dict[str, str] = {}
    for line in text.split("|"):
        first, *others = line.split()
        found |= dict.fromkeys((first, *others), first)
    return found


#: Numbers in words, days, months and languages.
SAME = _classes(
    """0 zero null|1 one once single ein eins eine einen un une uno una een|2 two twice both pair couple zwei zweimal
    beide deux dos twee|3 three drei trois tres drie|4 four vier quatre cuatro|5 five fünf cinq cinco vijf|
    6 six sechs seis zes|7 seven sieben sept siete zeven|8 eight acht huit ocho|9 nine neun neuf nueve negen|
    10 ten zehn dix diez tien|11 eleven elf onze once|12 twelve dozen zwölf douze doce twaalf dutzend|
    13 thirteen dreizehn treize trece dertien|14 fourteen vierzehn quatorze catorce veertien fortnight|
    15 fifteen fünfzehn quinze quince vijftien|16 sixteen sechzehn|17 seventeen siebzehn|18 eighteen achtzehn|
    19 nineteen neunzehn|20 twenty zwanzig vingt veinte twintig|30 thirty dreißig trente treinta dertig|
    40 forty vierzig quarante cuarenta veertig|50 fifty fünfzig cinquante cincuenta vijftig|60 sixty sechzig soixante
    sesenta zestig|70 seventy siebzig zeventig|80 eighty achtzig tachtig|90 ninety neunzig negentig|
    100 hundred hundert cent cien honderd|1000 thousand tausend mille mil duizend|
    monday mon montag lundi lunes maandag|tuesday tue tues dienstag mardi martes dinsdag|wednesday wed mittwoch mercredi
    miércoles woensdag|thursday thu thur thurs donnerstag jeudi jueves donderdag|friday fri freitag vendredi viernes
    vrijdag|saturday sat samstag samedi sábado zaterdag|sunday sun sonntag dimanche domingo zondag|
    january jan januar janvier enero januari|february feb februar février febrero februari|march märz mars marzo maart|
    april avril abril|june juni juin junio|july juli juillet julio|august août agosto augustus|
    september sept septembre septiembre|october oct oktober octobre octubre|november nov novembre noviembre|
    december dec dezember décembre diciembre|
    german de deutsch deutsche deutschen allemand alemán duits|english en englisch englische englischen anglais inglés
    engels|french fr französisch français francés frans|spanish es spanisch espagnol español spaans|
    dutch nl niederländisch néerlandais holandés nederlands|first zuerst erst premier primero eerst|
    mm millimetre millimeter|cm centimetre centimeter|km kilometre kilometer|kg kilogram kilo kilogramm|
    litre liter|percent prozent|euro eur|never nie niemals jamais nunca nooit|always immer toujours siempre altijd"""
)

#: A fold compares each line with each learning of its batch.
_REMEMBERED_TEXTS = 512
OTHER = "other"
#: Fewer words tell no language.
_TELLING_WORDS = 4
#: Words that languages are known by.
_LANGUAGES = {
    "en": frozenset("the and for with you not are is this that have from please what can my our to of in on".split()),
    "de": frozenset("der die das und mit für nicht ist von auf ich du bitte wir ein eine im zu immer nur mir".split()),
    "fr": frozenset("le la les des et pour avec pas est je tu nous dans que qui une du au sur toujours".split()),
    "es": frozenset("el la los las y para con no es que por una del en mi siempre solo se lo".split()),
    "sv": frozenset("och att det är jag du inte som på med för av en ett när alltid till mig vill".split()),
    "nl": frozenset("de het een en met voor niet is van ik je wij op dat altijd alleen maar bij mij gewoon".split()),
}  # fmt: skip


_SMALL_WORDS = frozenset[str]().union(*_LANGUAGES.values())


@lru_cache(_REMEMBERED_TEXTS)
def comparable(text: str) -> frozenset[str]:
    """The words of a text that carry meaning, those of closed classes in one form for all languages."""
    found = set(content_words(told_apart(text)))
    found.update(SAME[word] for word in map(str.casefold, _WORD.findall(text)) if word in SAME)
    return frozenset(SAME.get(word, word).lstrip("0") or "0" for word in found) - _CURATORS - _SMALL_WORDS


class Vocabulary:
    """Words in which others are looked for in any form."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = frozenset(words)
        self._by_beginning: dict[str, list[str]] = {}
        for word in self.words:
            self._by_beginning.setdefault(word[:_ALIKE_LETTERS], []).append(word)

    def has(self, word: str) -> bool:
        """Whether a word, or a form of it, is among them."""
        if word in self.words:
            return True
        # Most words have no other form, and no other begins like them.
        others = forms(word)
        if others and any(form in self.words for form in others):
            return True
        begin = self._by_beginning.get(word[:_ALIKE_LETTERS])
        if begin is None or len(word) < _ALIKE_LETTERS or not word.isalpha():
            return False
        return any(_begin_alike(word, other) for other in begin)

    def among(self, words: Iterable[str]) -> frozenset[str]:
        """Those of these words that it has in any form."""
        return frozenset(word for word in words if self.has(word))

    def nearly_among(self, words: Iterable[str]) -> frozenset[str]:
        """Those of these words that it has in any form, or misspelled."""
        return frozenset(word for word in words if self.has(word) or any(_misspelled(word, it) for it in self.words))


def languages_of(text: str) -> frozenset[str]:
    """The languages that a text may be in, by its smallest words.

    OTHER where it has none of them, and none at all where it is short.
    """
    words = [word.casefold() for word in _WORD.findall(text)]
    counts = {name: sum(word in known for word in words) for name, known in _LANGUAGES.items()}
    most = max(counts.values())
    if not most:
        return frozenset({OTHER} if len(words) >= _TELLING_WORDS else ())
    return frozenset(name for name, count in counts.items() if count == most)


def _begin_alike(word: str, other: str) -> bool:
    need = max(_ALIKE_LETTERS, int(_ALIKE * max(len(word), len(other)) + 0.5))
    return len(other) >= need and word[:need] == other[:need]


def _misspelled(word: str, other: str) -> bool:
    """Whether two words differ by letters in another order, or by one letter."""
    if min(len(word), len(other)) < _MISSPELLED_LETTERS or word[0] != other[0] or abs(len(word) - len(other)) > 1:
        return False
    if sorted(word) == sorted(other):
        return True
    start = next((at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    rest, others = word[start:], other[start:]
    return rest[1:] == others[1:] or rest[1:] == others or rest == others[1:]
