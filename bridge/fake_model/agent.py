"""The fake model as the agent: plain English text in, content blocks of the Messages API out.

Pure and deterministic, except for "in 10 minutes". Each rule is a function `(text, request) -> blocks or None`; the
first one that matches the person's last message answers.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from bridge.fake_model.request import Request, ToolOutcome
from bridge.fake_model.words import normalised, reminder, significant
from sprite.protocol.tools import LIST_CALL, OWN_TOOLS, SCHEDULE_CALL, SEARCH_CALL

#: First words of its replies, which it does not repeat as memories.
_OWN_WORDS = ("You: ", "Noted.", "This is what I have in front of me")

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
        elif significant(line) and not line.startswith(_OWN_WORDS) and not is_question(line):
            yield _Line(line.lstrip("-* ")[:_LONGEST_LINE], heading, source)


def _conversation(request: Request) -> Iterator[_Line]:
    """Yield the sentences before the question, and those that a compaction kept."""
    kept: Iterable[str] = (entry.text for entry in request.timeline if entry.kind == "summary")
    for text in (*kept, *request.user_texts[:-1]):
        for sentence in _SENTENCE.split(text):
            stated = sentence.strip().lstrip("-* ")
            if significant(stated) and not is_question(stated) and not stated.startswith(("<", "This session")):
                yield _Line(stated[:_LONGEST_LINE], "", "conversation")


_LONGEST_OUTPUT = 1500
_LONGEST_SUMMARY = 24_000  # characters; the newest words are kept
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)


def report(outcomes: Iterable[ToolOutcome]) -> str:
    """Return a short text about the results of the last tool calls."""
    return "\n\n".join(_outcome(outcome) for outcome in outcomes)


def _outcome(outcome: ToolOutcome) -> str:
    said = _REMINDER.sub("", outcome.text).strip()
    output = said if len(said) <= _LONGEST_OUTPUT else f"{said[:_LONGEST_OUTPUT]}... (cut)"
    if outcome.is_error:
        return f"{_named(outcome)} failed:\n{_fenced(output)}"
    if outcome.name in _TOLD:
        told, _, _ = output.partition("\nIts id ")
        # Two spaces keep a line's end in Markdown.
        return f"{_TOLD[outcome.name]}{told}".replace("\n", "  \n")
    if outcome.name == "Write":
        return f"{_named(outcome)} worked: the file is written."
    if outcome.name == _CREATE_CARD:
        return "The card is on the canvas."
    return f"{_named(outcome)} gave:\n{_fenced(output)}"


#: Tools whose results are shown unchanged, and the text before them.
_TOLD = {
    SEARCH_CALL: "My memory says:\n",
    LIST_CALL: "On the list:\n",
    SCHEDULE_CALL: "",
}
_CREATE_CARD = f"{OWN_TOOLS}create_card"


def _named(outcome: ToolOutcome) -> str:
    if outcome.name == "Bash":
        return f"The command `{outcome.input.get('command', '')}`"
    if verb := {"Read": "Reading", "Write": "Writing"}.get(outcome.name):
        return f"{verb} `{PurePosixPath(str(outcome.input.get('file_path', ''))).name}`"
    return f"The tool {outcome.name or 'of an earlier session'}"


def _fenced(output: str) -> str:
    return f"```\n{output}\n```"


def compacted(request: Request) -> str:
    """Return the summary for a compaction request: the person's messages, verbatim."""
    said = [entry.text for entry in request.timeline if entry.kind in {"summary", "user"}]
    return f"<summary>\n{chr(10).join(said)[-_LONGEST_SUMMARY:]}\n</summary>"


Blocks = list[dict[str, Any]]
Rule = Callable[[str, Request], Blocks | None]

# A command must begin a sentence or a polite request: "I run a shop" is none.
_ASK = r"(?:\A|[.!?;:,\n]\s*|\b(?:and|then|please|now|can you|could you|just|ok)\s+)"
_CODE = r"`+([^`]+)`+"
_RUN_CODE = re.compile(rf"{_ASK}(?:run|execute)\b[^`\n]*?{_CODE}", re.IGNORECASE)
_FILE_NAME = r"[`\"']?([^\s`\"']+?)[`\"']?"
_WRITE = re.compile(
    rf"{_ASK}(?:write|create|make|save) (?:an? |the |another )?(?:new )?(?:text |markdown )?file "
    rf"(?:called |named )?{_FILE_NAME}[.!]?(?:[\s,]+(?:with|containing|saying|that (?:says|contains))\b"
    r"(?: the)?(?: text| contents?| words)?\b:?\s*(.*))?\Z",
    re.IGNORECASE | re.DOTALL,
)
_READ_FILE = re.compile(
    rf"{_ASK}(?:read|open|cat|show)(?: me)?(?: the)?(?: contents? of)?(?: the)? file "
    rf"{_FILE_NAME}[.!?]?(?:\s|\Z)",
    re.IGNORECASE,
)
_SEARCH = re.compile(
    r"\bsearch (?:in |through )?(?:your |my |the )?memory (?:for|about)\s+(.+)|\bsearch_memory\s+(.+)", re.IGNORECASE
)
_OPEN_ACTIONS = re.compile(
    r"\b(?:list|show|draw|what (?:is|are)|what's)\b.{0,20}\b(?:open actions|actions|reminders|to-?dos?|on my list)\b",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    r"\b(?:my|our) [\w' -]{1,40}? (?:is|are|was)\b|\bcall me\b"
    r"|\bI(?:'m| am| live| work| prefer| like| love| hate| use| always| never)\b"
    r"|\bwe use\b|\bremember\b|\bremind me\b|\bit should be\b|\bshould be\b|\bactually\b|\bmake a note\b",
    re.IGNORECASE,
)
_DUE = re.compile(r"<due_action[^>]*>\n(.*?)\n</due_action>", re.DOTALL)
_GREETING = re.compile(r"\A\W*(?:hello|hi|hey|good (?:morning|afternoon|evening))\b", re.IGNORECASE)
_HELP = (
    "I follow a few fixed rules: ask me to run a command (run `ls`), write or read a file, make a table of "
    "apples 3, pears 5, search memory, remind you tomorrow at 9 of something, or say what I remember."
)


def answer(request: Request) -> Blocks:
    """Answer any request except the curator's."""
    if request.kind == "compaction":
        return _say(compacted(request))
    said = _say(report(request.outcomes)) if request.outcomes else []
    if request.has_new_text:
        return said + _reply(request)
    return said or _say("Go on.")


def _reply(request: Request) -> Blocks:
    if due := _DUE.search(request.user_text):
        return _by_rule(due[1].strip(), request, _WORK_RULES) or _say(f"It is time: {due[1].strip()}")
    unknown = _say(f"I am Sprite's built-in demo model: simple rules, no language model. {_HELP}")
    return _by_rule(request.user_text.strip(), request, _RULES) or unknown


def _by_rule(text: str, request: Request, rules: Iterable[Rule]) -> Blocks | None:
    return next((blocks for rule in rules if (blocks := rule(text, request)) is not None), None)


def _run(text: str, request: Request) -> Blocks | None:
    if found := _RUN_CODE.search(text):
        return _call(request, "Bash", {"command": found[1].strip(), "description": "Run the command asked for"})
    return None


def _write(text: str, request: Request) -> Blocks | None:
    if found := _WRITE.search(text):
        asked = {"file_path": _absolute(found[1], request), "content": _unquoted(found[2] or "")}
        return _call(request, "Write", asked)
    return None


def _read(text: str, request: Request) -> Blocks | None:
    found = _READ_FILE.search(text)
    return _call(request, "Read", {"file_path": _absolute(found[1], request)}) if found else None


def _canvas(text: str, request: Request) -> Blocks | None:
    drawn = card(text)
    return None if drawn is None else _call(request, _CREATE_CARD, drawn)


def _search(text: str, request: Request) -> Blocks | None:
    if found := _SEARCH.search(text):
        return _call(request, SEARCH_CALL, {"query": (found[1] or found[2]).strip().rstrip(".?!")})
    return None


def _schedule(text: str, request: Request) -> Blocks | None:
    asked = reminder(text) if SCHEDULE_CALL in request.tools else None
    return None if asked is None else _call(request, SCHEDULE_CALL, asked)


def _list_actions(text: str, request: Request) -> Blocks | None:
    return _call(request, LIST_CALL, {}) if LIST_CALL in request.tools and _OPEN_ACTIONS.search(text) else None


def _remember(text: str, request: Request) -> Blocks | None:
    if not is_question(text) or not (significant(text) or is_about_memory(text)):
        return None
    if lines := recall(text, request):
        listed = "\n".join(f"- {line}" for line in lines)
        return _say(f"This is what I have in front of me:\n{listed}")
    if significant(text) and SEARCH_CALL in request.tools:
        return _call(request, SEARCH_CALL, {"query": text.rstrip("? ")})
    if is_about_memory(text):
        return _say("I know nothing about that yet. Ask me to search memory for it.")
    return None


def _acknowledge(text: str, _request: Request) -> Blocks | None:
    return _say("Noted.") if _STATEMENT.search(text) and not is_question(text) else None


def _greet(text: str, _request: Request) -> Blocks | None:
    return _say(f"Hello! {_HELP}") if _GREETING.match(text) else None


#: Rules that also apply to the text of a due action, without a message of a person.
_WORK_RULES: tuple[Rule, ...] = (_search, _list_actions, _canvas, _write, _run, _read)
_RULES: tuple[Rule, ...] = (_schedule, *_WORK_RULES, _remember, _acknowledge, _greet)


def _say(text: str) -> Blocks:
    return [{"type": "text", "text": text}]


def _call(request: Request, tool: str, arguments: dict[str, Any]) -> Blocks:
    if tool not in request.tools:
        return _say(f"The tool {tool} is not available here.")
    return [{"type": "tool_use", "name": tool, "input": arguments}]


def _absolute(name: str, request: Request) -> str:
    # As os.md asks. The page lists this folder.
    name = name if "/" in name else f"artifacts/{name}"
    return name if name.startswith("/") or not request.cwd else f"{request.cwd.rstrip('/')}/{name}"


def _unquoted(text: str) -> str:
    stripped = text.strip()
    found = re.fullmatch(r"(?:([\"'`])(.*)\1|\u201c(.*)\u201d)[.!]?", stripped, re.DOTALL)
    return (found[2] or found[3] or "") if found else stripped


_NOUN = r"(?:(?:note|notes|document|table)\s+)?(?:card|table)|notes?"
_CREATE = re.compile(
    rf"\b(?:make|draw|create|show|build|add|put)\s+(?:me\s+|us\s+)?(?:up\s+)?(?:an?|another|the)\s+(?:new\s+|small\s+)?"
    rf"({_NOUN})\b(.*)",
    re.IGNORECASE | re.DOTALL,
)
_TITLE = re.compile(
    r"\b(?:titled|called|named|with (?:the )?title)\s+"
    r"(?:[\"'`\u201c](.+?)[\"'`\u201d]|(.+?)(?=\s+(?:with|of|containing|and)\b|[:,.\n]|\Z))",
    re.IGNORECASE | re.DOTALL,
)
_OPENING = re.compile(
    r"\A[\s:,.\u2013-]*(?:(?:to|of|for|with|containing|showing|that says|about)\b)?[\s:]*", re.IGNORECASE
)
_ITEMS = re.compile(r"\s*[,;\n]\s*(?:and\s+)?|\s+and\s+")
_PAIR = re.compile(r"(.*?\S)\s*(?:[:=]|\s)\s*([$\u20ac\u00a3]?-?\d[\d.,]*\s?\S{0,3})")
_COLUMNS = ["Item", "Value"]
_LONGEST_TITLE = 40


def card(text: str) -> dict[str, Any] | None:
    """Return the card that `text` asks for, or None."""
    found = _CREATE.search(text)
    if found is None:
        return None
    noun, rest = found[1].lower(), found[2]
    title = _TITLE.search(rest)
    kind, blocks = _content(_TITLE.sub("", rest, count=1), noun)
    name = (title[1] or title[2]).strip() if title else _default_title(blocks[-1])
    return {"title": name, "card_type": kind, "blocks": blocks}


def _content(rest: str, noun: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the card type and its blocks: a table for pairs with numbers, else a note."""
    said = _OPENING.sub("", rest).strip().rstrip(".!")
    items = [item for item in _ITEMS.split(said) if item.strip()]
    pairs = [_PAIR.fullmatch(item.strip()) for item in items]
    if "table" in noun or (pairs and all(pairs)):
        rows = [[pair[1], pair[2]] if pair else [item.strip(), ""] for item, pair in zip(items, pairs, strict=True)]
        return "table", [{"type": "table", "data": {"columns": _COLUMNS, "rows": rows}}]
    if "document" in noun:
        return "document", [{"type": "text", "data": {"content": said}}]
    return "notes", [{"type": "note", "data": {"content": said}}]


def _default_title(block: dict[str, Any]) -> str:
    data = block["data"]
    words = ", ".join(row[0] for row in data["rows"]) if "rows" in data else str(data["content"])
    title = words[:_LONGEST_TITLE].strip()
    return title[:1].upper() + title[1:] or "Untitled"
