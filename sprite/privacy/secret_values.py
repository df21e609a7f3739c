"""Judges whether a value that is given to a name is a secret, by how it is written and what its name claims.

The hard part is what is no secret: `password = getpass()`, `token: str`, `secretName: tls-cert-2`, "base64-encoded".
Those rules are data, `rules/values.toml`; here is how they are applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from sprite.privacy.rule_files import NameFile, Rule, ValueFile, one_of
from sprite.privacy.secret_formats import entropy

_SHORTEST_PASSWORD = 6
#: Shorter letters alone are one word.
_SHORTEST_JOINED = 11
#: Frameworks make keys with signs in them, so long; with spaces too where there are many signs.
_SIGN_KEY_LENGTHS = range(32, 129)
_MANY_SIGNS = 8
#: Lengths of tokens: what services usually give out, and what only they do.
_USUAL = 16
_LONG = 20
#: Bits per character: above "aaaa1111", above a word with digits, and what only chance makes in twenty characters.
_NOT_REPETITIVE = 3.0
_VARIED = 3.5
_RANDOM = 4.0
#: `literal`: quoted, or a line of configuration, whose right side is never an expression.
Style = Literal["literal", "code", "prose"]
_SYMBOL = re.compile(r"[!@#$%^&*~+=?|\\<>]")
#: Services do not put these into tokens; patterns, markup and sentences have them.
_NO_TOKEN = re.compile(r"[\s\[\](){}<>|\\`]")
_TRANSITION = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
UPPER_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")


def compiled(rules: Iterable[Rule], form: str = "{}") -> re.Pattern[str]:
    """Compiles rules to one regular expression: any of them, in the form that is given."""
    return re.compile(form.format(one_of(rule.regex for rule in rules)))


class Values:
    """The rules about values, and about what names claim of them, compiled."""

    def __init__(self, rules: ValueFile, names: NameFile) -> None:
        self._password_name = re.compile(one_of(word.filled(word.password) for word in names.word))
        self._token_name = re.compile(one_of(word.filled(word.token) for word in names.word))
        self._harmless_name = compiled(names.harmless_name)
        self._reference = compiled(rules.reference, r"(?i)\A(?:{})\Z")
        self._placeholder = compiled(rules.placeholder, "(?i){}")
        self._term = compiled(rules.term, r"(?i)\A(?:{})\Z")
        self._path = compiled(rules.path)
        self._unit = compiled(rules.unit)
        self._expression = compiled(rules.expression)
        self._standard = compiled(rules.standard, "(?i){}")
        self._remark = compiled(rules.remark, "(?i)(?:{})")

    def kind(self, name: str, value: str, style: Style) -> str | None:
        """Returns the kind of secret that `value` is under this name, or None."""
        lower = name.lower().strip("-._ ")
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("-._ ")
        strong = self._password_name.search(snake) is not None
        working_folder = lower in {"pwd", "oldpwd"} and (value[:1] in "/~." or value[1:2] == ":")
        if working_folder or self._harmless_name.search(snake):
            return None
        if len(value) < (4 if strong else 8) or self._reference.match(value) or self._path.match(value):
            return None
        if style == "code" and self._expression.search(value):
            return None
        if strong:
            return "password-assignment" if self._could_be_password(name, snake, value, style) else None
        named = self._token_name.search(snake) is not None
        made = style == "literal" and snake.endswith(("key", "salt")) and _is_sign_key(value)
        if not made and not named and not (snake.endswith("key") and UPPER_NAME.match(name)):
            return None
        return "secret-assignment" if made or self._could_be_token(value, style, sure=named) else None

    def is_striking(self, value: str, gap: str, *, quoted: bool) -> bool:
        """Returns whether a value stands out from its sentence: "the password is hunter2", not "is base64-encoded"."""
        a_word = self._term.match(value) and not re.fullmatch(r"[a-z]{4,}\d{1,4}", value)
        if a_word or re.match(r"\d{1,4}-?(?:[a-z]{1,12}|[A-Z]{1,4})\Z", value):
            return False
        if (quoted or ":" in gap) and self._is_joined_words(value):
            return True
        if self._has_only_units(re.split(r"[-_./:,@ ]", value)):
            # Words and numbers are a password only where a person says so, and unless they name a standard.
            said = quoted or gap.strip(" \"'") != ""
            made = re.search(r"[a-z]{3,}[\w.-]*\d", value) is not None
            return said and made and not self._standard.match(value)
        return re.search(r"\d|.[!@#$%^*]+.", value) is not None

    def _could_be_password(self, name: str, snake: str, value: str, style: Style) -> bool:
        if self._placeholder.search(value) and not _is_random(value):
            return False
        if re.search(r"\s", value):
            # Several words: a pass phrase where it is called one; anything else is a label or a sentence.
            words = re.fullmatch(r"\w+(?: \w+){3,}", value) is not None
            return words and "phrase" in snake and "pass" not in value.lower()
        letters, digits = re.search(r"[A-Za-z]", value), re.search(r"\d", value)
        if letters and digits:
            return style == "literal" or not self._term.match(value) or _SYMBOL.search(value) is not None
        if digits:
            return style == "literal" and len(value) >= _SHORTEST_PASSWORD and value.isdigit()
        if _SYMBOL.search(value[1:]) and letters:
            return style != "code" and not value.endswith("?") and len(value) >= _SHORTEST_PASSWORD
        # Letters alone: believed only where nothing but a value can stand.
        written = len(value) >= _SHORTEST_PASSWORD and value.isalpha()
        sure = UPPER_NAME.match(name) is not None or self._is_joined_words(value)
        return style != "code" and written and sure

    def _is_joined_words(self, value: str) -> bool:
        """Returns whether these letters are words that a person put together, "correcthorse", and no remark."""
        plain = value.islower() or (value[1:].islower() and value[:1].isupper())
        return plain and value.isalpha() and len(value) >= _SHORTEST_JOINED and not self._remark.search(value)

    def _could_be_token(self, value: str, style: Style, *, sure: bool) -> bool:
        if _NO_TOKEN.search(value) or (self._placeholder.search(value) and not _is_random(value)):
            return False
        if not (re.search(r"[A-Za-z]", value) and re.search(r"\d", value)):
            # Twenty letters without a digit do occur, in one key of forty.
            made = len(value) >= _LONG and value.isalpha() and not value.islower()
            return sure and made and entropy(value) >= _RANDOM
        if self._term.match(value) or self._has_only_units(re.split(r"[-_./:@ ]", value)):
            return False
        if not sure:
            return len(value) >= _LONG and entropy(value) >= _VARIED
        # A short one has to look made: letters and digits in turns.
        made = style != "prose" and len(_TRANSITION.findall(value)) > 1
        return made if len(value) < _USUAL else entropy(value) >= _NOT_REPETITIVE

    def _has_only_units(self, parts: list[str]) -> bool:
        return all(self._unit.fullmatch(part) for part in parts if part)


def _is_sign_key(value: str) -> bool:
    """Returns whether this is a key as Django and WordPress make them: letters, digits and signs by chance."""
    signs = sum(not character.isalnum() and character not in "-_. /" for character in value)
    enough = signs >= (_MANY_SIGNS if " " in value else 3) and len(value) in _SIGN_KEY_LENGTHS
    return enough and re.search(r"\d", value) is not None and entropy(value) >= _RANDOM


def _is_random(value: str) -> bool:
    """Returns whether a person would not have typed this."""
    return len(value) >= _LONG and re.search(r"\d", value) is not None and entropy(value) >= _RANDOM
