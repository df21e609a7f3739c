"""Answer from memory: find the lines in the prompt that share words with the question.

Reads the delimited parts of the boot prompt (`<memory_file name="user.md">`, `<open_actions>`, `<recent_turns>`),
memory sent in mid-conversation, and earlier messages. Pure.
"""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bridge.offline.request import Request
from bridge.offline.words import normalised, significant

STAND_IN = "(offline stand-in model)"

_QUESTION = re.compile(
    r"\A\W*(?:(?:and|so|ok|hey|hi|please|now)\b[\s,]*)*"
    r"(?:what|who|whom|whose|when|where|which|why|how|do|does|did|is|are|am|was|were|have|has"
    r"|remind me (?:what|who|when|where))\b",
    re.IGNORECASE,
)
_ABOUT_MEMORY = re.compile(r"\b(?:remember|recall|know about|remind me|my|me|our|us|we|i)\b", re.IGNORECASE)
_EVERYTHING = re.compile(
    r"\bknow about (?:me|us)\b|\bremember(?: about (?:me|us))?\s*\??\s*\Z|\bwho am i\b", re.IGNORECASE
)
_PART = re.compile(r"<(memory_file|open_actions|recent_turns)\b([^>]*)>(.*?)</\1>", re.DOTALL)
_NAME = re.compile(r'\bname="([^"]*)"')
_TAG = re.compile(r"</?[a-zA-Z_][^>]*>")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_DEPLOYERS = {"soul.md", "os.md"}
_MOST_LINES = 8
_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    heading: str
    source: str


def is_question(text: str) -> bool:
    """Return whether `text` is a question."""
    return text.rstrip().endswith("?") or bool(_QUESTION.match(text))


def is_about_memory(text: str) -> bool:
    """Return whether a question is about the person or earlier conversations, so that memory may answer it."""
    return bool(_ABOUT_MEMORY.search(text))


def recall(question: str, request: Request) -> list[str]:
    """Return the remembered lines that answer `question`, best first; empty when nothing fits."""
    wanted = significant(question)
    lines = [*_memory(request), *_conversation(request)]
    if _EVERYTHING.search(question):
        known = [
            line.text
            for line in lines
            if line.source == "user.md"
            or (line.source in {"conversation", "recent_turns"} and is_about_memory(line.text))
        ]
        return list(dict.fromkeys(known))[:_MOST_LINES]
    scored: dict[str, tuple[float, str]] = {}
    for line in lines:
        score = len(wanted & significant(line.text)) + len(wanted & significant(line.heading)) / 2
        if score > 0:
            scored.setdefault(normalised(line.text), (score, line.text))
    best = max((score for score, _ in scored.values()), default=0.0)
    # Lines with a much lower score only share a common word.
    chosen = [entry for entry in scored.values() if entry[0] > best / 2]
    return [text for _, text in sorted(chosen, key=lambda entry: -entry[0])][:_MOST_LINES]


def _memory(request: Request) -> Iterator[_Line]:
    """Yield the lines of every memory part; a file sent later replaces the one at boot."""
    parts: dict[str, str] = {}
    for tag, attributes, content in _PART.findall(f"{request.system}\n{request.context}"):
        name = _NAME.search(attributes)
        parts[name.group(1) if name else tag] = content
    for source, content in parts.items():
        if source not in _DEPLOYERS:
            yield from _lines(content, source)


def _lines(content: str, source: str) -> Iterator[_Line]:
    heading = ""
    untagged = _TAG.sub("\n", re.sub(r"<!--.*?-->", "", content, flags=re.DOTALL))
    for raw in untagged.splitlines():
        line = html.unescape(raw).strip()
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif significant(line) and STAND_IN not in line and not is_question(line):
            yield _Line(line.lstrip("-* ")[:_LONGEST_LINE], heading, source)


def _conversation(request: Request) -> Iterator[_Line]:
    """Yield the sentences before the question, and those that a compaction kept."""
    kept: Iterable[str] = (entry.text for entry in request.timeline if entry.kind == "summary")
    for text in (*kept, *request.user_texts[:-1]):
        for sentence in _SENTENCE.split(text):
            stated = sentence.strip().lstrip("-* ")
            if significant(stated) and not is_question(stated) and not stated.startswith(("<", "This session")):
                yield _Line(stated[:_LONGEST_LINE], "", "conversation")
