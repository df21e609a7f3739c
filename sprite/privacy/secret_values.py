"""Whether a value can be a secret, given that its name or its place says so (pure).

Every text is assumed to be one of three: something that stands for a value (a variable, a placeholder, a type), words
and numbers that somebody reads, or characters made by chance or by a person who wants nobody to guess them.
"""

# ruff: noqa: C901, E501, PLR0911, PLR2004 - a list of cases in order; their thresholds are explained beside them
from __future__ import annotations

import math
import re
from collections import Counter
from typing import Literal

#: `literal`: quoted, or configuration, whose right side is never an expression. `code`: may be an expression.
Style = Literal["literal", "code", "prose"]

#: Variables, fields of templates, calls, masks, addresses and hashes: they lead to a secret or hide it.
_REFERENCE = re.compile(
    r"""(?ix)\A(?:
    \$\{?[a-z_]\w*(?:[:.?+-].*)?\}?\Z | \$\(.* | \$\{\{.* | \$\d+\Z | \$\w+[/.\[].* | \$\{.*\}\Z | \$env:\w+\Z
    | \{\{.* | \{[\w.\[\]'"!:]*\}\Z | \#\{.* | \{%.* | %\(?\w*\)?[sdqv%]?\Z | <[^>]*>?\Z | :\w+\Z | \?+\Z | @[\w./-]+@?\Z | ``\Z
    | (?:[*x•.\#_=-]|\\u2022){3,}.* | \.\.\..* | … .* | \[(?:redacted|private|filtered|masked|hidden|removed|omitted|secret)\b.* | \[[a-z_-]+(?:\]\Z|=.*)
    | &?[a-z_][\w.:>-]*\(.*\)[;,]?\Z | (?:os|system|process|env|self|this|config|settings|request|import\.meta|secrets|vars?|local|data|module|input|args|opts|options|props|params|state)\.[a-z_].*
    | (?:vault:|op://|arn:|file:|data:|https?://|ref\+|sops:|enc\[|%5b|ssm:|secretsmanager:|keyring:|awssm:|gcpsm:|projects/).*
    | (?:ssh-(?:rsa|ed25519)|ecdsa-sha2|sha(?:1|224|256|384|512)[:-]|\$2[aby]\$|\$argon2|\$[156y]\$|pbkdf2|scrypt:).*
    | \\.* | &\w+;.* | (?:~|\.{1,2})[\\/].* | /(?:run|etc|home|usr|var|opt|tmp|root|mnt|app|data|users|srv|dev|proc|secrets?|vault)[\\/].*
    | \.values\..* | ag[a-z][\w+/]{200,}={0,2}\Z | \{[^{}]*\}\Z | [a-z_]+(?::[\w,.]+)?(?:\|[a-z_]+(?::[\w,.]+)?)+\Z
    | (?:async\ )?function\b.* | [a-z]:\\{1,2}\w+[\\/].* | !(?:vault|secret|ref|getatt|sub|env|include)\b.*
    )"""
)
#: Words that ask to be replaced, and what documentation writes instead of a secret.
_PLACEHOLDER = re.compile(
    r"(?i)\byour|your[_-]|change[_-]?(?:me|it|this)|\bexample|example\b|placeholder|dummy|redacted|\binsert|replace|\btodo"
    r"|\bmy[_-](?:\w+[_-])?(?:pass|secret|token|key|api)|\bsome[_-]|\bfake|sample|x{5,}|\*{3}|\.{3}|…|[-_]here\b|<[\w -]+>"
    r"|0{12}|\bnot[_-]a[_-]|\bdo[_-]not[_-]|lorem|foobar|dXNlcm5hbWU6"
)
#: Words that are said of a secret, its type or its state, and names of the thing instead of its value.
_SAID = re.compile(
    r"(?i)(?:none|null|nil|undefined|nan|true|false|yes|no|on|off|string|str|bytes?|u?int(?:eger)?|bool(?:ean)?|any|object|"
    r"optional|void|char|varchar|text|number|uuid|never|unknown|self|this|new|old|default|empty|blank|hidden|test|testing|"
    r"required|obligatori[ao]|obligatoire|erforderlich|value|key|token|secret|secrets|pass|passwd|passwords?|passphrase|pwd|pw|"
    r"passwort|kennwort|api[_-]?key|basic|bearer|oauth2?|jwt|anonymous|plain|plaintext|encrypted|hashed|n/?a|auto|public|"
    r"private|inherit|write|read|wrong|incorrect|invalid|valid|correct|missing|set|unset|enabled|disabled|changed|expired|"
    r"safe|secure|weak|strong|same|different|interactive|alphanumeric|prompt|nonexistent|independent|stored|admin|user|root|database|"
    r"postgres|mysql|localhost|form|field|label|input|redacted|masked|sensitive|omitted|include|same-origin)\Z"
)
_ABOUT = re.compile(
    r"(?i)passw|secret|token|credential|login|keychain|keyring|manager|vault|field|input|string|value|column|param|config|"
    r"variable|object|service|provider|handler|helper|type|auth|encrypt|hash|schema|contrase|kennwort|passe|geheim|wachtwoord|senord|salasana|парол|heslo|has[lł]o|parol|request|response|result|"
    r"(?<=[a-z])(?:ed|ing|tion|sion|able|ible|ment|ity|ally|ory|ence|ance|ness|less|ful|ous|ism|ship)\Z"
)
#: Technical terms with a digit: encodings, digests, ciphers, protocols, versions, sizes, times, documents.
_TERM = re.compile(
    r"(?i)(?:base\d+|sha-?\d+\S*|md5|utf-?\d+|bcrypt|argon2\w*|s?cr(?:ypt|am)\S*|pbkdf2\S*|aes\S*|rsa\S*|ed25519|x25519|ec\d+|"
    r"[hrep]s\d{3}|a\d{3}(?:cbc|gcm|kw)\S*|x\.?509|oauth-?2?\S*|http/?\d\S*|ipv[46]|web3|totp|u2f|2fa|mfa|fido2|k8s|s3|ec2|i18n|l10n|a11y|"
    r"(?:windows|latin|iso|level|type|step|option|part|page|line|room|version|python|phase|chapter|section|table|figure|"
    r"column|field|slot|index|tls|ssl|rfc|cve|issue|pr|vlan|port|node|gpt|claude|es|php|java|django|rails)[-_ ]?v?\d\S*|"
    r"v\d{1,3}(?:[.-]\w{1,12})*|[a-z]{1,4}\d|h[1-6]|[a-z]\d{1,2}|p?\d+(?:\.\d+)+\S*|\d{1,4}-?(?-i:[a-z]{1,12}|[A-Z]{1,4})|"
    r"\d+-?(?:bit|byte|char|digit|day|hour|min|sec|week|month|year|fa\b|factor|step)\S*|"
    r"\d{1,2}[:.]\d{2}\S*|\d{4}-\d\d-\d\d\S*|\d{1,2}/\d{1,2}(?:/\d{2,4})?)\Z"
)
#: Words and numbers alone, however they are joined, are no token.
_UNIT = re.compile(
    r"(?:[A-Z]?[a-z]+|[A-Z]+)\d{0,5}|\d{1,4}[a-z]{0,2}|v\d+"
    r"|(?:Ed25519|[A-Z][a-z]{2,}\d{0,5}|[A-Z]{1,6}\d{0,5}(?=[A-Z][a-z]{2}))+|[a-z]+(?:[A-Z][a-z]{2,})+\d{0,5}"
)
_JOINT = re.compile(r"[-_./:,@ ]")
#: What code assigns without quotes: brackets, operators, members.
_EXPRESSION = re.compile(r"[(){}\[\]<>|]|=>|->|&&|\+\+|\A!|\A[A-Za-z_][\w$]*(?:[.:]{1,2}[A-Za-z_][\w$]*)+(?<!\d\d)\Z")
_SYMBOL = re.compile(r"[!@#$%^&*~+=?|\\<>]")
#: A regular expression.
_PATTERN = re.compile(r"\(\?[:!=<iPms]|\[\^?\\?\w-\w|\\[bswd.]|\]\{\d|[)\]][?*+][)(\[|]|\w\|\w+\||\{\w*\}")
_LABEL = re.compile(r"pass|phrase|secret|token|enter|login|require")
_SIGNS = re.compile(r"[^\w. /-]")
_LETTER, _DIGIT = re.compile(r"[^\W\d_]"), re.compile(r"\d")
_MARKUP = re.compile(r"[<>\\]|\A-")
#: Parts of adjectives: "case-sensitive", "read-only".
_ADJECTIVE = frozenset(
    "case read write only one time well auto self non app user two multi long short per pre high low".split()
)
_CAMEL = re.compile(r"[A-Za-z]?[a-z]*(?:[A-Z][a-z]+)*(?:[A-Z]{2,})?")
#: A recovery key of numbers alone.
_GROUPS = re.compile(r"\d{5,6}(?:-\d{5,6}){5,}")
_NO_TOKEN = re.compile(r"[\s\[\](){}<>|\\`]")
#: A longer value is judged by its beginning.
_LONGEST = 200
_GLUE = frozenset("the a an and or to your my is are for with of in on it this that must be not you can as at".split())


def entropy(text: str) -> float:
    """Return the bits per character (Shannon)."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def is_placeholder(value: str) -> bool:
    """Return whether the value has words that ask to be replaced, and is not so random that they are there by chance."""
    if "EXAMPLE" in value or "ABC-DEF" in value:
        return True
    return _PLACEHOLDER.search(value, 0, _LONGEST) is not None and not (len(value) >= 40 and entropy(value) >= 4.5)


def stands_for_value(value: str) -> bool:
    """Return whether the value leads to a secret or hides it: a variable, a template, a path, a mask, a placeholder."""
    is_reference = "${" in value or _REFERENCE.match(value) is not None
    return is_reference or _PATTERN.search(value, 0, _LONGEST) is not None or is_placeholder(value)


def is_words(value: str) -> bool:
    """Return whether the value has only words, numbers and what joins them, as identifiers and versions have."""
    return all(_UNIT.fullmatch(part) for part in _JOINT.split(value) if part)


def is_password(value: str, style: Style = "literal", *, sure: bool = True) -> bool:
    """Return whether a value is a password, where one is expected.

    A literal is believed unless it reads as words about passwords: its name decides. In code and sentences the value has
    to look like one. `sure`: nothing else can stand there.
    """
    if len(value) < 4 or stands_for_value(value) or _SAID.match(value):
        return False
    if style == "code" and _EXPRESSION.search(value):
        return False
    if " " in value:
        return _is_passphrase(value, style, sure=sure)
    letters, digits = _LETTER.search(value), _DIGIT.search(value)
    if letters and digits:
        if _TERM.match(value) and not re.fullmatch(r"[a-z]{5,}\d{1,4}", value):
            return style == "literal" and sure and re.fullmatch(r"\d{2,4}[a-z]{4,12}", value) is not None
        return style == "literal" or not is_words(value) or (style == "prose" and _is_chosen(value))
    if digits:
        return style != "code" and value.isdigit() and (len(value) >= 6 or (style == "literal" and sure))
    if letters and _SYMBOL.search(value[1:]):
        return style != "code" and len(value) >= 6 and not value.endswith(("?", "=")) and not _MARKUP.search(value)
    if not letters or style == "code" or len(value) < 6:
        return False
    if _is_joined(value) and not (style == "prose" and re.fullmatch(r"[a-z_]+", value)):
        return True
    if sure:
        return not _ABOUT.search(value) or len(value) >= 20
    if not value.isalpha() or len(value) < 10 or _ABOUT.search(value):
        return False
    return style == "literal" if value[1:].islower() else not _CAMEL.fullmatch(value)


def _is_joined(value: str) -> bool:
    """Return whether a value is words that a person has joined, and no adjective and no name of a thing."""
    words = re.split(r"[-._;,+]", value)
    # The last word of a host or a file is short.
    is_plain = (
        len(words) > 1 and all(map(str.isalpha, words)) and len(value) > 8 and ("." not in value or len(words[-1]) > 3)
    )
    return (
        is_plain
        and not _ABOUT.search(value)
        and (len(words) > 2 or _ADJECTIVE.isdisjoint(words))
        and _GLUE.isdisjoint(words)
    )


def _is_passphrase(value: str, style: Style, *, sure: bool) -> bool:
    """Return whether several words are a password and no text about one."""
    words = value.split()
    most_glue = 1 if sure and len(words) > 4 else 0
    if len(_GLUE.intersection(value.lower().split())) > most_glue or value[-1] in ".:?!" or _SAID.match(words[-1]):
        return False
    is_given = sure and style == "literal"
    for word in words:
        made = _LETTER.search(word) and _DIGIT.search(word)
        if made and not (_TERM.match(word) and not (is_given and len(word) == 3 < 3 * len(words))):
            return True
    if _LABEL.search(value):
        return False
    if is_given and (_DIGIT.search(value) or ";" in value):
        return True
    return len(words) >= (3 if sure else 4) and (
        value.islower() or (style == "literal" and (sure or not value[0].isupper()))
    )


def _is_chosen(value: str) -> bool:
    """Return whether words and digits look like a password of a person: hunter2, Blue-Otter-42."""
    return re.search(r"[A-Za-z]{3,}[\w.!@-]*\d", value) is not None and not _ABOUT.search(value)


def is_token(value: str, style: Style = "literal", *, sure: bool = True) -> bool:
    """Return whether a value is a generated token; `sure`: its name says that it is secret."""
    if len(value) < 8 or stands_for_value(value) or (style == "code" and _EXPRESSION.search(value)):
        return False
    signs = len(_SIGNS.findall(value, 0, _LONGEST))
    if style == "literal" and sure and signs >= 3 and 32 <= len(value) <= 128 and _DIGIT.search(value):
        # Frameworks make keys with signs in them.
        return value.count(" ") < 3 and entropy(value) >= 4.0
    if _NO_TOKEN.search(value):
        return False
    if _GROUPS.fullmatch(value):
        return sure
    if not (_LETTER.search(value) and _DIGIT.search(value)):
        # Twenty letters without a digit do occur, in one key of forty, and keys of digits alone.
        made = value.isalpha() and not value.islower() and not is_words(value) and entropy(value) >= 4.0
        return sure and len(value) >= 20 and (made or value.isdigit())
    if _TERM.match(value) or is_words(value):
        return False
    if not sure:
        return len(value) >= 16 and entropy(value) >= 3.3
    return entropy(value) >= 2.7
