"""The label of the session: `clean`, or `exposed` once it has read untrusted content.

It follows from the log's turns, whose calls have an `origin` if their result is untrusted, so it survives a restart.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from sprite.common.tasks import WORDS, off_loop
from sprite.config import Settings
from sprite.curation.provenance.evidence import own_words, text_of
from sprite.curation.provenance.kinds import WEB_TOOLS, kind_of
from sprite.errors import StorageError
from sprite.labels.foreign import ForeignWords
from sprite.labels.outside import OutsideFiles
from sprite.log.transcript import NewObservation, TranscriptDB
from sprite.memory.words import forms_of
from sprite.privacy.cutting import result_text
from sprite.protocol.messages import ForeignSpan
from sprite.protocol.pasted import Spans
from sprite.protocol.shapes import SearchHit
from sprite.protocol.tools import (
    COMPLETE_CALL,
    FIND_TOOLS_CALL,
    LIST_CALL,
    OWN_TOOLS,
    READ_CANVAS_CALL,
    READ_UNTRUSTED_CALL,
    SCHEDULE_CALL,
    SEARCH_CALL,
    connection_call,
)
from sprite.undo.scan import Entry
from sprite.workspace.file_changes import FileChange

PASTE, MEMORY = "paste", "memory"
#: The source of network traffic that nothing has logged.
_SOME_HOST = "network:unknown"
#: Origins of learnings that rest on the person, the agent's work or a local command.
_TRUSTED_ORIGINS = frozenset({"user", "assistant", "tool"})
#: Sources that are listed.
MOST_SOURCES = 50
#: End of a string that the log has cut.
_CUT = "characters cut]"
#: The logged result of a call that shows a picture of the person's to the agent.
PICTURE = "[picture]"
#: Results of Read whose words are not known.
_WORDLESS = frozenset({"image", "pdf", "parts"})
#: Calls that were denied never end.
_MOST_BEGUN = 200

NOTES = {
    "asks": "Sprite asks before text from outside can leave: for new hosts, and for messages, schedules and writes "
    "with words from there.",
    "open": "Commands can reach the network here without a question, so in an exposed session each command with words "
    "from outside is asked about. Connections are off until you turn them on.",
    "never": "Nothing is asked here (--permissions bypass), so the label only informs you. Connections are off until "
    "you turn them on.",
}


def sources_of(turns: Iterable[NewObservation]) -> list[str]:
    """Return the sources of untrusted content that a session's turns read, in order; empty if the session is clean."""
    found: dict[str, None] = {}
    for turn in turns:
        _, _, source = _heard(turn.user_message, turn.pasted, turn.asked_by)
        origins = [source, *(call.get("origin") for call in turn.tool_calls)]
        found |= dict.fromkeys(str(origin) for origin in origins if origin)
    return list(found)[:MOST_SOURCES]


def _heard(text: str, pasted: Spans, asked_by: str | None) -> tuple[str, str, str | None]:
    """Split a message: return its own words, its untrusted words, and their source (a program or a paste) or None."""
    if asked_by is not None:
        return "", text, f"program:{asked_by}"
    own, parts = own_words(text, pasted)
    return own, "\n".join(parts), PASTE if parts else None


def _is_wordless(result: Any) -> bool:
    return isinstance(result, Mapping) and result.get("type") in _WORDLESS


def _said(result: Any) -> str:
    if _is_wordless(result):
        return ""
    return result_text(result, str) if isinstance(result, Mapping) and "stdout" in result else text_of(result)


class SessionLabel:
    """Track whether the current session has read untrusted content, and which calls need a question because of it."""

    def __init__(self, settings: Settings, transcript: TranscriptDB, outside: OutsideFiles) -> None:
        self._settings = settings
        self._transcript = transcript
        self.outside = outside
        #: Returns the hosts that the egress proxy has reached after a time (Unix seconds).
        self.hosts_since: Callable[[float], list[str]] = lambda _at: []
        #: Whether a sandbox holds, whose only way out is the egress proxy.
        self.is_contained = False
        #: Called when the label or its sources change.
        self.on_change: Callable[[], None] = lambda: None
        self._session_id: str | None = None
        self._sources: dict[str, None] = {}
        self._words = ForeignWords()
        self._turn_at = time.time()
        #: The folders of calls that run, and their foreign words once they are known.
        self._folders: dict[str, Path] = {}
        self._foreign: dict[str, list[ForeignSpan]] = {}
        self._written: set[str] = set()
        self._has_run = False
        self._hits: Sequence[SearchHit] = ()

    @property
    def sources(self) -> list[str]:
        """The sources of untrusted content that the session has read, in order."""
        return list(self._sources)[:MOST_SOURCES]

    @property
    def is_exposed(self) -> bool:
        """Whether the session has read untrusted content."""
        return bool(self._sources)

    @property
    def binds(self) -> bool:
        """Whether all network traffic of commands must pass the egress proxy, which asks about each new host."""
        return self.is_contained and self._settings.egress != "open"

    @property
    def asks(self) -> bool:
        """Whether the sprite asks the person before a tool call sends words from untrusted content elsewhere."""
        return self.binds and self._settings.permissions == "ask"

    @property
    def note(self) -> str:
        """The consequences of the label on this machine, as a text for people."""
        return NOTES["never" if self._settings.permissions == "bypass" else "asks" if self.binds else "open"]

    # --- what the session reads ---

    async def begins(self, session_id: str | None) -> None:
        """Make this session the current one, and derive its label from the log, unless it is current already."""
        if session_id == self._session_id:
            return
        turns = await self._transcript.observations_of_session(session_id) if session_id else []
        self._session_id, self._words, self._sources = session_id, ForeignWords(), {}
        await asyncio.to_thread(self._fold, turns)

    def _fold(self, turns: Iterable[NewObservation]) -> None:
        for turn in turns:
            self._hear(turn.user_message, turn.pasted, turn.asked_by, is_persons=turn.trigger == "user")
            for call in turn.tool_calls:
                given, result = text_of(call.get("input")), text_of(call.get("result"))
                is_cut = _CUT in result or result == PICTURE
                self._read(forms_of(given), forms_of(result), call.get("origin"), is_cut=is_cut)

    def heard(
        self, text: str, pasted: Spans, asked_by: str | None, pictures: Iterable[str] = (), *, is_persons: bool
    ) -> None:
        """Record the message that begins a turn, and its pictures' sources. `is_persons` is false for a schedule's."""
        before = len(self._sources)
        self._turn_at = time.time()
        self._written.clear()
        self._has_run = False
        self._hear(text, pasted, asked_by, is_persons=is_persons)
        for source in pictures:
            self._read(frozenset(), frozenset(), source, is_cut=True)
        if len(self._sources) != before:
            self.on_change()

    def _hear(self, text: str, pasted: Spans, asked_by: str | None, *, is_persons: bool) -> None:
        own, foreign, source = _heard(text, pasted, asked_by)
        if is_persons:
            self._words.add_persons(forms_of(own))
        else:
            self._words.add_trusted(forms_of(own))
        if source is not None:
            self._words.add(forms_of(foreign), source)
            self._sources.setdefault(source)

    def _read(self, given: frozenset[str], result: frozenset[str], origin: str | None, *, is_cut: bool = False) -> None:
        if not self._sources:
            # Untrusted content cannot have led the agent yet.
            self._words.add_trusted(given)
        if origin is None:
            self._words.add_trusted(result)
        else:
            self._words.add(result, origin, is_cut=is_cut)
            self._sources.setdefault(origin)

    def found(self, hits: Sequence[SearchHit]) -> None:
        """Record the hits of a memory search, whose origins decide when the call ends."""
        self._hits = hits

    def tool_began(self, tool_use_id: str, cwd: Path) -> None:
        """Record the folder in which a call begins: `cd` may change it before the call ends."""
        self._folders[tool_use_id] = cwd
        if len(self._folders) > _MOST_BEGUN:
            self._forget(next(iter(self._folders)))

    def folder_of(self, tool_use_id: str | None) -> Path | None:
        """Return the folder in which a call began, or None if it is not known."""
        return self._folders.get(tool_use_id or "")

    def _forget(self, tool_use_id: str) -> Path:
        self._foreign.pop(tool_use_id, None)
        return self._folders.pop(tool_use_id, self._settings.workspace)

    async def tool_ended(self, tool_use_id: str, name: str, given: Any, result: Any) -> str | None:
        """Record a call's result: add its words, and return its origin if it is untrusted, else None."""
        cwd = self._forget(tool_use_id)
        given = given if isinstance(given, Mapping) else {}
        if name == "Bash":
            self._has_run = True
            if self._hosts():
                # It may have changed what was written before.
                self._written.clear()
        if name == "Write":
            self._written.add(str(given.get("file_path", "")))
        said, wanted = _said(result), text_of(given)
        origin = None
        if said.strip() or name != "Bash":
            origin = MEMORY if name == SEARCH_CALL and await self._has_untrusted() else self._origin(name, given, cwd)
        forms = [await off_loop(WORDS * len(text), forms_of, text) for text in (wanted, said)]
        before = len(self._sources)
        self._read(forms[0], forms[1], origin, is_cut=_is_wordless(result))
        if len(self._sources) != before:
            self.on_change()
        return origin

    def _origin(self, name: str, given: Mapping[str, Any], cwd: Path) -> str | None:
        if name in WEB_TOOLS:
            return f"web:{urlsplit(str(given.get('url', ''))).hostname or 'search'}"
        if name == "Read":
            return self._of_file(cwd / str(given.get("file_path", "")))
        if name == "Bash":
            return self._of_command(str(given.get("command", "")), cwd)
        # The person agreed to the descriptions that a search for tools finds.
        connected = connection_call(name, given)
        return None if connected is None else connected.origin

    def _of_command(self, command: str, cwd: Path) -> str | None:
        if not self.is_contained and kind_of({"name": "Bash", "input": {"command": command}}) == "outside":
            return _SOME_HOST
        # The files that this turn's commands have fetched are marked at its end.
        if hosts := self._hosts():
            return f"network:{hosts[0]}"
        return self.outside.source_in(command, cwd)

    def _of_file(self, path: Path) -> str | None:
        source, hosts = self.outside.source_of(path), self._hosts()
        if source is None and hosts:
            with suppress(OSError):
                return f"network:{hosts[0]}" if path.stat().st_ctime >= self._turn_at else None
        return source

    def _hosts(self) -> list[str]:
        """Return the hosts reached since the turn began; empty without a sandbox, where the proxy sees only some."""
        return self.hosts_since(self._turn_at) if self.is_contained else []

    async def _has_untrusted(self) -> bool:
        hits = self._hits
        if any(hit.kind == "learning" and hit.origin not in _TRUSTED_ORIGINS for hit in hits):
            return True
        try:
            turns = await self._transcript.observations_of([hit.id for hit in hits if hit.kind == "turn"])
        except StorageError:
            return True
        return any(turn.source is not None or sources_of([turn]) for turn in turns.values())

    # --- files from outside ---

    async def uploaded(self, path: str) -> None:
        """Mark a file that a person uploaded."""
        await self.outside.add({path: "upload"})

    async def files_changed(self, changes: Sequence[FileChange], states: Mapping[str, Entry]) -> None:
        """Mark the files that a turn's commands fetched or copied from outside, before its change set is recorded."""
        hosts = self._hosts()
        origin = f"network:{hosts[0]}" if hosts else _SOME_HOST if self._has_run and not self.is_contained else None
        root = f"{self._settings.workspace}/"
        await self.outside.changed(changes, states, origin, {path.removeprefix(root) for path in self._written})

    # --- what it may do ---

    def asked_words(self, tool: str, given: Mapping[str, Any], tool_use_id: str | None = None) -> list[ForeignSpan]:
        """Return the foreign words of a call, if the person must be asked about it because of them, else none."""
        if not self._sources or self._settings.permissions == "bypass":
            return []
        return self.foreign(given, tool_use_id) if effect_of(tool, given, binds=self.binds) == "sink" else []

    def foreign(self, given: Mapping[str, Any], tool_use_id: str | None = None) -> list[ForeignSpan]:
        """Return the foreign words of a call's input; for a call that has begun, they are computed only once."""
        if not self._sources:
            return []
        if tool_use_id not in self._folders:
            return self._words.spans(given)
        if tool_use_id not in self._foreign:
            self._foreign[tool_use_id] = self._words.spans(given)
        return self._foreign[tool_use_id]


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
    """Return what a call does: `read`, `change` (of something here), or `sink` (it may send words elsewhere).

    `binds`: all network traffic of commands must pass the egress proxy, which asks about each new host.
    """
    if tool == "Bash":
        return "change" if binds and not _SENDS.search(str(given.get("command", ""))) else "sink"
    if tool in _FETCHES:
        return "read" if binds else "sink"
    if tool in _READS:
        return "read"
    if tool in _CHANGES or (tool.startswith(OWN_TOOLS) and tool != SCHEDULE_CALL):
        return "change"
    return "sink"
