"""The resilient link to one sprite: connect, resume after a cut, check that it lives, and report the link's state.

It has one listener, and one connection at a time, however many clients wait for it.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import msgspec

from bridge.providers.provider import Channel, HostError, MachineGoneError, Reached, Report, printable
from sprite.common.limits import TokenBucket
from sprite.common.tasks import Service, backoff, off_loop, owned_task
from sprite.protocol.frames import FatalPeerError, FrameDecoder, PeerError, ServerMessage, decode_server, encode
from sprite.protocol.messages import PROTOCOL_VERSION, Auth, AuthOk, Error, Gap, Resume, System
from sprite.protocol.outbox import Position
from sprite.protocol.replication import Lease

#: Opens a channel to one sprite, waking and creating what is missing. Raises HostError.
Reach = Callable[[Report], Awaitable[Reached]]

#: A sprite keeps its frames under 1 MiB; a frame of twice that size is invalid.
_MAX_FRAME_BYTES = 2 * 1024 * 1024
#: The sprite answers `auth` immediately.
_HANDSHAKE_SECONDS = 10.0
#: Enough for a replay of 5,000 events or a large canvas at once, then for more than any agent sends. Faster sprites
#: are throttled through TCP, and may cut the connection.
_BYTES_PER_SECOND, _BYTES_BURST = 8 * 2**20, 32 * 2**20
_FRAMES_PER_SECOND, _FRAMES_BURST = 2_000.0, 20_000.0
#: JavaScript cannot represent larger numbers.
_LARGEST_SEQ = 2**53 - 1
_LATEST_TIMESTAMP = 2**53
#: Messages handled before other tasks get a turn.
_FRAMES_A_TURN = 32
_LONGEST_EPOCH = 200
_LONGEST_VERSION = 40
_MOST_LIMITS, _LONGEST_LIMIT = 32, 40
_LONGEST_WORDS = 300


class Pace:
    """Limit the rate of a sprite's frames over all its connections: a reconnect gives no new burst."""

    def __init__(self) -> None:
        self._bytes = TokenBucket(_BYTES_PER_SECOND, _BYTES_BURST)
        self._frames = TokenBucket(_FRAMES_PER_SECOND, _FRAMES_BURST)

    def take(self, size: int) -> float:
        """Count a frame of `size` bytes; return the seconds to wait before reading the next frame."""
        return max(self._bytes.take(size), self._frames.take(1))


class LinkError(Exception):
    """The connection to a sprite failed or was refused, as the message says. `retryable`: a retry soon may help."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class StaleOwnerError(LinkError):
    """The sprite refuses a lease of `epoch`: it knows a `newest` one, which may be forged (0: not reported)."""

    def __init__(self, epoch: int, newest: int) -> None:
        super().__init__("Another bridge has this sprite.")
        self.epoch = epoch
        self.newest = newest


class SpriteConnection:
    """A connection to a sprite. Create it with `open`; call `message` until it raises, then `close`."""

    def __init__(self, channel: Channel, pace: Pace, lease: Lease | None = None) -> None:
        self._channel = channel
        self._lease = lease
        self._decoder = FrameDecoder(_MAX_FRAME_BYTES)
        self._pace = pace
        self._turn = 0
        #: Time of the last bytes, by the monotonic clock.
        self.heard_at = time.monotonic()

    @classmethod
    async def open(
        cls, reach: Reach, report: Report, resume: Resume | None, pace: Pace, client: str = "bridge"
    ) -> tuple["SpriteConnection", AuthOk]:
        """Connect to the sprite and shake hands. Raise HostError, LinkError, OSError or TimeoutError."""
        reached = await reach(report)
        connection = cls(reached.channel, pace, reached.lease)
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                auth = Auth(token=reached.token, client=client, resume=resume, lease=reached.lease)
                reached.channel.write(encode(auth))
                await reached.channel.drain()
                return connection, await connection.welcome()
        except BaseException:
            await connection.close()
            raise

    async def welcome(self) -> AuthOk:
        """Return the answer to `auth`. Raise LinkError if it is a refusal or invalid."""
        welcome = (await self.message()).payload
        if isinstance(welcome, Error):
            raise LinkError(
                f"The sprite refused the bridge: {printable(welcome.message[:_LONGEST_WORDS])}",
                retryable=welcome.code != "unsupported_protocol",
            )
        if not isinstance(welcome, AuthOk) or welcome.protocol != PROTOCOL_VERSION:
            raise LinkError("The program at this address is not a sprite, or has an incompatible version.")
        if len(welcome.epoch) > _LONGEST_EPOCH or not 0 <= welcome.last_seq <= _LARGEST_SEQ:
            raise LinkError("The sprite's first message is invalid.")
        known = [(name, limit) for name, limit in welcome.limits.items() if len(name) <= _LONGEST_LIMIT]
        # Operators see the version in a terminal.
        version = printable(welcome.server_version[:_LONGEST_VERSION])
        return msgspec.structs.replace(welcome, server_version=version, limits=dict(known[:_MOST_LIMITS]))

    async def message(self) -> ServerMessage:
        """Return the next message, skipping unknown ones. Raise LinkError or OSError at the end."""
        while True:
            frame = self._next_frame()
            if frame is None:
                data = await self._channel.read()
                if not data:
                    raise LinkError("The sprite closed the connection.")
                self.heard_at = time.monotonic()
                self._decoder.feed(data)
                continue
            self._turn = (self._turn + 1) % _FRAMES_A_TURN
            pause = self._pace.take(len(frame))
            if pause or not self._turn:
                await asyncio.sleep(pause)
            try:
                message = await off_loop(len(frame), decode_server, frame)
            except FatalPeerError as error:
                raise LinkError("The sprite sent an invalid message.") from error
            except PeerError:
                # A newer sprite may send unknown messages; its next event carries a higher seq.
                continue
            if isinstance(message.payload, Error) and message.payload.code == "stale_owner" and self._lease is not None:
                raise StaleOwnerError(self._lease.epoch, message.payload.newest or 0)
            if message.seq is not None and not 0 < message.seq <= _LARGEST_SEQ:
                raise LinkError("The sprite's event numbers are invalid.")
            if not 0 <= message.timestamp < _LATEST_TIMESTAMP:
                # An invalid time: the bridge's own replaces it.
                message = msgspec.structs.replace(message, timestamp=0)
            return message

    def write(self, frame: bytes) -> None:
        """Queue a frame; connection errors appear in `drain` and `message`."""
        self._channel.write(frame)

    async def drain(self) -> None:
        """Wait while too much is queued. Raise OSError if the connection was cut."""
        await self._channel.drain()

    async def close(self) -> None:
        """Close within a bounded time; idempotent."""
        await self._channel.close()

    def _next_frame(self) -> bytes | None:
        try:
            return self._decoder.next_frame()
        except FatalPeerError as error:
            raise LinkError("The sprite sent a message that is too large.") from error


log = logging.getLogger(__name__)

State = Literal["connecting", "waking", "ready", "updating", "unavailable"]

#: A host bounds its own steps; this only ends an attempt that hangs.
_REACH_SECONDS = 1800.0
#: After a cut, attempts are so frequent that people are back within a second of the sprite's return ...
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 0.8
#: ... for this long; later attempts are less and less frequent, until a person does something.
_HOPEFUL_SECONDS, _WEARY_WAIT_SECONDS = 60.0, 15.0
#: Pause where a retry alone does not help, because a person has to act first.
_HOPELESS_WAIT_SECONDS = 30.0
#: A connection that lasted this long was good: the next attempts are frequent again.
_SETTLED_SECONDS = 1.0
#: Shortest pause between attempts, however often a retry is requested.
_SHORTEST_WAIT_SECONDS = 0.1
#: A sprite that was silent for this long is probed, and has this long to answer.
_SILENT_SECONDS, _ANSWER_SECONDS = 20.0, 10.0
_WATCHES_A_SILENCE = 20
#: A sprite sends its state right after its welcome.
_STATE_SECONDS = 30.0
#: Limits the log lines about a sprite that breaks off after every connection.
COMPLAINTS_PER_SECOND, COMPLAINTS_AT_ONCE = 1 / 60, 5.0


class LinkDownError(Exception):
    """There is currently no connection to the sprite."""


@dataclass(frozen=True, slots=True)
class LinkChange:
    """State of the link to the sprite; `detail` is an explanation for people, where it helps.

    `offer` is what the person may request, as in LinkState; `as_of` is the time of the replica in Unix seconds.
    """

    state: State
    detail: str = ""
    offer: Literal["restore", "choose"] | None = None
    as_of: float | None = None


class Listener(Protocol):
    """Receive the events of a link; no method may block."""

    @property
    def rests(self) -> bool:
        """Return whether the sprite may sleep: then the link does not probe it, nor wake it after a cut."""

    @property
    def awaits_state(self) -> bool:
        """Return whether a `state_sync` must arrive before other messages make sense."""

    def changed(self, change: LinkChange) -> None:
        """Handle a new state of the link. `ready` comes after `welcomed`."""

    def welcomed(self, welcome: AuthOk, *, continues: bool) -> Sequence[bytes]:
        """Handle a new connection; return the frames to send first.

        If it `continues`, all missed events follow, unless a `gap` says otherwise; else a `state_sync` follows.
        """

    def heard(self, message: ServerMessage) -> None:
        """Handle the next message; each durable event arrives once, in order."""

    @property
    def may_speak(self) -> bool:
        """Return whether this bridge has the sprite now; otherwise nothing is sent to it."""

    @property
    def why_silent(self) -> str:
        """Return why this bridge may not send to the sprite, as a message for people."""

    def stale(self, epoch: int, newest: int) -> None:
        """Handle a refusal: the sprite knows a newer owner, `newest`, than this bridge's lease `epoch`."""

    def died(self) -> None:
        """Handle a bug that ended the link. At the end of its block, the link raises TaskDiedError."""


class Link(Service):
    """`async with Link(name, reach, listener) as link:` keeps the connection up while the block runs."""

    def __init__(self, sprite: str, reach: Reach, listener: Listener) -> None:
        self._reach = reach
        self._sprite = sprite
        self._listener = listener
        self._connection: SpriteConnection | None = None
        self._pace = Pace()
        self._complaints = TokenBucket(COMPLAINTS_PER_SECOND, COMPLAINTS_AT_ONCE)
        self._attempts = 0
        self._down_since = time.monotonic()
        #: Whether there is no connection, and none is tried until a client needs the sprite.
        self.is_at_rest = False
        self._nudged = asyncio.Event()
        #: The current attempt or connection, so that it can be ended from outside.
        self._attempt: asyncio.Timeout | None = None
        self._probe_id = str(uuid.uuid4())
        self.change = LinkChange("connecting")
        self._position = Position()
        #: The sprite's newest welcome, or None before the first connection.
        self.welcome: AuthOk | None = None

    @property
    def last_seq(self) -> int:
        """Return the newest durable event that this link has received."""
        return self._position.last_seq

    @property
    def is_ready(self) -> bool:
        """Return whether a frame that is sent now goes out at once."""
        return self._connection is not None

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(
            owned_task(self._run(), name=f"link {self._sprite}", on_death=self._listener.died)
        )

    def let_go(self) -> None:
        """End the connection or attempt at once; the next attempt checks again which bridge owns the sprite."""
        if self._attempt is not None and not self._attempt.expired():
            self._attempt.reschedule(0)

    def nudge(self) -> None:
        """End the pause between two attempts to connect, because a client waits."""
        self._nudged.set()

    def report(self, state: State, message: str) -> None:
        """Tell the listener what another part of the bridge does with the sprite's machine; not while connected."""
        if self._connection is None:
            self._tell(LinkChange(state, message))

    async def send(self, frame: bytes) -> None:
        """Send a frame at the connection's pace. Raise LinkDownError if there is no connection, or if it breaks."""
        connection = self._connection
        if connection is None or not self._listener.may_speak:
            raise LinkDownError
        connection.write(frame)
        try:
            await connection.drain()
        except OSError as error:
            raise LinkDownError from error

    async def _run(self) -> None:
        while True:
            try:
                await self._until_let_go()
            except StaleOwnerError as error:
                self._listener.stale(error.epoch, error.newest)
                await self._pause(error)
            except (HostError, LinkError, OSError, TimeoutError) as error:
                await self._pause(error)
            except Exception:
                # A bug must not leave people waiting for ever, so the link retries; the traceback is logged.
                log.exception("the link to %s failed", self._sprite)
                await self._pause(LinkError("Something went wrong inside the bridge; see its log."))

    async def _until_let_go(self) -> None:
        attempt = asyncio.timeout(None)
        try:
            async with attempt:
                self._attempt = attempt
                await self._one_connection()
        except TimeoutError as error:
            if not attempt.expired():
                raise
            raise LinkError(self._listener.why_silent) from error
        finally:
            self._attempt = None

    async def _one_connection(self) -> None:
        self._attempts += 1
        if self._listener.awaits_state:
            # The last connection broke before its state arrived. A sprite sends no state to a client that resumes.
            self._position = Position()
        self._report("connecting", "")
        epoch = self._position.epoch
        resume = None if epoch is None else Resume(epoch=epoch, last_seq=self.last_seq)
        async with asyncio.timeout(_REACH_SECONDS):
            connection, welcome = await SpriteConnection.open(self._reach, self._report, resume, self._pace)
        since = time.monotonic()
        try:
            continues = self._position.welcome(welcome.epoch, welcome.last_seq)
            self.welcome = welcome
            for frame in self._listener.welcomed(welcome, continues=continues):
                connection.write(frame)
            self._connection = connection
            self._tell(LinkChange("ready"))
            await self._hold(connection)
        finally:
            self._connection = None
            self._down_since = time.monotonic()
            if self._down_since - since > _SETTLED_SECONDS:
                self._attempts = 0
            await connection.close()

    async def _hold(self, connection: SpriteConnection) -> None:
        """Read the sprite's messages until the connection ends or stops answering."""
        reading = asyncio.create_task(self._read(connection), name=f"read {self._sprite}")
        watching = asyncio.create_task(self._watch(connection), name=f"watch {self._sprite}")
        try:
            done, _ = await asyncio.wait({reading, watching}, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            reading.cancel()
            watching.cancel()
            await asyncio.gather(reading, watching, return_exceptions=True)

    async def _read(self, connection: SpriteConnection) -> None:
        while True:
            message = await connection.message()
            if message.reply_to == self._probe_id:
                continue
            if message.seq is not None and not self._position.advance(message.seq):
                continue
            if message.seq is None and isinstance(message.payload, Gap):
                self._position.skip()
            self._listener.heard(message)

    def _report(self, state: State, message: str) -> None:
        # Each new attempt begins like this; clients that know of the last failure are informed only of news.
        if state != "connecting" or self.change.state != "unavailable":
            self._tell(LinkChange(state, message))

    def _tell(self, change: LinkChange) -> None:
        if change != self.change:
            self.change = change
            self._listener.changed(change)

    # --- when to try, and when to give up ---

    async def _pause(self, error: Exception) -> None:
        """Wait longer after each failure, or until a nudge. While nobody needs the sprite, wait only for a nudge."""
        if self._complaints.wait(1) == 0:
            self._complaints.take(1)
            log.info("no link to %s: %s", self._sprite, type(error).__name__)
        if self._listener.rests and not isinstance(error, MachineGoneError):
            self._nudged.clear()
            self._tell(LinkChange("ready", "Asleep. It wakes when you do something."))
            self.is_at_rest = True
            try:
                await self._nudged.wait()
            finally:
                self.is_at_rest = False
            self._attempts, self._down_since = 0, time.monotonic()
            return
        self._nudged.clear()
        change = LinkChange("unavailable", describe(error))
        if isinstance(error, MachineGoneError):
            change = replace(change, offer="restore", as_of=error.as_of)
        self._tell(change)
        await asyncio.sleep(_SHORTEST_WAIT_SECONDS)
        try:
            async with asyncio.timeout(self._wait_seconds(error)):
                await self._nudged.wait()
        except TimeoutError:
            return

    def _wait_seconds(self, error: Exception) -> float:
        if not getattr(error, "retryable", True):
            return _HOPELESS_WAIT_SECONDS
        hopeful = time.monotonic() - self._down_since < _HOPEFUL_SECONDS
        longest = _LONGEST_WAIT_SECONDS if hopeful else _WEARY_WAIT_SECONDS
        return max(0.0, backoff(self._attempts, _FIRST_WAIT_SECONDS, longest) - _SHORTEST_WAIT_SECONDS)

    async def _watch(self, connection: SpriteConnection) -> None:
        """Probe the sprite for ever; raise LinkError if it does not answer."""
        began_at, asked_at = time.monotonic(), None
        while True:
            await asyncio.sleep(_SILENT_SECONDS / _WATCHES_A_SILENCE)
            now = time.monotonic()
            if self._listener.awaits_state and now - began_at > _STATE_SECONDS:
                raise LinkError("The sprite does not report its state.")
            if asked_at is not None and connection.heard_at >= asked_at:
                asked_at = None
            if asked_at is not None and now - asked_at > _ANSWER_SECONDS:
                raise LinkError("The sprite does not answer any more.")
            if asked_at is None and now - connection.heard_at > _SILENT_SECONDS and not self._listener.rests:
                asked_at = now
                if not self._listener.may_speak:
                    raise LinkError(self._listener.why_silent)
                connection.write(encode(System(action="status"), message_id=self._probe_id))


def describe(error: Exception) -> str:
    """Describe an error for people: with our own messages, never the system's."""
    if isinstance(error, LinkError | HostError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "The sprite does not answer in time."
    return "The connection to the sprite broke."
