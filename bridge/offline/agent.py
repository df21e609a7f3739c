"""The fake model as the agent: plain English text in, content blocks of the Messages API out.

Pure and deterministic, except for "in 10 minutes". Each rule is a function `(text, request) -> blocks or None`; the
first one that matches the person's last message answers. Every text says that it comes from a stand-in.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from bridge.offline.canvas import canvas_call
from bridge.offline.known_cards import known_cards
from bridge.offline.recall import STAND_IN, is_about_memory, is_question, recall
from bridge.offline.reminders import reminder
from bridge.offline.report import compacted, finished, report, side_answer
from bridge.offline.request import Request
from bridge.offline.words import significant
from sprite.protocol.tools import LIST_CALL, SCHEDULE_CALL, SEARCH_CALL

Blocks = list[dict[str, Any]]
Rule = Callable[[str, Request], Blocks | None]

# A command must begin a sentence or a polite request: "I run a shop" is none.
_ASK = r"(?:\A|[.!?;:,\n]\s*|\b(?:and|then|please|now|can you|could you|just|ok)\s+)"
_CODE = r"`+([^`]+)`+"
_RUN_CODE = re.compile(rf"{_ASK}(?:run|execute)\b[^`\n]*?{_CODE}", re.IGNORECASE)
_RUN_NAMED = re.compile(rf"{_ASK}(?:run|execute) (?:the |this )?(?:shell |bash )?command:?\s+(.+)", re.IGNORECASE)
_RUN_WORDS = re.compile(
    rf"{_ASK}(?:run|execute):?\s+(?!(?:the|a|an|my|our|your|it|this|that|these|them|into|out|away|and|or|for|off)\b)"
    r"(.+?)(?=\s+and (?:then )?(?:tell|show|say|report|give)\b|\n|\Z)",
    re.IGNORECASE,
)
_WAIT = re.compile(rf"{_ASK}(?:wait|sleep)(?: for)? (\d+(?:\.\d+)?)", re.IGNORECASE)
_DELEGATE = re.compile(
    r"\b(?:start|launch|spawn|use|create|run) (?:an?|another|the) (?:new )?(?:background |general-purpose )*"
    r"(?:sub-?agent|agent|task)\s*(?:(?:to|that|which|for)\b|:)\s*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_FILE_NAME = r"[`\"']?([^\s`\"']+?)[`\"']?"
_WRITE = re.compile(
    rf"{_ASK}(?:write|create|make|save) (?:an? |the |another )?(?:new )?(?:text |markdown )?file "
    rf"(?:called |named )?{_FILE_NAME}[.!]?(?:[\s,]+(?:with|containing|saying|that (?:says|contains))\b"
    r"(?: the)?(?: text| contents?| words)?\b:?\s*(.*))?\Z",
    re.IGNORECASE | re.DOTALL,
)
_SAVE = re.compile(
    rf"{_ASK}(?:write|save|put) (.{1, 4000}?) (?:to|into|in) (?:the )?(?:a )?file {_FILE_NAME}[.!]?\Z",
    re.IGNORECASE | re.DOTALL,
)
_READ_FILE = re.compile(
    rf"{_ASK}(?:read|open|cat|show)(?: me)?(?: the)?(?: contents? of)?(?: the)? file "
    rf"{_FILE_NAME}[.!?]?(?:\s|\Z)",
    re.IGNORECASE,
)
_READ_PATH = re.compile(rf"{_ASK}(?:read|cat) [`\"']?([^\s`\"']*[./][^\s`\"']*?)[`\"']?[.!?]?(?:\s|\Z)", re.IGNORECASE)
_LIST = re.compile(r"\blist (?:me )?(?:all )?(?:the |my |your )?files(?: in (\S+?))?[.!?]?(?:\s|\Z)", re.IGNORECASE)
_SEARCH = re.compile(
    r"\bsearch (?:in |through )?(?:your |my |the )?memory (?:for|about)\s+(.+)|\bsearch_memory\s+(.+)",
    re.IGNORECASE,
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
_SECOND_PERSON = {
    "i am": "you are", "i'm": "you are", "i was": "you were", "i've": "you have", "i'd": "you would",
    "i": "you", "me": "you", "my": "your", "mine": "yours", "we": "you", "us": "you", "our": "your",
}  # fmt: skip
_PERSON = re.compile(rf"\b(?:{'|'.join(_SECOND_PERSON)})\b", re.IGNORECASE)
_LONGEST_ECHO = 300
_HELP = (
    "I follow a few fixed rules: ask me to run a command (run `ls`), write or read a file, make a table of "
    "apples 3, pears 5, search memory, remind you tomorrow at 9 of something, or say what I remember."
)


def answer(request: Request) -> Blocks:
    """Answer any request except the curator's."""
    if request.kind == "compaction":
        return _say(compacted(request))
    if request.kind == "side" and (said := side_answer(request)) is not None:
        return _say(said)
    if request.has_new_text:
        before = _say(report(request.outcomes)) if request.outcomes else []
        return before + _reply(request)
    if request.outcomes:
        return _say(report(request.outcomes))
    return _say(finished(request) if request.kind == "notification" else f"Go on. {STAND_IN}")


def _reply(request: Request) -> Blocks:
    if due := _DUE.search(request.user_text):
        return _by_rule(due[1].strip(), request, _WORK_RULES) or _say(f"It is time: {due[1].strip()}\n\n{STAND_IN}")
    if blocks := _by_rule(request.user_text.strip(), request, _RULES):
        return blocks
    return _say(f"I am Sprite's built-in stand-in, not a language model. {_HELP} {STAND_IN}")


def _by_rule(text: str, request: Request, rules: Iterable[Rule]) -> Blocks | None:
    """Return the answer of the first rule that matches the text."""
    return next((blocks for rule in rules if (blocks := rule(text, request)) is not None), None)


def _run(text: str, request: Request) -> Blocks | None:
    if found := _RUN_CODE.search(text):
        return _bash(request, found[1].strip())
    if found := _RUN_NAMED.search(text) or _RUN_WORDS.search(text):
        return _bash(request, re.sub(r"(?:\s+please)?[.!?]?\Z", "", found[1].strip(), flags=re.IGNORECASE))
    return None


def _wait(text: str, request: Request) -> Blocks | None:
    found = _WAIT.search(text)
    return _bash(request, f"sleep {found[1]}", f"Wait {found[1]} seconds") if found else None


def _list_files(text: str, request: Request) -> Blocks | None:
    found = _LIST.search(text)
    return _bash(request, f"ls -la {found[1] or ''}".strip(), "List files") if found else None


def _write(text: str, request: Request) -> Blocks | None:
    if found := _WRITE.search(text):
        name, content = found[1], found[2] or ""
    elif found := _SAVE.search(text):
        name, content = found[2], found[1]
    else:
        return None
    return _call(request, "Write", {"file_path": _absolute(name, request), "content": _unquoted(content)})


def _read(text: str, request: Request) -> Blocks | None:
    found = _READ_FILE.search(text) or _READ_PATH.search(text)
    return _call(request, "Read", {"file_path": _absolute(found[1], request)}) if found else None


def _delegate(text: str, request: Request) -> Blocks | None:
    found = _DELEGATE.search(text)
    if not found:
        return None
    # Versions of the CLI use both names for this tool.
    tool = "Agent" if "Agent" in request.tools else "Task"
    job = found[1].strip()
    brief = " ".join(job.split()[:5])
    return _call(request, tool, {"description": brief, "prompt": job, "subagent_type": "general-purpose"})


def _canvas(text: str, request: Request) -> Blocks | None:
    wanted = canvas_call(text, known_cards(request))
    if not wanted:
        return None
    tool, arguments = wanted
    if tool not in request.tools:
        return _say(f"The canvas is not available here. {STAND_IN}")
    if arguments.get("card_id") == "":
        return _say(f"I know of no card on the canvas yet. {STAND_IN}")
    return _call(request, tool, arguments)


def _search(text: str, request: Request) -> Blocks | None:
    found = _SEARCH.search(text)
    if not found:
        return None
    return _call(request, SEARCH_CALL, {"query": (found[1] or found[2]).strip().rstrip(".?!")})


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
        return _say(f"This is what I have in front of me:\n{listed}\n{STAND_IN}")
    if significant(text) and SEARCH_CALL in request.tools:
        return _call(request, SEARCH_CALL, {"query": text.rstrip("? ")})
    if is_about_memory(text):
        return _say(f"I know nothing about that yet. Ask me to search memory for it. {STAND_IN}")
    return None


def _acknowledge(text: str, _request: Request) -> Blocks | None:
    if is_question(text) or not _STATEMENT.search(text):
        return None
    echo = _PERSON.sub(lambda found: _SECOND_PERSON[found[0].lower()], " ".join(text.split()))[:_LONGEST_ECHO]
    return _say(f"Noted: {echo.rstrip('.! ')}. {STAND_IN}")


def _greet(text: str, _request: Request) -> Blocks | None:
    return _say(f"Hello! {_HELP} {STAND_IN}") if _GREETING.match(text) else None


#: Rules that also apply to the text of a due action, without a message of a person.
_WORK_RULES: tuple[Rule, ...] = (_delegate, _search, _list_actions, _canvas, _write, _run, _wait, _list_files, _read)
_RULES: tuple[Rule, ...] = (_schedule, *_WORK_RULES, _remember, _acknowledge, _greet)


def _say(text: str) -> Blocks:
    return [{"type": "text", "text": text}]


def _call(request: Request, tool: str, arguments: dict[str, Any]) -> Blocks:
    if tool not in request.tools:
        return _say(f"The tool {tool} is not available here. {STAND_IN}")
    return [{"type": "tool_use", "name": tool, "input": arguments}]


def _bash(request: Request, command: str, description: str = "Run the command asked for") -> Blocks:
    return _call(request, "Bash", {"command": command, "description": description})


def _absolute(name: str, request: Request) -> str:
    return name if name.startswith("/") or not request.cwd else f"{request.cwd.rstrip('/')}/{name}"


def _unquoted(text: str) -> str:
    """Remove one pair of quotes or backticks."""
    stripped = text.strip()
    found = re.fullmatch(r"(?:([\"'`])(.*)\1|\u201c(.*)\u201d)[.!]?", stripped, re.DOTALL)
    if not found:
        return stripped
    return found[2] if found[2] is not None else found[3]
