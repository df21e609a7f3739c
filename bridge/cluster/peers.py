"""The other bridges over the same database: which ones run, whether they accept this one's signature, and their keys.

Every bridge registers in the table `bridges` and probes the others at their addresses. Each problem is logged once,
with instructions for the operator, before a person runs into it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp

from bridge.cluster.forward_header import ANSWER, ForwardedIdentity, ForwardHeader
from bridge.db.open import DatabaseError
from sprite.common.tasks import TaskSet, owned_task

if TYPE_CHECKING:
    from bridge.cluster.forward_header import RequestSigner
    from bridge.db.open import Database


log = logging.getLogger(__name__)

#: Path at which a bridge answers whether it accepts the caller's signature.
PATH: Final = "/healthz/peer"
_LOOK_SECONDS: Final = 20.0
#: A bridge that did not register for this long counts as gone.
GONE_SECONDS: Final = 60.0
#: A killed bridge leaves its row, which is deleted after this time.
_FORGOTTEN_SECONDS = 86400.0
_ANSWER_SECONDS = 5.0
#: One miss is normal while a bridge starts or stops.
_MISSES_TO_SAY = 2

_HERE = """
INSERT INTO bridges (name, address, store_keys, seen_at) VALUES (?, ?, ?, db_now())
ON CONFLICT (name) DO UPDATE SET store_keys = excluded.store_keys, seen_at = excluded.seen_at
"""
_TIDY = "DELETE FROM bridges WHERE seen_at <= db_now() - ?"
_GONE = "DELETE FROM bridges WHERE name = ?"
_RUNNING = "SELECT name, address, store_keys FROM bridges WHERE seen_at > db_now() - ? ORDER BY address, name"

_UNSIGNED = (
    "The bridge at {address} does not believe this one: BRIDGE_CLUSTER_SECRET differs between them. Set the same for "
    "each and restart them; until then people who come to the one for an agent of the other are refused."
)
_LATE = (
    "The clocks of this bridge and of the one at {address} differ too much: set them right (NTP). Until then people "
    "who come to the one for an agent of the other are refused."
)
_SILENT = (
    "The bridge at {address} cannot be reached from here, so people who come here for an agent of its are told to come "
    "again. Does BRIDGE_ADDRESS there lead to it from this machine, and is the network between them whole?"
)
_UNSEALED = (
    "Another bridge runs over this database, at {address}, and this one has no BRIDGE_CLUSTER_SECRET: nobody is passed "
    "on between them. Set the same for each and restart them."
)
_OTHER_KEY = (
    "The bridge at {address} seals what is stored of agents with a key that is not here: set the same BRIDGE_STORE_KEY "
    "for each and restart them."
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A running bridge: its URL and the ids of its store keys, the encrypting one first."""

    name: str
    address: str
    store_keys: tuple[str, ...]


async def running(database: Database) -> list[Peer]:
    """Return the running bridges of a database, by address. Raises DatabaseError."""
    return [_peer(row) for row in await database.statement(_RUNNING, (GONE_SECONDS,))]


class Peers:
    """Registration and probing of bridges: `async with Peers(...) as peers:`.

    `address` is this bridge's URL for others, `store_keys` returns the ids of its keys. Without a `seal` this bridge
    forwards nothing.
    """

    def __init__(
        self,
        database: Database,
        address: str,
        seal: RequestSigner | None,
        store_keys: Callable[[], Sequence[str]],
        on_death: Callable[[], None],
        *,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._name = f"bridge-{uuid.uuid4()}"
        self._database = database
        self._address = address
        self._seal = seal
        self._store_keys = store_keys
        self._on_death = on_death
        self._look_seconds = look_seconds
        self._misses: dict[str, int] = {}
        self._troubles: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        )
        await self._stack.enter_async_context(
            owned_task(self._look_on(), name="other bridges", on_death=self._on_death)
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()
        try:
            await self._database.statement(_GONE, (self._name,))
        except DatabaseError as refused:
            # The row expires in a minute anyway.
            log.debug("the row of this bridge stays (%s)", refused.code)

    def troubles(self) -> list[str]:
        """Return the problems between this bridge and others, as messages for operators, by address."""
        return [words for _, words in sorted(self._troubles.items())]

    async def _look_on(self) -> None:
        while True:
            try:
                await self._look()
            except DatabaseError as error:
                # Leases already log that the database is away.
                log.debug("the other bridges are not known (%s)", error.code)
            await asyncio.sleep(self._look_seconds)

    async def _look(self) -> None:
        await self._database.statement(_HERE, (self._name, self._address, " ".join(self._store_keys())))
        await self._database.statement(_TIDY, (_FORGOTTEN_SECONDS,))
        others = [peer for peer in await running(self._database) if peer.name != self._name]
        said = dict(zip(others, await asyncio.gather(*map(self._trouble, others)), strict=True))
        found = {peer.address: words for peer, words in said.items() if words}
        for address, words in found.items():
            if self._troubles.get(address) != words:
                log.warning("%s", words)
        here = {peer.address for peer in others}
        for address in self._troubles.keys() - found.keys():
            if address in here:
                log.info("all is well between this bridge and the one at %s", address)
            else:
                log.info("the bridge at %s does not run any more", address)
        self._troubles = found
        self._misses = {peer.name: count for peer in others if (count := self._misses.get(peer.name))}

    async def _trouble(self, peer: Peer) -> str:
        """Return what is wrong with a bridge, as a message, or "" if all is well."""
        if self._seal is None:
            return _UNSEALED.format(address=peer.address)
        answer = await self._answer(peer, self._seal)
        self._misses[peer.name] = self._misses.get(peer.name, 0) + 1 if answer is None else 0
        if answer is None:
            return _SILENT.format(address=peer.address) if self._misses[peer.name] >= _MISSES_TO_SAY else ""
        if answer:
            return (_LATE if answer == "late" else _UNSIGNED).format(address=peer.address)
        own = self._store_keys()
        if own and peer.store_keys and peer.store_keys[0] not in own:
            return _OTHER_KEY.format(address=peer.address)
        return ""

    async def _answer(self, peer: Peer, seal: RequestSigner) -> str | None:
        """Return the reason for which it rejects this bridge, "" if it accepts it, None if it does not answer."""
        assert self._session is not None  # noqa: S101 - it has begun
        headers = seal.headers(
            "GET", PATH, ForwardHeader(ForwardedIdentity("", "operator", None), 0, uuid.uuid4().hex[:16])
        )
        try:
            async with self._session.get(f"{peer.address}{PATH}", headers=headers, allow_redirects=False) as response:
                is_refused = response.status == HTTPStatus.FORBIDDEN
                return response.headers.get(ANSWER, "") if is_refused else "" if response.ok else None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return None


def _peer(row: Any) -> Peer:
    return Peer(row["name"], row["address"], tuple(row["store_keys"].split()))


BEAT_SECONDS = 2.0
_MISSED = 3


class SilentError(Exception):
    """The other bridge has failed too many probes."""


class Pulses:
    """Wrap a forwarded request in `async with pulses.felt(address):`. `session` sends the probes."""

    def __init__(self, session: aiohttp.ClientSession, beat_seconds: float = BEAT_SECONDS) -> None:
        self._session = session
        self._beat_seconds = beat_seconds
        #: The blocks that wait for each bridge.
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self._tasks = TaskSet()

    async def close(self) -> None:
        """Stop all probes."""
        await self._tasks.close()

    @asynccontextmanager
    async def felt(self, address: str) -> AsyncIterator[None]:
        """Run the block while the bridge answers probes. Raises SilentError inside it once it stops answering."""
        if address not in self._waiting:
            self._tasks.start(self._beat(address), "pulse")
        waiting = self._waiting.setdefault(address, set())
        try:
            async with asyncio.timeout(None) as until:
                waiting.add(until)
                try:
                    yield
                finally:
                    waiting.discard(until)
        except TimeoutError as error:
            if until.expired():
                raise SilentError from error
            raise

    async def _beat(self, address: str) -> None:
        missed = 0
        try:
            while waiting := self._waiting[address]:
                began = asyncio.get_running_loop().time()
                missed = 0 if await self._lives(address) else missed + 1
                if missed == _MISSED:
                    missed = 0
                    for until in waiting:
                        until.reschedule(began)
                left = began + self._beat_seconds - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, left))
        finally:
            del self._waiting[address]

    async def _lives(self, address: str) -> bool:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with (
                asyncio.timeout(self._beat_seconds),
                self._session.get(f"{address}/healthz", allow_redirects=False),
            ):
                # Any answer counts.
                return True
        return False
