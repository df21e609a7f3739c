"""The fake model as memory curator: a batch of turns in, a response in the curator's real format out.

Pure. It learns only from plain statements of a person.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bridge.fake_model.words import normalised, significant

_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_LINE_NUMBER = re.compile(r"^[0-9]+\| ?", re.MULTILINE)
_REFUSED = re.compile(r"<refused>.*?</refused>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Turn:
    """One observation; `origin` is "user" if a person asked for it."""

    id: str
    origin: str
    user: str


@dataclass(frozen=True, slots=True)
class KnownLearning:
    """An open learning in the batch."""

    id: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of a request to the curator."""

    turns: tuple[Turn, ...]
    learnings: tuple[KnownLearning, ...]
    #: Contents of curated files by name.
    files: dict[str, str]


def parse_batch(text: str) -> Batch:
    """Parse the user content of a curation request; unknown parts are ignored."""
    # Drop explanations of refused answers: fixed rules would repeat the answer.
    text = _REFUSED.sub("", text)
    return Batch(
        turns=tuple(_turn(attributes, content) for attributes, content in _elements("turn", text)),
        learnings=tuple(
            KnownLearning(attributes["id"], attributes["type"], html.unescape(content).strip())
            for attributes, content in _elements("learning", text)
        ),
        files={
            attributes["name"]: _LINE_NUMBER.sub("", html.unescape(content).strip("\n"))
            for attributes, content in _elements("memory_file", text)
        },
    )


def _elements(tag: str, text: str) -> Iterator[tuple[dict[str, str], str]]:
    for found in re.finditer(rf"<{tag}\b([^>]*)>(.*?)</{tag}>", text, re.DOTALL):
        yield {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(found[1])}, found[2]


def _turn(attributes: dict[str, str], content: str) -> Turn:
    user = next((said for _, said in _elements("user", content)), "")
    return Turn(attributes["id"], attributes.get("origin", "user"), html.unescape(user).strip())


# Words that many preferences share say nothing about their topic.
_GENERIC = frozenset({"prefer", "like", "love", "hate", "dislike", "want", "use", "ask", "should", "never", "always"})
_SAME_TOPIC = 0.5
_SUBJECT = re.compile(r"\A(.*?\b(?:is|are|was|lives in|works (?:at|as|for|in|on)))\s", re.IGNORECASE)
_BULLET = re.compile(r"\A\s*[-*]\s+")
_TASTE = "The user prefers "
_NO = re.compile(r"no(?:pe)?\b", re.IGNORECASE)


def kinship(one: str, other: str) -> float:
    """Return from 0 to 1 how much two statements are about the same thing."""
    left, right = significant(one) - _GENERIC, significant(other) - _GENERIC
    return len(left & right) / min(len(left), len(right)) if left and right else 0.0


def related(one: str, other: str) -> bool:
    """Return whether a correction `one` may replace the statement `other`."""
    return kinship(one, other) >= _SAME_TOPIC


_FIRST_WORDS = 3


class FileDraft:
    """A draft of a curated file; `edits()` returns the changes, each with its evidence."""

    def __init__(self, name: str, content: str) -> None:
        self.name = name
        self._lines = content.rstrip().splitlines()
        #: Findings by the index of the line that they replace.
        self._replaced: dict[int, Finding] = {}
        #: Added findings with their headings.
        self._added: list[tuple[str, Finding]] = []

    def add(self, heading: str, found: "Finding") -> None:
        """Add a finding under `## heading`, unless it is known, or replace the line about the same subject."""
        lines = (*self._statements().values(), *(new.content for _, new in self._added))
        if normalised(found.content) not in {normalised(line) for line in lines}:
            self._put(lambda line: same_subject(found.content, line), heading, found)

    def correct(self, heading: str, replaced: str, found: "Finding") -> None:
        """Replace the line about the same topic by a finding, or add it under `heading`."""
        old = normalised(replaced)
        self._put(lambda line: normalised(line) == old if old else replaces(found, line), heading, found)

    def _put(self, fits: Callable[[str], bool], heading: str, found: "Finding") -> None:
        for index, line in self._statements().items():
            if fits(line):
                self._replaced[index] = found
                return
        self._added = [each for each in self._added if not fits(each[1].content)]
        self._added.append((heading, found))

    def edits(self) -> str:
        """Return the `*_MD_EDIT:` part of a response; empty without changes."""
        changes = [
            f"REPLACE {self._name(index)} | {_cited(found)}"
            for index, found in self._replaced.items()
            if f"- {found.content}" != self._lines[index]
        ]
        changes += [f"ADD {heading} | {_cited(found)}" for heading, found in self._added]
        return "\n".join([f"{self.name.removesuffix('.md').upper()}_MD_EDIT:", *changes, ""]) if changes else ""

    def _name(self, index: int) -> str:
        """Return the number and the first words of a line, by which an edit names the line."""
        return f'{index + 1} "{" ".join(self._lines[index].split("|")[0].split()[:_FIRST_WORDS])}"'

    def _statements(self) -> dict[int, str]:
        """Return the list items, without their marks, by line index."""
        return {
            index: self._replaced[index].content if index in self._replaced else _BULLET.sub("", line).strip()
            for index, line in enumerate(self._lines)
            if _BULLET.match(line)
        }


def same_subject(one: str, other: str) -> bool:
    """Return whether two statements say the same of somebody or something, with another value."""
    left, right = _SUBJECT.match(one), _SUBJECT.match(other)
    # "The user is ..." may be said of many things; "The user's name is ..." only of one.
    return bool(left and right and left[1].lower() == right[1].lower() and left[1].lower() != "the user is")


def replaces(found: "Finding", other: str) -> bool:
    """Return whether a finding takes the place of another statement.

    A fact does so with the same subject, a correction with the same topic. "No, I prefer X." needs no topic.
    """
    if found.type == "CORRECTION":
        is_other_taste = found.content.startswith(_TASTE) and other.startswith(_TASTE)
        return related(found.content, other) or (is_other_taste and _NO.match(found.quote) is not None)
    return found.type == "FACT" and same_subject(found.content, other)


def _cited(found: "Finding") -> str:
    """Return a new line with the turn and the quote that prove it."""
    return f'[t{found.turn_id}] - {found.content} | "{found.quote}"'


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
    r"\A(?:(?:hi|hello|hey|ok(?:ay)?|well|please|also|yes|by the way|btw|fyi|oh|and|but|so)\b[,!]?\s+)+", re.IGNORECASE
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
# "I don't remember that" asks for nothing.
_OFF_RECORD = re.compile(
    r"\boff the record\b|(?:\A|[.,;:!?\n-]|\b(?:please|but|and|so|just))\s*(?:don't|do not) "
    r"(?:remember|note|store|save|keep|memori[sz]e|write down|pass on) (?:this|that|it|what|any of)\b",
    re.IGNORECASE,
)
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
        ("FACT", r"(?i)\bI(?:'m| am) ((?:from|allergic to|based in|vegan|vegetarian)\b.*)", "The user is {}."),
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
        ("FACT", rf"(?i)\b(my|our) {_NO_TRAIT}([\w' -]{{1,40}}?) (is|are|was) (.+)", "{0} {1} {2} {3}."),
    )
)
_THIRD_PERSON = {
    "i'm": "the user is", "i am": "the user is", "i": "the user", "me": "the user", "my": "the user's",
    "mine": "the user's", "we": "the team", "us": "the team", "our": "the team's",
}  # fmt: skip
_PERSON = re.compile(rf"\b(?:{'|'.join(_THIRD_PERSON)})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement found in a turn: `quote` is verbatim in turn `turn_id`; `detail` is the value of "It should be"."""

    type: str
    turn_id: str
    content: str
    quote: str
    detail: str = ""


def findings(turn: Turn) -> Iterator[Finding]:
    """Yield the statements found in one turn; none when no person asked for the turn."""
    if turn.origin != "user":
        return
    for clause in _clauses(turn.user):
        if found := _from_clause(clause, turn.id):
            yield found


def asks_to_forget(message: str) -> bool:
    """Return whether a message asks not to keep what it says."""
    return _OFF_RECORD.search(message) is not None


def _clauses(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.split(_PASTED.sub("\n", text)):
        yield from (clause.strip() for clause in _CLAUSE.split(sentence))


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
    should = _SHOULD.match(said)
    if should and should[1] and said == quote:
        return _finding("PREFERENCE", turn_id, f"{_third_person(should[1])} should be {should[2]}.", quote)
    return None


def _finding(kind: str, turn_id: str, content: str, quote: str, detail: str = "") -> Finding:
    """Return a finding that fits the one-line response format; a cut quote is still verbatim."""
    flat = " ".join(content.replace("|", "/").split())[:_LONGEST_CONTENT]
    short = max(re.split(r'["|]', quote), key=len)
    return Finding(kind, turn_id, flat[:1].upper() + flat[1:], short[:_LONGEST_QUOTE].strip(), detail)


def _third_person(text: str) -> str:
    changed = _lower_person(text).strip().rstrip(".")
    return changed[:1].upper() + changed[1:]


def _lower_person(text: str) -> str:
    return _PERSON.sub(lambda found: _THIRD_PERSON[found[0].lower()], text)


_FILES = ("user.md", "context.md")
#: The file and heading of each type of finding.
_PLACES = {
    "FACT": ("user.md", "Profile"),
    "PREFERENCE": ("user.md", "Preferences"),
    "CORRECTION": ("user.md", "Corrections"),
    "ACTION": ("context.md", "Active tasks"),
}
_VALUE_OF = re.compile(r"\A(.*\b(?:is|are|was|be|written|called|named|as|in|at))\s+.+\Z", re.IGNORECASE | re.DOTALL)


def curate(text: str) -> str:
    """Answer the user content of a curation request; `NONE` when there is nothing to learn."""
    batch = parse_batch(text)
    learned = _new_findings(batch)
    lines = [f"OFF_RECORD [t{turn.id}]" for turn in batch.turns if turn.origin == "user" and asks_to_forget(turn.user)]
    if not learned and not lines:
        return "NONE"
    drafts = {name: FileDraft(name, batch.files.get(name, "")) for name in _FILES}
    for new in learned:
        old = _closest(new, batch.learnings)
        replaced = old.text if old else ""
        found = spelt_out(new, replaced)
        supersedes = f" supersedes L{old.id}:" if old else ""
        lines.append(f'{found.type} [t{found.turn_id}]{supersedes} {found.content} | "{found.quote}"')
        name, heading = _PLACES[found.type]
        if found.type == "CORRECTION":
            drafts[name].correct(heading, replaced, found)
        else:
            drafts[name].add(heading, found)
    edits = [part for draft in drafts.values() if (part := draft.edits())]
    return "\n".join([*lines, "", *edits]).rstrip() + "\n"


def _new_findings(batch: Batch) -> list[Finding]:
    """Return the findings of the batch that are not known yet, without repeats and those that later ones replace."""
    known = {normalised(learning.text) for learning in batch.learnings}
    new: list[Finding] = []
    for turn in batch.turns:
        for found in findings(turn):
            if normalised(found.content) not in known:
                known.add(normalised(found.content))
                new = [*(each for each in new if each.type == "ACTION" or not replaces(found, each.content)), found]
    return new


def _closest(found: Finding, learnings: Iterable[KnownLearning]) -> KnownLearning | None:
    """Return the most related learning that a finding replaces, the newest of equals, or None."""
    candidates = [each for each in learnings if each.type != "ACTION" and replaces(found, each.text)]
    return max(candidates, key=lambda each: (kinship(found.content, each.text), int(each.id)), default=None)


def spelt_out(found: Finding, old: str) -> Finding:
    """Resolve "it": "It should be Y" becomes the corrected statement `old` with Y as its new value."""
    head = _VALUE_OF.match(old) if found.content.startswith("It should be ") else None
    return replace(found, content=f"{head[1]} {found.detail}.") if head else found


_MESSAGE = re.compile(r'<message(?: id="t(?P<id>\d+)"[^>]*)?>(?P<text>.*?)</message>', re.DOTALL)
_END_OF_MESSAGES = "</messages>"
_LINE = re.compile(r"^(?P<number>\d+)\. (?P<proposed>(?P<kind>[a-z]+): (?P<text>.*))$", re.MULTILINE)
_OLD = re.compile(r"\A(?P<new>.*) \(instead of: (?P<old>.*)\)\Z")
#: Types of findings that carry a kind of line; any type carries the other kinds.
_TYPES = {
    "preference": {"PREFERENCE"},
    "correction": {"CORRECTION"},
    "action": {"ACTION"},
    "supersede": {"CORRECTION", "FACT"},
}


@dataclass(frozen=True, slots=True)
class ProposedLine:
    """A numbered line of a request; `proposed` is the whole line, with its kind."""

    number: str
    proposed: str
    kind: str
    text: str


def verify(request: str) -> str:
    """Answer a verification request: a line passes if the fake curator would learn it from the messages."""
    shown = request.partition(_END_OF_MESSAGES)[0]
    messages = [Turn(found["id"] or "", "user", html.unescape(found["text"])) for found in _MESSAGE.finditer(shown)]
    return answer((line, _flaw(line, messages)) for line in proposed_lines(request))


def proposed_lines(request: str) -> Iterator[ProposedLine]:
    """Yield the lines to verify. Messages are escaped, so none of them can end their element."""
    for found in _LINE.finditer(request.partition(_END_OF_MESSAGES)[2]):
        yield ProposedLine(found["number"], found["proposed"], found["kind"], found["text"])


def answer(flaws: Iterator[tuple[ProposedLine, str | None]]) -> str:
    """Return the verifier's answer: for each line yes, or no with the flaw."""
    return "\n".join(f"{line.number} {'yes' if flaw is None else f'no {flaw}'}" for line, flaw in flaws)


def _flaw(line: ProposedLine, messages: Sequence[Turn]) -> str | None:
    """Return why the messages do not support a proposed line, or None if they do."""
    if line.kind == "keep":
        asked = any(f"t{turn.id}" == line.text and asks_to_forget(turn.user) for turn in messages)
        return "the user asks not to keep it" if asked else None
    if line.kind in {"done", "delete"}:
        # The fake curator closes no action, and deletes no line.
        return "the messages do not end it"
    changed = _OLD.match(line.text)
    new, old = (changed["new"], changed["old"]) if changed else (line.text, None)
    types = _TYPES.get(line.kind)
    said = [found for turn in messages for found in findings(turn) if types is None or found.type in types]
    return None if any(_carries(found, new, old) for found in said) else "the messages do not say it"


def _carries(found: Finding, new: str, old: str | None) -> bool:
    """Return whether the fake curator would propose `new` for this finding, in place of `old` if that is given."""
    if old is not None and not (same_subject(new, old) or related(new, old) or replaces(found, _BULLET.sub("", old))):
        return False
    statement = normalised(new)
    if found.content.startswith("It should be "):
        # "It" is what the old line or learning says, which is not always shown.
        return statement.endswith(normalised(found.detail))
    return statement == normalised(found.content)
