"""Extract learnings from a turn by fixed patterns over the person's own words.

The assistant's words, tool results and pasted quotes do not count: they may contain planted text. Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from bridge.offline.batch import ToolCall, Turn

_LONGEST_QUOTE = 200
_LONGEST_CONTENT = 300
_PASTED = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>.*$", re.DOTALL | re.MULTILINE)
# "No. It should be X." stays one sentence: the first word makes it a correction.
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\bno[.!])(?<!\bnope[.!])\s+|\n+", re.IGNORECASE)
_CLAUSE = re.compile(
    r"[,;]?\s{1,4}(?:and|but|so)\s{1,4}(?=(?:I|I'm|I've|my|we|our|please|remember|remind|call|always|never)\b)|;\s+",
    re.IGNORECASE,
)
_SECRET = re.compile(r"\b(?:password|passphrase|secret|token|api[ -]?key|credential|credit card|pin)\b", re.IGNORECASE)
_SUPPOSING = re.compile(r"\A(?:if|suppose|imagine|say|unless|when)\b", re.IGNORECASE)
_LEADING = re.compile(
    r"\A(?:(?:hi|hello|hey|ok(?:ay)?|well|please|also|yes|by the way|btw|fyi|oh|and|but|so)\b[,!]?\s+)+",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\A(?:no|nope|wrong|not quite|actually|correction|sorry)\b[,:.!]?\s+(?:actually,?\s+)?(.+)",
    re.IGNORECASE | re.DOTALL,
)
_SHOULD = re.compile(r"\A(?:it|that|this|they|(.{2,60}?)) should (?:really |actually )?be (.+)", re.IGNORECASE)
_ACTION = re.compile(
    r"\b(?:(?:remember|don't forget) (?:to|that (?:I|we) (?:need|have) to)|remind (?:me|us) to|todo:)\s+(.+)",
    re.IGNORECASE,
)
_THAT = re.compile(r"\A(?:remember|note|keep in mind|don't forget|make a note) that\s+(.+)", re.IGNORECASE)
_HOW_MUCH = r"(?:really |much |always |usually )?"
_NO_TRAIT = r"(?!(?:question|point|guess|problem|understanding|bad)\b)"
_NOTHING = r"(?!(?:it|that|this|how|you|to know)\b)"
_PERSONS_NAME = r"(?!Sorry|Fine|Not|Ok)[A-Z][a-z'-]+(?: [A-Z][a-z'-]+)?"
_STATEMENTS = tuple(
    (kind, re.compile(pattern), template)
    for kind, pattern, template in (
        ("FACT", r"(?i:\bmy name(?:'s| is)) \"?([^\s,.;!?\"]+(?: [A-Z][\w'-]*){0,3})", "The user's name is {}."),
        ("FACT", rf"\AI(?:'m| am) ({_PERSONS_NAME})\Z", "The user's name is {}."),
        ("FACT", r"(?i:\bcall me) ([A-Z][\w'-]*)", "The user's preferred name is {}."),
        ("FACT", r"(?i)\bI(?:'m| am) (an? (?!bit|little|lot|few|hour)\w.+)", "The user is {}."),
        (
            "FACT",
            r"(?i)\bI(?:'m| am) ((?:from|allergic to|based in|vegan|vegetarian)\b.*)",
            "The user is {}.",
        ),
        ("FACT", r"(?i)\bI live in (.+)", "The user lives in {}."),
        ("FACT", r"(?i)\bI work ((?:at|as|for|in|on)\b.+)", "The user works {}."),
        (
            "PREFERENCE",
            rf"(?i)\bI(?:'d| would)? {_HOW_MUCH}(prefer|(?<!would )(?<!'d )like|love|hate|dislike)\s+{_NOTHING}(.+)",
            "The user {0}s {1}.",
        ),
        ("PREFERENCE", rf"(?i)\bI (?:do not|don't) like {_NOTHING}(.+)", "The user does not like {}."),
        ("PREFERENCE", r"(?i)\bI (always|never) (want|use)\s+(.+)", "The user {0} {1}s {2}."),
        ("PREFERENCE", r"(?i)\A((?:always|never) (?!mind\b)\w.+)", "The user asks: {}."),
        ("FACT", r"(?i)\bwe use (.+)", "The user's team uses {}."),
        ("FACT", r"(?i)\bwe decided (.+)", "The user's team decided {}."),
        (
            "FACT",
            rf"(?i)\b(my|our) {_NO_TRAIT}([\w' -]{{1,40}}?) (is|are|was) (.+)",
            "{0} {1} {2} {3}.",
        ),
    )
)
_THIRD_PERSON = {
    "i'm": "the user is", "i am": "the user is", "i": "the user", "me": "the user", "my": "the user's",
    "mine": "the user's", "we": "the team", "us": "the team", "our": "the team's",
}  # fmt: skip
_PERSON = re.compile(rf"\b(?:{'|'.join(_THIRD_PERSON)})\b", re.IGNORECASE)
_INSTALL = re.compile(
    r"\b(pip3?|uv pip|npm|pnpm|yarn|apt-get|apt|cargo|gem|brew)\s+"
    r"(?:-\S+\s+)*(?:install|i|add)\b([^&;|\n\"\\<>]*)"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: `quote` is verbatim in turn `turn_id`; `detail` is a path or package names."""

    type: str
    turn_id: str
    content: str
    quote: str
    detail: str = ""


def findings(turn: Turn) -> Iterator[Finding]:
    """Yield the findings of one turn; none when no person asked for the turn."""
    if turn.origin != "user":
        return
    for sentence in _SENTENCE.split(_PASTED.sub("\n", turn.user)):
        for clause in _CLAUSE.split(sentence):
            if found := _from_clause(clause.strip(), turn.id):
                yield found
    for call in turn.tools:
        if not call.is_error:
            yield from _from_tool(call, turn.id)


def _from_clause(clause: str, turn_id: str) -> Finding | None:
    said = clause.rstrip(".!? ")
    if _SECRET.search(said) or _SUPPOSING.match(said):
        return None
    if found := _ACTION.search(said):
        return _finding("ACTION", turn_id, f"{_third_person(found[1])}.", found[0])
    if clause.endswith("?"):
        return None
    plain = _LEADING.sub("", said)
    if refused := _REFUSAL.match(plain):
        return _correction(refused[1], plain, turn_id)
    if told := _THAT.match(plain):
        return _statement(told[1], plain, turn_id) or _finding("FACT", turn_id, f"{_third_person(told[1])}.", plain)
    return _statement(plain, plain, turn_id)


def _correction(rest: str, quote: str, turn_id: str) -> Finding | None:
    if should := _SHOULD.match(rest):
        # The curator may resolve "it" from the corrected learning.
        subject, value = should[1] or "It", should[2]
        return _finding("CORRECTION", turn_id, f"{_third_person(subject)} should be {value}.", quote, value)
    stated = _statement(rest, quote, turn_id)
    return _finding("CORRECTION", turn_id, stated.content, quote) if stated else None


def _statement(said: str, quote: str, turn_id: str) -> Finding | None:
    for kind, pattern, template in _STATEMENTS:
        if found := pattern.search(said):
            # Names stay as they are; the rest is put into the third person.
            parts = [part if "name" in template else _lower_person(part) for part in found.groups()]
            return _finding(kind, turn_id, template.format(*parts), quote)
    if should := _SHOULD.match(said):
        subject = should[1]
        if subject and said == quote:
            return _finding("PREFERENCE", turn_id, f"{_third_person(subject)} should be {should[2]}.", quote)
    return None


def _finding(kind: str, turn_id: str, content: str, quote: str, detail: str = "") -> Finding:
    """Return a finding that fits the one-line response format; a cut quote is still verbatim."""
    flat = " ".join(content.replace("|", "/").split())[:_LONGEST_CONTENT]
    short = max(quote.split('"'), key=len)
    return Finding(kind, turn_id, flat[:1].upper() + flat[1:], short[:_LONGEST_QUOTE].strip(), detail)


def _third_person(text: str) -> str:
    changed = _lower_person(text).strip().rstrip(".")
    return changed[:1].upper() + changed[1:]


def _lower_person(text: str) -> str:
    return _PERSON.sub(lambda found: _THIRD_PERSON[found[0].lower()], text)


def _from_tool(call: ToolCall, turn_id: str) -> Iterator[Finding]:
    path = call.input.get("file_path")
    if call.name == "Write" and isinstance(path, str) and path in call.raw_input:
        yield _finding("FACT", turn_id, f"The file {PurePosixPath(path).name} was written to {path}.", path, path)
    command = call.input.get("command")
    if call.name == "Bash" and isinstance(command, str):
        for found in _INSTALL.finditer(command):
            names = [word.strip("'\"") for word in found[2].split() if not word.startswith("-")]
            quote = found[0].strip()
            if names and quote in call.raw_input:
                listed = ", ".join(names)
                yield _finding("TOOL_INSTALL", turn_id, f"Installed {listed} with {found[1]}.", quote, listed)
