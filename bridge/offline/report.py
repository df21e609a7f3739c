"""Answers to requests without a new message: tool results, finished tasks, compactions, titles.

Pure: parts of a request in, text out.
"""

import html
import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

import msgspec

from bridge.offline.recall import STAND_IN
from bridge.offline.request import Request, ToolOutcome
from sprite.protocol.tools import LIST_CALL, OWN_TOOLS, READ_CANVAS_CALL, SCHEDULE_CALL, SEARCH_CALL

_LONGEST_OUTPUT = 1500
_LONGEST_TITLE_WORDS = 6
_LONGEST_SUMMARY = 24_000  # characters; the newest words are kept
_TASK_PART = re.compile(r"<(summary|result)>(.*?)</\1>", re.DOTALL)
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_KEPT_BEFORE = re.compile(r"All user messages:\n(.*?)(?:\n\d\. |\Z)", re.DOTALL)


def report(outcomes: Iterable[ToolOutcome]) -> str:
    """Report the results of tools in a few words."""
    return "\n\n".join([*(_outcome(outcome) for outcome in outcomes), STAND_IN])


def _outcome(outcome: ToolOutcome) -> str:
    said = _REMINDER.sub("", outcome.text).strip()
    output = said if len(said) <= _LONGEST_OUTPUT else f"{said[:_LONGEST_OUTPUT]}... (cut)"
    if outcome.is_error:
        return f"{_named(outcome)} failed:\n{_fenced(output)}"
    if outcome.name in _TOLD:
        return f"{_TOLD[outcome.name]}{output}"
    if outcome.name == "Write":
        return f"{_named(outcome)} worked: the file is written."
    if outcome.name in {"Agent", "Task"} and said.startswith("Async agent launched"):
        # The CLI asks never to quote this result.
        return "The background agent has started; I will say when it is done."
    if outcome.name in _CANVAS:
        return _CANVAS[outcome.name]
    return f"{_named(outcome)} gave:\n{_fenced(output)}"


#: Tools whose results are shown unchanged, and the text before them.
_TOLD = {
    SEARCH_CALL: "My memory says:\n",
    READ_CANVAS_CALL: "This is on the canvas:\n",
    LIST_CALL: "On the list:\n",
    SCHEDULE_CALL: "",
}
_CANVAS = {
    f"{OWN_TOOLS}create_card": "The card is on the canvas.",
    f"{OWN_TOOLS}update_card": "The card is updated.",
    f"{OWN_TOOLS}close_card": "The card is closed.",
}


def _named(outcome: ToolOutcome) -> str:
    given = outcome.input
    if outcome.name == "Bash":
        return f"The command `{given.get('command', '')}`"
    if outcome.name in {"Read", "Write", "Edit"}:
        verb = {"Read": "Reading", "Write": "Writing", "Edit": "Editing"}[outcome.name]
        return f"{verb} `{PurePosixPath(str(given.get('file_path', ''))).name}`"
    return f"The tool {outcome.name or 'of an earlier session'}"


def _fenced(output: str) -> str:
    return f"```\n{output}\n```"


def finished(request: Request) -> str:
    """Report a finished background task and its result."""
    notes = [entry.text for entry in request.timeline if entry.kind == "notification"]
    parts = dict(_TASK_PART.findall(notes[-1])) if notes else {}
    summary = html.unescape(parts.get("summary", "A background task finished")).strip()
    result = html.unescape(parts.get("result", "")).replace(STAND_IN, "").strip()[:_LONGEST_OUTPUT]
    return f"{summary}.{f' It says: {result}' if result else ''} {STAND_IN}"


def compacted(request: Request) -> str:
    """Summarise the conversation in the form the CLI asks for: the person's words, verbatim."""
    said: list[str] = []
    for entry in request.timeline:
        if entry.kind == "summary":
            said += [line.removeprefix("- ") for line in _earlier(entry.text)]
        elif entry.kind == "user":
            said.append(" ".join(entry.text.split()))
    listed = "\n".join(f"- {text}" for text in said)[-_LONGEST_SUMMARY:]
    last = said[-1] if said else "nothing yet"
    return (
        f"<analysis>\n{STAND_IN} keeps the person's own words and leaves the rest out.\n</analysis>\n\n"
        f"<summary>\n1. Primary Request and Intent:\n{last}\n\n"
        f"6. All user messages:\n{listed}\n\n8. Current Work:\nNone in progress.\n</summary>"
    )


def _earlier(summary: str) -> list[str]:
    """Return the messages that an earlier summary of the stand-in has kept."""
    found = _KEPT_BEFORE.search(summary)
    return [line for line in found[1].splitlines() if line.startswith("- ")] if found else []


def side_answer(request: Request) -> str | None:
    """Answer a request of the CLI itself for a title or a JSON object; return None for any other."""
    title = " ".join(request.user_text.split()[:_LONGEST_TITLE_WORDS]) or "Conversation"
    if request.schema is not None:
        return msgspec.json.encode(_fill(request.schema, title)).decode()
    if re.search(r"\btitle\b", request.system, re.IGNORECASE):
        return title
    return None


def _fill(schema: dict[str, Any], text: str) -> Any:
    """Build the smallest value that fits a JSON schema; every string is `text`."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: _fill(part, text) for name, part in schema.get("properties", {}).items()}
        case "array":
            return []
        case "boolean":
            return False
        case "integer" | "number":
            return 0
        case _:
            return text
