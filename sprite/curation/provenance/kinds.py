"""Classify whose words a tool result contains (pure).

`result`: output of a command on this computer about its work. `printed`: content of files that a command or search
prints. `document`: a file that another tool reads. `outside`: a page, another agent, a service or an unknown source.
`memory`: memory's own earlier text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from sprite.protocol.tools import ECHO_CALLS, OWN_TOOLS, UPDATE_CARD_CALL, as_own_call

Kind = Literal["result", "printed", "document", "outside", "memory"]

#: Results of these tools alone come from outside, from any author.
WEB_TOOLS = frozenset({"WebFetch", "WebSearch"})
_WORKING = frozenset({"Bash", "BashOutput", "KillShell", "Glob", "LS", "Edit", "MultiEdit", "Write", "NotebookEdit"})
_READING = frozenset({"Read", "NotebookRead"})

#: Programs that print the content of a file.
_READERS = frozenset(
    """antiword awk bat bzcat cat catdoc docx2txt egrep fgrep grep head jq less mail more mutt notmuch ocrmypdf pandoc
    pdftohtml pdftotext rg strings tail tesseract unrtf xxd zcat zgrep zless
    """.split()
)
#: Programs that print a server's answer; `gh` counts only if it shows people's text.
_FETCHERS = frozenset("aria2c curl elinks http https links lynx w3m wget".split())
_PEOPLES_TEXT = re.compile(r"\bgh\s+(?:issue|pr|discussion|gist|release)\s+view\b|\bgh\s+api\b|\bgh\s.*--comments\b")
#: A page piped into one of these is run, unpacked or saved, not printed.
_SINKS = frozenset("bash dpkg gpg gunzip install patch sh sudo tar tee unzip zsh".split())
_KEPT = re.compile(r"(?:^|\s)(?:-[a-zA-Z]*[oO](?!-)\b|--output\b|--remote-name\b|>)|\s>\s?\S")
#: A server on this computer or its network reports work done here.
_LOCAL = re.compile(r"(?:\s|//)['\"]?(?:localhost|127\.[\d.]+|0\.0\.0\.0|[\w-]+\.local)\b", re.IGNORECASE)
#: Prefixes before the program in a command.
_PREFIX = re.compile(r"^(?:\(|\s|\w+=\S*\s|sudo\s(?:-u\s+\S+\s)?|timeout\s+\S+\s|time\s|nohup\s)+")
_STEP = re.compile(r"&&|\|\||;|\n")
_PIPE = re.compile(r"(?<!\|)\|(?!\|)")


def kind_of(call: Mapping[str, Any]) -> Kind:
    """Return the kind of a call's result, by the author of its words; the module lists the kinds."""
    name = str(call.get("name", ""))
    if as_own_call(name) in ECHO_CALLS or (name == UPDATE_CARD_CALL and call.get("is_error")):
        return "memory"
    if name in _READING:
        return "document"
    if name == "Grep":
        return "printed"
    if name not in _WORKING and not name.startswith(OWN_TOOLS):
        return "outside"
    given = call.get("input")
    command = given.get("command") if name == "Bash" and isinstance(given, Mapping) else None
    return _of_command(command) if isinstance(command, str) else "result"


def _of_command(command: str) -> Kind:
    kinds = {_of_step(step) for step in _STEP.split(command)}
    return "outside" if "outside" in kinds else "printed" if "printed" in kinds else "result"


def _of_step(step: str) -> Kind:
    programs = [_program(part) for part in _PIPE.split(step)]
    if _PEOPLES_TEXT.search(step) or (programs[0] in _FETCHERS and _prints_a_page(step, programs[1:])):
        return "outside"
    # After a pipe, a reader only filters the previous program's output.
    return "printed" if programs[0] in _READERS else "result"


def _program(part: str) -> str:
    words = _PREFIX.sub("", f"{part} ").split(maxsplit=1)
    return words[0].rpartition("/")[2] if words else ""


def _prints_a_page(step: str, receivers: list[str]) -> bool:
    return _SINKS.isdisjoint(receivers) and not any(rule.search(_PIPE.split(step)[0]) for rule in (_KEPT, _LOCAL))
