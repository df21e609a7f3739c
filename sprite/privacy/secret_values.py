"""Whether a value that is given to a name is a secret: judged by how it is written and what its name claims to be.

The hard part is what is no secret: `password = getpass()`, `token: str`, `secretName: tls-cert-2`, "base64-encoded".
"""

from __future__ import annotations

import re
from typing import Literal

from sprite.privacy.secret_formats import entropy

_SHORTEST_PASSWORD = 6
#: Lengths of tokens: what services usually give out, and what only they do.
_USUAL = 16
_LONG = 20
#: Bits per character: above "aaaa1111", above a word with digits, and what only chance makes in twenty characters.
_NOT_REPETITIVE = 3.0
_VARIED = 3.5
_RANDOM = 4.0
#: `literal`: quoted, or a line of configuration, whose right side is never an expression.
Style = Literal["literal", "code", "prose"]
_STRONG = re.compile(
    r"passw|passphrase|passcode|kennwort|contrase|passe\b|(?<![a-z])(?:pass|pwd|pw)(?![a-z])|(?:pg|db|user|root|require)pass\b|identified"
)
KEY_NAME = re.compile(
    r"(?:api|app|application|access|account|admin|auth|bot|client|consumer|crypt\w*|cypher|cipher|db|database|deploy"
    r"|encryption|encrypt|function|hmac|ingest\w*|jwt|license|licence|master|personal|priv|private|project|registry"
    r"|rest|secret|server|service|shared|sign|signing|storage|subscription|team|user|webhook|write|root)[_.-]?key"
)
#: What is called like a secret and is none.
_HARMLESS_NAME = re.compile(
    r"(?:\A|[_.-])(?:page|next(?:_page)?|continu\w*|cursor|sync|csrf|xsrf|cancel\w*|max|min|num|n|total|mask|pad|eos|bos|stop"
    r"|special|input|output|prompt|completion)_?tokens?\Z"
    r"|(?:public|primary|foreign|cache|sort|partition|idempot\w*|object|translation|row|range|hash|unique)[_-]?key\Z"
    r"|tokens?[_.-]?(?:count|type|limit|usage|budget|index)|(?<!access)(?<!secret)[_.-]ids?\Z|key_?id\Z"
    r"|(?:[_.-]|(?<=[a-z]))(?:name|type|url|uri|endpoint|path|file|filename|dir|field|label|hint|policy|length|len|hash|hashed"
    r"|digest|fingerprint|arn|version|format|regex|pattern|placeholder|prompt|message|msg|error|required|enabled|column|param"
    r"|params|header|prefix|suffix|env|var|ref|store|manager|provider|rotation|algorithm|alg|at|date|reset|strength|min|max"
    r"|age|expir\w*|ttl|scopes?|issuer|audience|checksum|sha256|sha1|md5|index|size|status|state|usage|description|title|text"
    r"|class|style|icon|input|form|button|page)\Z|(?:token|key|secret|password|credential|cookie)s\Z"
)
_NO_VALUE = re.compile(
    r"(?i)\A(?:\$\{?[a-z_]\w*(?:[:.-].*)?\}?|\$\(.*|\$\d+|\$\{\{.*|\{\{.*|\{\w*\}|%\(?\w*\)?[sd]?%?|<[^>]*>?|:\w+|\?+"
    r"|@\w+@?|[*x•.#_=-]{3,}.*|\.\.\..*|…|[a-z_][\w.]*\(.*|\[(?:redacted|private|filtered|masked|hidden)\b.*|#\{.*|\{%.*"
    r"|(?:os\.|process\.env|env\.|self\.|this\.|config\.|settings\.|request\.|import\.meta|vault:|op://|arn:|file:|data:"
    r"|https?://|\\|&|ssh-(?:rsa|ed25519)|sha(?:1|224|256|384|512)[:-]|\$2[aby]\$|\$argon2|\$6\$|pbkdf2).*)\Z"
)
_PLACEHOLDER = re.compile(
    r"(?i)your|change[_-]?(?:me|it|this)|example|placeholder|dummy|redacted|\binsert|replace|todo|\bmy[_-]|some[_-]|fake"
    r"|sample|\A(?:none|null|nil|undefined|true|false|yes|no|on|off|string|str|bytes|int|bool|any|object|optional"
    r"|required|pass(?:wd|word|phrase)?|pwd|secret|token|key|api[_-]?key|value|test(?:ing)?|default|empty|hidden|text"
    r"|basic|bearer|oauth2?|jwt|-?anonymous@?|plain(?:text)?|encrypted|hashed|unknown|n/?a|auto|public|private|inherit|write|read)\Z"
)
_TERM = re.compile(
    r"(?i)\A(?:base\d+|sha-?\d+|md5|utf-?\d+|bcrypt|argon2\w*|scrypt|pbkdf2\S*|aes\S*|rsa\S*|ed25519|ec\d+|[hrep]s\d+"
    r"|x\.?509|oauth-?2?\S*|http/?\d\S*|ipv[46]|v\d+\S*|\d+[a-z]{1,2}|\d+-?(?:bit|byte|char|digit|day|hour|min|sec|week|"
    r"month|year|fa\b|factor|step)\S*|[a-z]{1,4}\d|\d{1,2}[:.]\d{2}\S*|\d{4}-\d\d-\d\d\S*|cve-\S*|rfc-?\d+|h[1-6]|[a-z]\d{1,2}"
    r"|p?\d+(?:\.\d+)+\S*)\Z"
)
_PATH = re.compile(
    r"\A(?:~|\.{1,2}|[A-Za-z]:\\{1,2}\w|/(?:run|etc|home|usr|var|opt|tmp|root|mnt|app|data|Users|srv|dev))[\\/]"
)
_UNIT = re.compile(
    r"(?:[A-Z]?[a-z]+|[A-Z]+)\d{0,5}|\d{1,4}[a-z]{0,2}|v\d+"
    r"|(?:Ed25519|[A-Z][a-z]{2,}\d{0,5}|[A-Z]{1,6}\d{0,3}(?=[A-Z][a-z]{2}))+|[a-z]+(?:[A-Z][a-z]{2,})+\d{0,5}"
)
_EXPRESSION = re.compile(r"[(){}\[\]<>|]|=>|->|&&|\+\+|\A[A-Za-z_][\w$]*(?:[.:]{1,2}[A-Za-z_][\w$]*)+(?<!\d\d)\Z|\A!")
_STANDARD = re.compile(
    r"(?i)(?:base|sha|utf|iso|windows|latin|aes|rsa|md|bcrypt|argon|pbkdf|oauth|http|tls|ssl|ipv|level|type|step"
    r"|option|part|page|line|room|version|python|phase|chapter|section|table|figure|column|field|slot|index)[-_ ]?\d"
)
_SYMBOL = re.compile(r"[!@#$%^&*~+=?|\\<>]")
#: No service puts these into its tokens; patterns, markup and sentences have them.
_NO_TOKEN = re.compile(r"[\s\[\](){}<>|\\`]")
_TRANSITION = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
UPPER_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")


def kind_of_value(name: str, value: str, style: Style) -> str | None:
    """The kind of secret that `value` is under this name, or None."""
    lower = name.lower().strip("-._ ")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("-._ ")
    strong = _STRONG.search(snake) is not None
    if _HARMLESS_NAME.search(snake) or (lower in {"pwd", "oldpwd"} and (value[:1] in "/~." or value[1:2] == ":")):
        return None
    if len(value) < (4 if strong else 8) or _NO_VALUE.match(value) or _PATH.match(value):
        return None
    if style == "code" and _EXPRESSION.search(value):
        return None
    if strong:
        return "password-assignment" if _could_be_password(name, snake, value, style) else None
    named = re.search(r"secret|token|credential|auth|cookie", snake) or KEY_NAME.search(snake)
    if not named and not (snake.endswith("key") and UPPER_NAME.match(name)):
        return None
    return "secret-assignment" if _could_be_token(value, style, sure=named is not None) else None


def _could_be_password(name: str, snake: str, value: str, style: Style) -> bool:
    if _PLACEHOLDER.search(value) and not _is_random(value):
        return False
    if re.search(r"\s", value):
        # Several words: a pass phrase where it is called one; anything else is a label or a sentence.
        return "phrase" in snake and re.fullmatch(r"\w+(?: \w+){3,}", value) is not None and "pass" not in value.lower()
    letters, digits = re.search(r"[A-Za-z]", value), re.search(r"\d", value)
    if letters and digits:
        return style == "literal" or not _TERM.match(value) or _SYMBOL.search(value) is not None
    if digits:
        return style == "literal" and len(value) >= _SHORTEST_PASSWORD and value.isdigit()
    if _SYMBOL.search(value[1:]) and letters:
        return style != "code" and not value.endswith("?") and len(value) >= _SHORTEST_PASSWORD
    # Letters alone: believed only where nothing but a value can stand.
    written = len(value) >= _SHORTEST_PASSWORD and value.isalpha()
    return style == "literal" and written and UPPER_NAME.match(name) is not None


def _could_be_token(value: str, style: Style, *, sure: bool) -> bool:
    if _NO_TOKEN.search(value) or (_PLACEHOLDER.search(value) and not _is_random(value)):
        return False
    if not (re.search(r"[A-Za-z]", value) and re.search(r"\d", value)):
        # Twenty letters without a digit do occur, in one key of forty.
        return sure and len(value) >= _LONG and value.isalpha() and not value.islower() and entropy(value) >= _RANDOM
    if _TERM.match(value) or all(_UNIT.fullmatch(part) for part in re.split(r"[-_./:@ ]", value) if part):
        return False
    if not sure:
        return len(value) >= _LONG and entropy(value) >= _VARIED
    # A short one has to look made: letters and digits in turns.
    made = style != "prose" and len(_TRANSITION.findall(value)) > 1
    return made if len(value) < _USUAL else entropy(value) >= _NOT_REPETITIVE


def _is_random(value: str) -> bool:
    """Whether nobody would have typed this."""
    return len(value) >= _LONG and re.search(r"\d", value) is not None and entropy(value) >= _RANDOM


def is_striking(value: str, gap: str, *, quoted: bool) -> bool:
    """In a sentence only what does not read as a word of it: "the password is hunter2", not "is base64-encoded"."""
    a_word = _TERM.match(value) and not re.fullmatch(r"[a-z]{4,}\d{1,4}", value)
    if a_word or re.match(r"\d{1,4}-?(?:[a-z]{1,12}|[A-Z]{1,4})\Z", value):
        return False
    if all(_UNIT.fullmatch(part) for part in re.split(r"[-_./:,@ ]", value) if part):
        # Words and numbers: a password for a person who says so, and no name of a standard.
        said = quoted or "is" in gap or ":" in gap or "=" in gap
        return said and re.search(r"[a-z]{3,}[\w.-]*\d", value) is not None and not _STANDARD.match(value)
    return re.search(r"\d|.[!@#$%^*]+.", value) is not None
