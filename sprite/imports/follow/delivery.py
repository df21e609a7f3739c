"""Delivery of turns to a sprite: through the workspace here, or a bridge elsewhere."""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

import msgspec

from sprite import __version__
from sprite.common.files import PART, replace_file
from sprite.common.tasks import backoff
from sprite.config import Settings
from sprite.errors import OperatorError, PeerError, StorageError, WorkspaceLockedError
from sprite.imports.claude_code_turns import SOURCE
from sprite.log.transcript import ImportedTurn
from sprite.owner import open_log, say_observed
from sprite.privacy.cutting import clean
from sprite.protocol.observing import (
    MAX_OBSERVED_BYTES,
    MAX_OBSERVED_TURNS,
    Observe,
    Observed,
    ObservedTool,
    ObservedTurn,
)

if TYPE_CHECKING:
    from types import TracebackType

    from httpx2 import AsyncClient, Response

#: Limit for a turn, so that it fits a frame and the log's limit for displayed turns.
MOST_TURN_BYTES = 900_000
#: Successive limits for long texts in the tool calls of a larger turn.
_SHORTER = (1000, 400, 100)


@dataclass(slots=True)
class Delivered:
    """Counts of turns: new in the log, already known, and refused, with the reason by the turn's key."""

    stored: int = 0
    known: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Delivered) -> None:
        """Add another's counts."""
        self.stored += other.stored
        self.known += other.known
        self.refused += other.refused


class Delivery(Protocol):
    """A destination for turns. `deliver` returns when they are stored safely, however long that takes."""

    @property
    def waiting(self) -> int:
        """The number of calls with turns that wait on this disk."""

    async def deliver(self, turns: Sequence[ImportedTurn]) -> Delivered:
        """Deliver turns, oldest first."""

    async def work(self) -> Delivered:
        """Do pending work; called periodically."""


def messages(turns: Sequence[ImportedTurn], most_bytes: int) -> Iterator[Observe]:
    """Yield messages of one project each, limited to `most_bytes` and MAX_OBSERVED_TURNS, in order.

    A larger single turn is shortened.
    """
    packed: list[ObservedTurn] = []
    project: str | None = None
    size = 0
    for turn in turns:
        fitted, length = _fitted(observed(turn))
        of = turn.observation.project
        if packed and (of != project or size + length > most_bytes or len(packed) == MAX_OBSERVED_TURNS):
            yield Observe(SOURCE, packed, project)
            packed, size = [], 0
        packed.append(fitted)
        project, size = of, size + length + 1
    if packed:
        yield Observe(SOURCE, packed, project)


def halves(message: Observe) -> tuple[Observe, Observe]:
    """Return a message's turns in two messages."""
    middle = len(message.turns) // 2
    first, second = message.turns[:middle], message.turns[middle:]
    return Observe(message.source, first, message.project), Observe(message.source, second, message.project)


def observed(turn: ImportedTurn) -> ObservedTurn:
    """Return a turn in wire format: redacted and cut as in the log."""
    kept = turn.observation
    return ObservedTurn(
        external_id=turn.key,
        session=kept.session_id,
        at=turn.ended_at,
        user=kept.user_message,
        tools=[_tool(call) for call in kept.tool_calls],
        reply=kept.agent_response,
        outcome=kept.outcome,
        notice=kept.notice,
        started_at=turn.started_at,
    )


def _tool(call: Mapping[str, Any]) -> ObservedTool:
    tool = msgspec.convert(call, ObservedTool)
    # A log's ids can be any text; half a surrogate pair cannot be sent.
    tool.tool_use_id = clean(tool.tool_use_id)
    tool.agent_id = None if tool.agent_id is None else clean(tool.agent_id)
    return tool


def _fitted(turn: ObservedTurn) -> tuple[ObservedTurn, int]:
    """Return a turn that fits a frame, and its size in bytes."""
    size = len(msgspec.json.encode(turn))
    for most in _SHORTER:
        if size <= MOST_TURN_BYTES:
            break
        for tool in turn.tools:
            tool.input, tool.result = _shortened(tool.input, most), _shortened(tool.result, most)
        size = len(msgspec.json.encode(turn))
    calls, notice = len(turn.tools), turn.notice
    while size > MOST_TURN_BYTES and turn.tools:
        turn.tools = turn.tools[: len(turn.tools) // 2]
        turn.notice = f"{notice}\n{calls - len(turn.tools)} more tool calls of this turn are not kept.".strip()
        size = len(msgspec.json.encode(turn))
    return turn, size


def _shortened(value: Any, most: int) -> Any:
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}... [cut: {len(value) - most} more characters]"
    if isinstance(value, dict):
        return {name: _shortened(part, most) for name, part in value.items()}
    return [_shortened(part, most) for part in value] if isinstance(value, list) else value


log = logging.getLogger(__name__)

#: First and longest pause between attempts, in seconds.
_LOCAL_PAUSES = (0.2, 5.0)
#: Error codes of a sprite for a message that can never be accepted.
_WRONG_CODES = frozenset({"bad_request", "bad_payload", "bad_message", "too_large"})


class LocalDelivery:
    """See Delivery. It waits as long as a sprite does not answer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trouble = ""

    @property
    def waiting(self) -> int:
        """See Delivery: everything delivered is in the log."""
        return 0

    async def deliver(self, turns: Sequence[ImportedTurn]) -> Delivered:
        """See Delivery."""
        failures = 0
        while True:
            try:
                delivered = await self._try(turns)
            except (OSError, ValueError, OperatorError, PeerError, StorageError) as error:
                # Both occur briefly while a sprite starts or ends; a command may also hold the workspace.
                self._say(str(error))
                await asyncio.sleep(backoff(failures, *_LOCAL_PAUSES))
                failures += 1
            else:
                if self._trouble:
                    log.info("turns are handed over again")
                self._trouble = ""
                return delivered

    async def work(self) -> Delivered:
        """See Delivery: there is no pending work."""
        return Delivered()

    async def _try(self, turns: Sequence[ImportedTurn]) -> Delivered:
        try:
            return await self._write(turns)
        except WorkspaceLockedError:
            delivered = Delivered()
            for message in messages(turns, MOST_TURN_BYTES):
                delivered.add(await self._send(message))
            return delivered

    async def _write(self, turns: Sequence[ImportedTurn]) -> Delivered:
        async with open_log(self._settings, briefly=True) as transcript:
            own = await transcript.cli_sessions()
            others = [turn for turn in turns if turn.observation.session_id not in own]
            new = await transcript.add_imported(others)
            return Delivered(len(new), len(turns) - len(new))

    async def _send(self, message: Observe) -> Delivered:
        try:
            answer = await say_observed(self._settings, message)
        except PeerError as error:
            if error.code not in _WRONG_CODES:
                raise
            # One unacceptable turn must not block the others.
            if len(message.turns) == 1:
                return Delivered(refused=[(message.turns[0].external_id, str(error))])
            delivered = Delivered()
            for half in halves(message):
                delivered.add(await self._send(half))
            return delivered
        return Delivered(answer.stored, answer.known, [(each.external_id, each.why) for each in answer.refused])

    def _say(self, trouble: str) -> None:
        """Log a problem once, not at each attempt."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("turns cannot be handed over yet, and are kept: %s", trouble)


#: Limit for the spool; later turns stay in the session logs and are read from there.
MOST_SPOOL_BYTES = 256 * 1024 * 1024
_SUFFIX = ".json"


class Spool:
    """A folder of bodies; a new one is queued behind all others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f".*{PART}"):
            # Left by a process killed while writing; its turns will be read again.
            left.unlink(missing_ok=True)
        self._sizes = {path: path.stat().st_size for path in sorted(folder.glob(f"*{_SUFFIX}"))}
        self._next = max((int(path.stem) for path in self._sizes if path.stem.isdecimal()), default=0) + 1

    def __len__(self) -> int:
        return len(self._sizes)

    def has_room(self, size: int) -> bool:
        """Return whether a body of this size fits; a single one always does."""
        return not self._sizes or sum(self._sizes.values()) + size <= MOST_SPOOL_BYTES

    def add(self, body: bytes) -> None:
        """Add a body; it is on disk when this returns. Raises OSError if the disk fails."""
        path = self._folder / f"{self._next:012d}{_SUFFIX}"
        replace_file(path, body)
        self._next += 1
        self._sizes[path] = len(body)

    def oldest(self) -> tuple[Path, bytes] | None:
        """Return the next body, or None."""
        for path in tuple(self._sizes):
            try:
                return path, path.read_bytes()
            except FileNotFoundError:
                # Another process or person deleted it.
                del self._sizes[path]
        return None

    def remove(self, path: Path) -> None:
        """Delete an acknowledged body."""
        path.unlink(missing_ok=True)
        self._sizes.pop(path, None)


#: Reserve for JSON syntax around the turns.
_MOST_BODY_BYTES = MAX_OBSERVED_BYTES - 64 * 1024
#: A bridge may have to wake a machine first.
_SECONDS = 90.0
_REMOTE_PAUSES = (1.0, 60.0)
#: Limit for a bridge's Retry-After.
_LONGEST_WAIT_SECONDS = 3600.0
_SPOOL_PAUSE_SECONDS = 0.5
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403
#: Statuses that blame the call itself, or one of its turns.
_WRONG_STATUSES = frozenset({400, 413, 422})
_MAX_WORDS = 300
_LOOPBACK_NAMES = frozenset({"localhost"})


class _ErrorWords(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _ErrorWords


class RemoteDelivery:
    """See Delivery. Send turns by `POST /v1/observations` to a remote bridge, and spool them while it is away.

    Use with `async with`; `token` is called before each request, so a new token is used at once.
    """

    def __init__(self, url: str, token: Callable[[], str], spool: Spool) -> None:
        self._url = f"{checked_url(url)}/v1/observations"
        self._token = token
        self.spool = spool
        self._http: AsyncClient | None = None
        self._not_before = 0.0
        self._failures = 0
        self._trouble = ""

    async def __aenter__(self) -> Self:
        http = await asyncio.to_thread(importlib.import_module, "httpx2")
        # Redirects are not followed, because the token is for this bridge only.
        self._http = http.AsyncClient(
            timeout=http.Timeout(_SECONDS, connect=10.0), headers={"User-Agent": f"sprite-follow/{__version__}"}
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()

    @property
    def waiting(self) -> int:
        """See Delivery."""
        return len(self.spool)

    async def deliver(self, turns: Sequence[ImportedTurn]) -> Delivered:
        """See Delivery: spooled turns are safe.

        If the spool is full, the turns stay in the logs until there is room.
        """
        delivered = Delivered()
        for message in messages(turns, _MOST_BODY_BYTES):
            body = msgspec.json.encode(message)
            while not self._spooled(body):
                delivered.add(await self.work())
                await asyncio.sleep(_SPOOL_PAUSE_SECONDS)
        return delivered

    async def work(self) -> Delivered:
        """See Delivery: send the waiting turns, oldest first, until all are sent or the bridge is unavailable."""
        delivered = Delivered()
        while time.monotonic() >= self._not_before and (oldest := self.spool.oldest()) is not None:
            path, body = oldest
            answer = await self._send(body)
            if answer is None:
                break
            self.spool.remove(path)
            delivered.add(answer)
        return delivered

    def _spooled(self, body: bytes) -> bool:
        if not self.spool.has_room(len(body)):
            self._say("too much waits already: what comes now stays in the session logs until there is room")
            return False
        try:
            self.spool.add(body)
        except OSError as error:
            self._say(f"the disk takes no more ({error.strerror})")
            return False
        return True

    async def _send(self, body: bytes) -> Delivered | None:
        """Send a body; return None if it has to wait."""
        response = await self._post(body)
        if response is None:
            return None
        if response.status_code == _OK:
            return self._answered(response)
        if response.status_code in _WRONG_STATUSES:
            return await self._send_in_parts(body, _words(response))
        if response.status_code in {_UNAUTHORIZED, _FORBIDDEN}:
            self._wait(f"the bridge does not take this token ({_words(response)}); it needs the scope `observe`")
        else:
            self._wait(f"the bridge answers {response.status_code}: {_words(response)}", _retry_after(response))
        return None

    async def _post(self, body: bytes) -> Response | None:
        if self._http is None:
            raise RuntimeError("not entered")
        http = importlib.import_module("httpx2")
        try:
            headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
            response: Response = await self._http.post(self._url, content=body, headers=headers)
        except OperatorError as error:
            self._wait(str(error))
        except (http.HTTPError, OSError) as error:
            self._wait(f"the bridge cannot be reached ({type(error).__name__})")
        else:
            return response
        return None

    def _answered(self, response: Response) -> Delivered | None:
        try:
            answer = msgspec.json.decode(response.content, type=Observed)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._wait("what answers at this address is no bridge")
            return None
        if self._trouble:
            log.info("turns are sent again")
        self._trouble, self._failures = "", 0
        return Delivered(
            answer.stored, answer.known, [(refused.external_id, refused.why) for refused in answer.refused]
        )

    async def _send_in_parts(self, body: bytes, why: str) -> Delivered | None:
        """Send a refused call's turns in halves, so that one unacceptable turn does not block the others."""
        message = msgspec.json.decode(body, type=Observe)
        if len(message.turns) <= 1:
            return Delivered(refused=[(turn.external_id, why) for turn in message.turns])
        delivered = Delivered()
        for half in halves(message):
            part = await self._send(msgspec.json.encode(half))
            if part is None:
                # All of it is sent again later; the accepted turns are known by then.
                return None
            delivered.add(part)
        return delivered

    def _wait(self, why: str, seconds: float | None = None) -> None:
        self._say(why)
        pause = backoff(self._failures, *_REMOTE_PAUSES) if seconds is None else seconds
        self._failures += 1
        self._not_before = time.monotonic() + pause

    def _say(self, trouble: str) -> None:
        """Log a problem once, not at each attempt."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("turns wait on this disk: %s", trouble)


def checked_url(url: str) -> str:
    """Return a bridge's address without a trailing slash. Raises OperatorError if it is unsafe for a token."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = None, None
    if parts is None or not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        raise OperatorError("--to needs the address of a bridge, such as https://sprite.example.org.")
    if parts.username is not None or parts.password is not None:
        raise OperatorError("--to has a user or a password in it: the token goes into --token-file.")
    if parts.scheme == "http" and not _is_loopback(host):
        raise OperatorError(f"--to {url}: without https anybody on the way could read your token and your sessions.")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK_NAMES


def token_from(file: Path | None, variable: str | None) -> Callable[[], str]:
    """Return a reader of the person's token that reads a file each time. It raises OperatorError without a token."""

    def read() -> str:
        if file is None:
            token = variable or ""
        else:
            try:
                with file.open("rb") as stream:
                    token = stream.read(4096).decode("ascii", "replace").strip()
            except OSError as error:
                raise OperatorError(f"The token in {file} cannot be read ({error.strerror}).") from error
        if not token or not token.isprintable() or not token.isascii() or " " in token:
            where = "the variable BRIDGE_TOKEN" if file is None else str(file)
            raise OperatorError(
                f"There is no token in {where}. `python -m bridge users token NAME --scope observe` prints one where "
                "the bridge runs."
            )
        return token

    return read


def _words(response: Response) -> str:
    try:
        words = msgspec.json.decode(response.content, type=_ErrorBody).error.message
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "no reason given"
    return "".join(sign if sign.isprintable() else " " for sign in words[:_MAX_WORDS])


def _retry_after(response: Response) -> float | None:
    try:
        return max(0.0, min(float(response.headers["Retry-After"]), _LONGEST_WAIT_SECONDS))
    except (KeyError, ValueError):
        return None
