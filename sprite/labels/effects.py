"""Classify tool calls (pure): a read, a local change that can be undone, or a sink, through which data can leave.

A sink sends to a host not yet allowed, writes to a connection, messages somebody, schedules, publishes, or leaves the
sandbox. Unknown tools are sinks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from sprite.protocol.tools import (
    COMPLETE_CALL,
    FIND_TOOLS_CALL,
    LIST_CALL,
    OWN_TOOLS,
    READ_CANVAS_CALL,
    READ_UNTRUSTED_CALL,
    SCHEDULE_CALL,
    SEARCH_CALL,
)

Effect = Literal["read", "change", "sink"]

#: The egress proxy asks about hosts, so a fetch is a read where the proxy cannot be avoided.
_FETCHES = frozenset({"WebFetch", READ_UNTRUSTED_CALL})
_READS = frozenset({"Read", "WebSearch", SEARCH_CALL, LIST_CALL, READ_CANVAS_CALL, FIND_TOOLS_CALL})
#: A subagent's own calls are classified one by one.
_CHANGES = frozenset({"Write", "Edit", "Agent", "TaskStop", COMPLETE_CALL})
#: Commands that publish, or send to somebody. Registries and code hosts may be allowed for reading.
_SENDS = re.compile(
    r"""\bgit\b[^|;&\n]*\s(?:push|send-email|send-pack)\b
    | \b(?:npm|pnpm|yarn|cargo|uv|poetry|flit|hatch|gem|docker|podman|helm|dotnet|mvn|gradle)\b[^|;&\n]*
      \s(?:publish|push|deploy|upload|owner|release)\b
    | \btwine\b | \b(?:gh|glab|hub|doctl|aws|gcloud|az|kubectl|vercel|netlify|fly|heroku)\s
    | \b(?:ssh|scp|sftp|rsync|ftp|lftp|telnet|nc|ncat|socat|mail|mailx|mutt|sendmail|msmtp|swaks)\s
    | \b(?:curl|wget|https?|xh)\b[^|;&\n]*\s(?:-[a-zA-Z]*[dFT]\b|-[a-zA-Z]*[dFT]\S|--data\S*|--form\S*|--upload-file
      |--json|--post-\S+|--body-\S+|-X\s*['"]?(?!GET|HEAD)\w|--request[\s=]['"]?(?!GET|HEAD)\w|--method\S*|POST|PUT|PATCH
      |DELETE)""",
    re.VERBOSE,
)


def effect_of(tool: str, given: Mapping[str, Any], *, binds: bool) -> Effect:
    """Return what a call does. `binds`: no command can avoid the egress proxy, which asks about each new host."""
    if tool == "Bash":
        return "change" if binds and not _SENDS.search(str(given.get("command", ""))) else "sink"
    if tool in _FETCHES:
        return "read" if binds else "sink"
    if tool in _READS:
        return "read"
    if tool in _CHANGES or (tool.startswith(OWN_TOOLS) and tool != SCHEDULE_CALL):
        return "change"
    return "sink"
