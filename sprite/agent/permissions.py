"""Ask a person before a tool runs: send questions through the feed, match answers by request id.

A question contains the call's whole unredacted input, because the agent could hide an action in any part left out.
The feed stores a redacted copy on disk.
"""

from __future__ import annotations

import asyncio
import os
import time
import unicodedata
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sprite.config import Settings
from sprite.errors import PeerError
from sprite.labels.session import SessionLabel
from sprite.protocol import messages
from sprite.protocol.frames import arrives_as_it_is, encode
from sprite.protocol.tools import NETWORK, connection_call
from sprite.sandbox.hosts import HostRefusedError
from sprite.sandbox.places import RUNS_LATER, protected
from sprite.workspace.feed import Feed

#: All rules are sent in one `status`, each with its command.
MAX_RULES = 50
#: People do not recognise a longer command or folder name in a list.
MAX_CHARS = 1000
_COMMANDS = "Bash"
_FETCH = "WebFetch"
_WRITERS = frozenset({"Write", "Edit"})
#: Fields that describe a command and do not change what it does.
_WORDS_ONLY = frozenset({"description", "timeout"})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the CLI will make it; `cwd` is its folder, None if unknown."""

    tool: str
    input: Mapping[str, Any]
    cwd: Path | None
    tool_use_id: str | None = None

    @property
    def real_path(self) -> Path | None:
        """The real path of the named file, with links resolved, or None if it names none or cannot be resolved."""
        path = self.input.get("file_path")
        try:
            return Path(path).resolve() if isinstance(path, str) else None
        except (OSError, RuntimeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class CommandRule:
    """A rule that allows one command in one folder; `shown` is the command."""

    words: str
    call: Call
    shown: str

    def covers(self, call: Call) -> bool:
        """Return whether this rule allows the call."""
        return (call.tool, call.cwd, deeds_of(call)) == (self.call.tool, self.call.cwd, deeds_of(self.call))


@dataclass(frozen=True, slots=True)
class FolderRule:
    """A rule that allows writing in a folder of the workspace and, except for the workspace itself, its subfolders."""

    words: str
    workspace: Path
    folder: Path
    shown: str = ""

    def covers(self, call: Call) -> bool:
        """Return whether the call writes in the rule's folder, with links resolved now."""
        target = _written(call, self.workspace)
        if target is None:
            return False
        return target.parent == self.folder or (
            self.folder != self.workspace and target.parent.is_relative_to(self.folder)
        )


@dataclass(frozen=True, slots=True)
class ConnectionRule:
    """A rule that allows one tool of a connection."""

    words: str
    connection: str
    tool: str
    shown: str = ""

    def covers(self, call: Call) -> bool:
        """Return whether this rule allows the call, whatever its arguments."""
        called = connection_call(call.tool, call.input)
        return called is not None and (called.connection, called.tool) == (self.connection, self.tool)


Rule = CommandRule | FolderRule | ConnectionRule


class StandingRules:
    """Hold the "always" rules of one session; `workspace` bounds what they can cover."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace.resolve()
        self._rules: dict[str, tuple[Rule, float]] = {}
        #: Rules that were made when the session had read untrusted content; the others hold only before.
        self._exposed: set[str] = set()

    def cover(self, call: Call, *, exposed: bool = False) -> bool:
        """Return whether a rule allows this call, with links resolved now; if `exposed`, one added while exposed."""
        return any(
            rule.covers(call) for rule_id, (rule, _) in self._rules.items() if not exposed or rule_id in self._exposed
        )

    def offer(self, call: Call) -> Rule | None:
        """Return the rule that "always" adds for this call, or None if none fits: then it allows only this call."""
        rule = self._command(call) if call.tool == _COMMANDS else _connection(call) or self._folder(call)
        return None if rule is None or len(self._rules) >= MAX_RULES or len(rule.words) > MAX_CHARS else rule

    def add(self, rule: Rule, *, exposed: bool = False) -> None:
        """Add an offered rule that the person accepted with "always"; `exposed` is as in `cover`."""
        rule_id = next((key for key, (known, _) in self._rules.items() if known == rule), str(uuid.uuid4()))
        self._rules.setdefault(rule_id, (rule, time.time()))
        if exposed:
            self._exposed.add(rule_id)

    def listed(self) -> list[messages.StandingRule]:
        """Return the rules as shown to people, oldest first."""
        return [
            messages.StandingRule(rule_id, rule.words, rule.shown, at) for rule_id, (rule, at) in self._rules.items()
        ]

    def revoke(self, rule_id: str | None) -> None:
        """Revoke one rule, or all of them. Raises PeerError if there is no such rule."""
        if rule_id is None:
            self._rules.clear()
        elif self._rules.pop(rule_id, None) is None:
            raise PeerError("There is no such permission rule.", code="not_found")

    def folder_of(self, call: Call) -> str | None:
        """Return the command's folder as shown to a person, or None for the workspace itself."""
        cwd, workspace = call.cwd, self._workspace
        if call.tool != _COMMANDS or cwd is None or cwd == workspace:
            return None
        return str(cwd.relative_to(workspace) if cwd.is_relative_to(workspace) else cwd)

    def _command(self, call: Call) -> CommandRule | None:
        command = call.input.get("command")
        if not isinstance(command, str) or len(command) > MAX_CHARS or call.cwd is None:
            return None
        folder = self.folder_of(call)
        return CommandRule(f"this command in {folder}/" if folder else "this command", call, command)

    def _folder(self, call: Call) -> FolderRule | None:
        workspace = self._workspace
        target = _written(call, workspace)
        if target is None:
            return None
        folder, where = target.parent, "directly in the workspace"
        if folder != workspace:
            where = f"in {folder.relative_to(workspace)}/ and its folders"
        return FolderRule(f"writing files {where}", workspace, folder)


def deeds_of(call: Call) -> dict[str, Any]:
    """Return the input of a call without fields that only describe the call to people."""
    return {name: value for name, value in call.input.items() if name not in _WORDS_ONLY}


def _connection(call: Call) -> ConnectionRule | None:
    called = connection_call(call.tool, call.input)
    if called is None:
        return None
    return ConnectionRule(f"{called.tool} of {called.connection}", called.connection, called.tool)


def _written(call: Call, workspace: Path) -> Path | None:
    """Return the real path of the file that the call writes, or None if no rule could cover the call.

    No rule covers files outside the workspace, hidden files or folders (`.os`, `.git`, `.bashrc`), files with
    another name (a hard link), or paths that the CLI might read differently than Sprite does.
    """
    path = call.input.get("file_path")
    if call.tool not in _WRITERS or not isinstance(path, str) or not _is_plain(path):
        return None
    real = call.real_path
    if real is None or not real.is_relative_to(workspace) or _has_other_names(real):
        return None
    return None if any(part.startswith(".") for part in real.relative_to(workspace).parts) else real


def _has_other_names(file: Path) -> bool:
    try:
        return os.path.lexists(file) and file.stat().st_nlink != 1
    except OSError:
        return True


def _is_plain(path: str) -> bool:
    return (
        path.startswith("/")
        and path == path.strip() == unicodedata.normalize("NFC", path)
        and path.isprintable()
        and ".." not in path.split("/")
    )


#: The answer of `word_of_sandbox` that lets a call run.
ALLOWED = ""
_ONLY_THE_WORKSPACE = (
    "The sandbox lets you write in the workspace and in /tmp only. Write the file there, and say where it belongs."
)
_RUNS_LATER = (
    "This file is read-only in the sandbox, because programs outside it run the file. Show the person the change, "
    "and let them make it."
)
_SAID_NO = "The person said no to this. Ask what they would prefer."
_NOBODY = "No client is connected that could allow this. Say what you would have done instead."
#: Why a call did not run. As its result they hold nothing of what the call is about.
REFUSALS = frozenset({_ONLY_THE_WORKSPACE, _RUNS_LATER, _SAID_NO, _NOBODY})
#: Written in the sandbox without a question, beside the workspace.
_SCRATCH = Path("/tmp")  # noqa: S108 - the sandbox's own


def word_of_sandbox(call: Call, settings: Settings) -> str | None:
    """Return what the sandbox decides about a call: ALLOWED, a refusal for the agent, or None to ask a person.

    A person is asked about a new file that programs outside would run: the sandbox cannot make it read-only.
    """
    # The egress proxy asks about the host of a page.
    if call.tool == _COMMANDS or (call.tool == _FETCH and settings.egress_socket.exists()):
        return ALLOWED
    real, workspace = call.real_path, settings.workspace.resolve()
    if call.tool not in _WRITERS or real is None:
        return None
    if not real.is_relative_to(workspace):
        return ALLOWED if real.is_relative_to(_SCRATCH) else _ONLY_THE_WORKSPACE
    names = real.relative_to(workspace).parts
    if ".git" not in names and RUNS_LATER.isdisjoint(names):
        return ALLOWED
    kept = protected(workspace)
    return _RUNS_LATER if any(kept.get(place) == "protect" for place in (real, *real.parents)) else None


ANSWER_TIMEOUT_SECONDS = 600.0
#: Limit for all open questions as frames: a new client's state must fit one frame, and clients draw them.
MAX_OPEN_BYTES = messages.MAX_FRAME_BYTES // 4


class DeniedError(Exception):
    """The tool call may not run; the message is for the agent."""


class PermissionBroker:
    """Ask people whether tool calls may run; each question waits for one answer."""

    def __init__(self, feed: Feed, rules: StandingRules, label: SessionLabel) -> None:
        self._feed = feed
        #: The label of the session, by which a call needs a question.
        self.label = label
        #: Rules that allow a call without asking.
        self.rules = rules
        #: The open questions, each with the future of its answer.
        self._open: dict[str, tuple[messages.PermissionRequest, asyncio.Future[messages.Decision]]] = {}
        self._open_bytes = 0
        #: People's answers about calls of the turn under way, by the call's id.
        self.answers: dict[str, messages.Decision] = {}

    def questions(self) -> list[messages.PermissionRequest]:
        """Return the open questions, oldest first."""
        return [request for request, _ in self._open.values()]

    async def ask(
        self,
        mission_id: str | None,
        call: Call,
        *,
        of_background: bool = False,
        is_unattended: bool = False,
        rule: str | None = None,
    ) -> None:
        """Wait until a standing rule or a person's answer allows the call.

        Raises DeniedError on "deny", without a client or an answer in time, or if the input cannot be shown whole. A
        question `of_background` work outlives its turn; one of `is_unattended` work waits for a client. `rule` has the
        words of a person's rule that demands a question; then standing rules do not count.
        """
        exposed = self.label.is_exposed
        if rule is None and self.rules.cover(call, exposed=exposed):
            return
        if self._feed.audience == 0 and not is_unattended:
            raise DeniedError(_NOBODY)
        always, real_path = None if rule else self.rules.offer(call), call.real_path
        request = messages.PermissionRequest(
            str(uuid.uuid4()),
            mission_id,
            call.tool,
            dict(call.input),
            background=of_background,
            folder=self.rules.folder_of(call),
            real_path=None if real_path is None or str(real_path) == call.input["file_path"] else str(real_path),
            always=None if always is None else always.words,
            tool_use_id=call.tool_use_id,
            kind="rule" if rule else "tool" if connection_call(call.tool, call.input) is None else "connection",
            exposed=exposed,
            foreign=self.label.foreign(call.input, call.tool_use_id),
            rule=rule,
        )
        decision = await self._word_on(request)
        if call.tool_use_id is not None:
            self.answers[call.tool_use_id] = decision
        if decision == "deny":
            raise DeniedError(_SAID_NO)
        if call.real_path != real_path:
            raise DeniedError("The path changed after the person was asked. Ask again.")
        if decision == "always" and always is not None:
            self.rules.add(always, exposed=exposed)

    async def ask_host(self, host: str, mission_id: str | None) -> messages.Decision:
        """Return a person's answer about a host. HostRefusedError without a client, or without an answer in time."""
        if self._feed.audience == 0:
            raise HostRefusedError(f"No client is connected that could allow {host}.")
        request = messages.PermissionRequest(
            str(uuid.uuid4()),
            mission_id,
            NETWORK,
            {"host": host},
            background=mission_id is None,
            always=host,
            session=host,
            kind="host",
            exposed=self.label.is_exposed,
            foreign=self.label.foreign({"host": host}),
        )
        try:
            return await self._word_on(request)
        except DeniedError as error:
            raise HostRefusedError(f"{host} is not allowed: {error}") from error

    async def _word_on(self, request: messages.PermissionRequest) -> messages.Decision:
        request_id, size = request.request_id, self._size(request)
        answer: asyncio.Future[messages.Decision] = asyncio.get_running_loop().create_future()
        self._open[request_id] = request, answer
        self._open_bytes += size
        self._feed.publish(request)
        decision: messages.Decision | None = None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                decision = await answer
        except TimeoutError:
            raise DeniedError(
                "Nobody answered within 10 minutes. Go on without this call, or try it again later."
            ) from None
        finally:
            del self._open[request_id]
            self._open_bytes -= size
            # Every client that shows the question removes it.
            self._feed.publish(messages.PermissionResolved(request_id, decision))
        return decision

    def _size(self, request: messages.PermissionRequest) -> int:
        """Return the size of a question in bytes. Raises DeniedError if it cannot be shown whole to a person."""
        if not arrives_as_it_is(request.input):
            raise DeniedError(
                "This call has characters or numbers that cannot be shown to a person. Do it without them."
            )
        size = len(encode(request))
        if size > MAX_OPEN_BYTES:
            raise DeniedError(
                f"This call has {size:,} bytes, too long to be shown whole to the person who has to allow it "
                f"({MAX_OPEN_BYTES:,} at most). Do it in smaller steps: write a long file part by part."
            )
        if self._open_bytes + size > MAX_OPEN_BYTES:
            raise DeniedError("Other long questions wait for the person's word. Ask again when they are answered.")
        return size

    def answer(self, request_id: str, decision: messages.Decision) -> None:
        """Answer a question; "always" without a narrow rule means once. Raises PeerError if it is not open."""
        found = self._open.get(request_id)
        if found is None or found[1].done():
            raise PeerError("This question is not open any more.", code="not_found")
        request, answer = found
        is_offered = {"always": request.always, "session": request.session}.get(decision, "") is not None
        answer.set_result(decision if is_offered else "allow")

    def withdraw(self, mission_id: str | None = None) -> None:
        """Deny the turn's open questions, except those of background work; without a turn, all questions."""
        for request, answer in self._open.values():
            is_meant = mission_id is None or (request.mission_id == mission_id and not request.background)
            if is_meant and not answer.done():
                answer.set_result("deny")
