"""Card numbers: known by their issuers' first digits and by Luhn's check digit (ISO/IEC 7812).

Account numbers for bank transfers (IBAN) are none of this: they are printed on every invoice to be paid to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int, str]

KIND = "card-number"
#: In one piece, or in groups as cards print them: 4-4-4-4, Amex 4-6-5, Diners 4-6-4.
_GROUPED = re.compile(
    # The first digit before the look behind it: so the search passes over everything else at once.
    # An account number (IBAN) is in groups as well, of which more stand before.
    r"[2-6](?<![\w.,+%/#-].)(?<!\d[ -].)(?:\d{14,15}|\d{3}([ -])\d{4}\1\d{4}\1\d{4}|\d{3}([ -])\d{6}\2\d{4,5})"
    r"(?![\w%/-]|[.,]\d)"
)
_CUE = re.compile(
    r"(?i)card|visa|amex|american express|maestro|diners|discover|\bpan\b|\bcc\b"
    r"|credit|debit|cvv|cvc|karte|carte|tarjeta"
)
#: How near to a number.
_NEAR = 60
#: Visa, Mastercard (two ranges), American Express, Discover, JCB, Diners: prefix, and how many digits follow it.
_ISSUERS = re.compile(
    r"4\d{15}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[689]\d)\d{11}"
)


def card_numbers(text: str) -> Iterator[Span]:
    """Yields the numbers of payment cards."""
    for match in _GROUPED.finditer(text):
        start, end = match.span()
        digits = re.sub(r"[ -]", "", match[0])
        if not _ISSUERS.fullmatch(digits) or not _has_check_digit(digits):
            continue
        # One in ten numbers has the right check digit: without a card's groups, something has to speak of cards.
        if len(digits) < end - start or _CUE.search(text, max(0, start - _NEAR), end + _NEAR):
            yield (start, end, KIND)


def _has_check_digit(digits: str) -> bool:
    """Returns whether Luhn's sum comes out: every second digit from the right counts twice, tens added to ones."""
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits)))
    return sum(sum(divmod(value, 10)) for value in doubled) % 10 == 0
