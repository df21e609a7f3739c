"""Whose words the result of a tool call has (pure): what the tool did here, a document's, or somebody's outside.

`result`: what a command on this computer says of its work. `document`: what it read out of a file, which anybody may
have written. `outside`: a page, another agent, a service: anybody's. `memory`: what memory itself said before.
A command is judged by the programs it runs; what cannot be told is `outside`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from sprite.protocol.tools import ECHO_CALLS, OWN_TOOLS, UPDATE_CARD_CALL, as_own_call

Kind = Literal["result", "document", "outside", "memory"]

#: What only these tools said came from outside and may be anybody's words.
WEB_TOOLS = frozenset({"WebFetch", "WebSearch"})
_WORKING = frozenset({"Bash", "BashOutput", "KillShell", "Glob", "LS", "Edit", "MultiEdit", "Write", "NotebookEdit"})
_READING = frozenset({"Read", "NotebookRead", "Grep"})

#: Programs that print what stands in a file.
_READERS = frozenset(
    """antiword awk bat bzcat cat catdoc docx2txt egrep fgrep grep head jq less mail more mutt notmuch ocrmypdf pandoc
    pdftohtml pdftotext rg strings tail tesseract unrtf xxd zcat zgrep zless
    """.split()
)
#: Programs that print what a server answers; `gh` only where it shows what people wrote there.
_FETCHERS = frozenset("aria2c curl elinks http https links lynx w3m wget".split())
_PEOPLES_TEXT = re.compile(r"\bgh\s+(?:issue|pr|discussion|gist|release)\s+view\b|\bgh\s+api\b|\bgh\s.*--comments\b")
#: A page that goes into one of these is not printed: it is run, unpacked or kept.
_SINKS = frozenset("bash dpkg gpg gunzip install patch sh sudo tar tee unzip zsh".split())
_KEPT = re.compile(r"(?:^|\s)(?:-[a-zA-Z]*[oO](?!-)\b|--output\b|--remote-name\b|>)|\s>\s?\S")
#: A server on this computer or beside it; it says what was built here.
_LOCAL = re.compile(r"(?:\s|//)['\"]?(?:localhost|127\.[\d.]+|0\.0\.0\.0|[\w-]+\.local)\b", re.IGNORECASE)
#: What precedes the program in a command.
_PREFIX = re.compile(r"^(?:\(|\s|\w+=\S*\s|sudo\s(?:-u\s+\S+\s)?|timeout\s+\S+\s|time\s|nohup\s)+")
_STEP = re.compile(r"&&|\|\||;|\n")
_PIPE = re.compile(r"(?<!\|)\|(?!\|)")


def kind_of(call: Mapping[str, Any]) -> Kind:
    """Whose words the result of this call has."""
    name = str(call.get("name", ""))
    if as_own_call(name) in ECHO_CALLS or (name == UPDATE_CARD_CALL and call.get("is_error")):
        return "memory"
    if name in _READING:
        return "document"
    if name not in _WORKING and not name.startswith(OWN_TOOLS):
        return "outside"
    given = call.get("input")
    command = given.get("command") if name == "Bash" and isinstance(given, Mapping) else None
    return _of_command(command) if isinstance(command, str) else "result"


def _of_command(command: str) -> Kind:
    kinds = {_of_step(step) for step in _STEP.split(command)}
    return "outside" if "outside" in kinds else "document" if "document" in kinds else "result"


def _of_step(step: str) -> Kind:
    programs = [_program(part) for part in _PIPE.split(step)]
    if _PEOPLES_TEXT.search(step) or (programs[0] in _FETCHERS and _prints_a_page(step, programs[1:])):
        return "outside"
    # Behind a pipe a reader only cuts what the program before it said.
    return "document" if programs[0] in _READERS else "result"


def _program(part: str) -> str:
    words = _PREFIX.sub("", f"{part} ").split(maxsplit=1)
    return words[0].rpartition("/")[2] if words else ""


def _prints_a_page(step: str, receivers: list[str]) -> bool:
    fetch = _PIPE.split(step)[0]
    return _SINKS.isdisjoint(receivers) and not _KEPT.search(fetch) and not _LOCAL.search(fetch)
