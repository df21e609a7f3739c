"""People's connections to MCP servers, each connected at its first use and disconnected when idle."""

import asyncio
import importlib
import logging
import math
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from bridge.connections.store import NAME, ConnectionsError, ConnectionStore, Definition, Record, Tool
from bridge.db.database import DatabaseError
from bridge.replicas.store import StoreError
from sprite.common.limits import TokenBucket
from sprite.common.tasks import Service, TaskSet, owned_task
from sprite.protocol import shapes

if TYPE_CHECKING:
    from bridge.connections.login import Flow
    from bridge.connections.server import Server

log = logging.getLogger(__name__)

_CALLS_PER_MINUTE = 60
_AT_ONCE = 8
#: The number of calls is written behind this time.
_COUNT_SECONDS = 1.0
_RELIST_SECONDS = 60.0
_LOGIN_SECONDS = 600.0
_URL_SECONDS = 30.0
_LONG_AGO = 1.0
_MOST_FOUND = 8
_MOST_FOUND_BYTES = 24_000
#: Pinned tools are in every first request, which has room for these.
MOST_PINNED_BYTES = 4000
_MOST_CHANGED, _CHANGED_CHARS = 50, 1000
_WORD = re.compile(r"[a-z0-9]+")
_OFF = (
    "is off, because nobody is asked here before text from outside makes you use it. The person can turn it on in the "
    "settings."
)
#: The dynamic loader would obey them outside of the sandbox.
_UNSAFE_VARIABLE = re.compile(r"LD_|DYLD_")


class _Live:
    """A connection in memory, with its session if it is open."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.server: Server | None = None
        self.flow: Flow | None = None
        self.opening = asyncio.Lock()
        self.slots = asyncio.Semaphore(_AT_ONCE)
        self.bucket = TokenBucket(_CALLS_PER_MINUTE / 60, _CALLS_PER_MINUTE)
        self.state: Literal["new", "ready", "login", "failed"] = "new"
        self.detail = ""
        self.is_removed = False
        self.uncounted = 0

    async def close(self) -> None:
        """End the session with the server; its calls fail."""
        server, self.server = self.server, None
        if server is not None:
            await server.close()

    def end_login(self) -> None:
        """Cancel the login under way."""
        if self.flow is not None and self.flow.task is not None:
            self.flow.task.cancel()


class Connections(Service):
    """`async with Connections(...) as connections:`. Methods may raise ConnectionsError, DatabaseError or StoreError.

    `inside` permits servers in the bridge's own network. `tell` receives a person's connections after each change.
    """

    def __init__(
        self,
        store: ConnectionStore,
        data: Path,
        on_death: Callable[[], None] = lambda: None,
        *,
        inside: bool,
        tell: Callable[[str, list[shapes.Connection]], None] = lambda _person, _all: None,
    ) -> None:
        self._store = store
        self._data = data
        self._on_death = on_death
        self._inside = inside
        self._tell = tell
        self._people: dict[str, dict[str, _Live]] = {}
        self._loading = asyncio.Lock()
        self._tasks = TaskSet()
        self._counts = TaskSet()

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close)
        await stack.enter_async_context(owned_task(self._follow(), name="connections", on_death=self._on_death))

    async def _close(self) -> None:
        await self._tasks.close()
        await self._counts.close()
        with suppress(DatabaseError):
            await self._write_counts()
        await asyncio.gather(*(self.end(person) for person in tuple(self._people)))

    # --- for people ---

    async def listed(self, person: str) -> list[shapes.Connection]:
        """Return a person's connections, by name."""
        return [_shown(live) for _, live in sorted((await self._of(person)).items())]

    async def add(self, person: str, name: str, definition: Definition) -> shapes.Connection:
        """Store a new connection and connect to its server; the connection stays even if that fails."""
        self._check(name, definition)
        await self._of(person)
        record = Record(name, definition)
        await self._store.add(person, record)
        live = self._people[person][name] = _Live(record)
        definition.hold_secrets()
        return await self._tested(person, live)

    async def test(self, person: str, name: str) -> shapes.Connection:
        """Connect to a server again and list its tools."""
        live = await self._found(person, name)
        await live.close()
        return await self._tested(person, live)

    async def remove(self, person: str, name: str) -> None:
        """Delete a connection; its running calls fail."""
        live = await self._found(person, name)
        live.is_removed = True
        self._people[person].pop(name, None)
        live.end_login()
        await live.close()
        await self._store.remove(person, name)
        self._changed(person)

    async def agree(self, person: str, name: str, tools: Sequence[str]) -> shapes.Connection:
        """Agree to the changed tools with these digests."""
        live = await self._found(person, name)
        known = live.record
        agreed = {name: tool for name, tool in known.changed().items() if tool.digest in tools}
        known.agreed = {name: tool for name, tool in (known.agreed or {}).items() if name in known.listed} | agreed
        return await self._saved(person, live)

    async def switch(self, person: str, name: str, *, on: bool) -> shapes.Connection:
        """Allow or forbid (`on`) calls where the person is not asked before words from outside act."""
        live = await self._found(person, name)
        live.record.is_on = on
        return await self._saved(person, live)

    async def pin(self, person: str, name: str, tools: Sequence[str]) -> shapes.Connection:
        """Replace the tools that agents are offered directly."""
        live = await self._found(person, name)
        for tool in tools:
            _check_usable(live, tool)
        before, live.record.pinned = live.record.pinned, list(dict.fromkeys(tools))
        if len(msgspec.json.encode(await self.pinned(person))) > MOST_PINNED_BYTES:
            live.record.pinned = before
            raise ConnectionsError("limit", f"Pinned tools may have {MOST_PINNED_BYTES:,} bytes together. Unpin some.")
        return await self._saved(person, live)

    async def login(self, person: str, name: str, redirect_uri: str) -> str:
        """Begin a login at the server. Return where the person logs in."""
        live = await self._found(person, name)
        if not live.record.definition.url:
            raise ConnectionsError("invalid", f"{name} runs on this machine and has no login.")
        await _loaded()
        from bridge.connections.login import Flow

        live.end_login()
        flow = live.flow = Flow(redirect_uri)
        task = flow.task = self._tasks.start(self._log_in(person, live, flow), f"login of {person} at {name}")
        waited: set[asyncio.Future[Any]] = {task, flow.url}
        await asyncio.wait(waited, timeout=_URL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not flow.url.done():
            task.cancel()
            raise ConnectionsError("failed", live.detail or f"{name} needs no login.")
        return flow.url.result()

    async def logged_in(self, person: str, code: str, state: str, issuer: str | None) -> None:
        """Finish the login that `state` identifies, with the code that the person's browser brings back."""
        from mcp.shared.auth import AuthorizationCodeResult

        for live in (await self._of(person)).values():
            flow = live.flow
            if flow is not None and flow.is_about(state):
                flow.code.set_result(AuthorizationCodeResult(code=code, state=state, iss=issuer))
                assert flow.task is not None  # noqa: S101 - it is set before the URL is known
                await asyncio.wait({flow.task})
                if live.state != "ready":
                    raise ConnectionsError(live.state, live.detail)
                return
        raise ConnectionsError("not_found", "This login was not begun here, or too long ago. Begin again.")

    # --- for sprites ---

    async def pinned(self, person: str) -> list[dict[str, Any]]:
        """Return the pinned tools that may be used, as agents see tools: with the name of their connection."""
        found = []
        for live in (await self._of(person)).values():
            usable = live.record.usable()
            found += [_offered(live, usable[name]) for name in live.record.pinned if name in usable]
        return found

    async def find(self, person: str, query: str) -> tuple[list[dict[str, Any]], int]:
        """Return the tools that fit a query best, and how many others fit."""
        words = set(_WORD.findall(query.lower()))
        scores = [
            (-score, live.record.name, tool.name, live, tool)
            for live in (await self._of(person)).values()
            for tool in live.record.usable().values()
            if (score := _score(words, live.record.name, tool))
        ]
        found: list[dict[str, Any]] = []
        size = 0
        for *_, live, tool in sorted(scores, key=lambda each: each[:3]):
            offered = _offered(live, tool)
            size += len(msgspec.json.encode(offered))
            if len(found) == _MOST_FOUND or (found and size > _MOST_FOUND_BYTES):
                break
            found.append(offered)
        return found, len(scores) - len(found)

    async def use(
        self, person: str, connection: str, tool: str, arguments: dict[str, Any], *, binds: bool = True
    ) -> tuple[str, bool]:
        """Call a tool of a connection. Return its result as text, and whether it is an error.

        `binds`: the sprite asks before words from outside act. Otherwise the person must have switched it on.
        """
        live = await self._found(person, connection)
        if not (binds or live.record.is_on):
            raise ConnectionsError("off", f"{connection} {_OFF}")
        if live.slots.locked():
            raise ConnectionsError("limit", f"{connection} has {_AT_ONCE} calls under way. Try again soon.")
        # A call that finds no server counts as well: each may start a process.
        self._count(live)
        async with live.slots:
            server = await self._reached(person, live)
            if time.monotonic() - server.listed_at > _RELIST_SECONDS:
                await self._list(person, live, server)
            _check_usable(live, tool)
            try:
                return await server.call(tool, arguments)
            except ConnectionsError as error:
                self._note(person, live, error)
                raise

    async def end(self, person: str) -> None:
        """End a person's sessions, with their calls."""
        await asyncio.gather(*(live.close() for live in self._people.pop(person, {}).values()))

    # --- records ---

    async def _of(self, person: str) -> dict[str, _Live]:
        if person not in self._people:
            async with self._loading:
                if person not in self._people:
                    records = await self._store.of(person)
                    self._people[person] = {record.name: _Live(record) for record in records}
        return self._people[person]

    async def _found(self, person: str, name: str) -> _Live:
        live = (await self._of(person)).get(name)
        if live is None:
            raise ConnectionsError("not_found", f"There is no connection {name[:40]!r}.")
        return live

    async def _saved(self, person: str, live: _Live) -> shapes.Connection:
        await self._store.save(person, live.record)
        self._changed(person)
        return _shown(live)

    def _changed(self, person: str) -> None:
        self._tell(person, [_shown(live) for _, live in sorted(self._people.get(person, {}).items())])

    def _check(self, name: str, definition: Definition) -> None:
        if NAME.fullmatch(name) is None:
            raise ConnectionsError("invalid", "A name has up to 24 of a-z, 0-9 and -, beginning with a letter.")
        if not definition.url and not definition.command:
            raise ConnectionsError("invalid", "A connection needs a URL or a command.")
        if unsafe := next(filter(_UNSAFE_VARIABLE.match, definition.env), None):
            raise ConnectionsError("invalid", f"The variable {unsafe} cannot be given to a server.")
        try:
            parts = urlsplit(definition.url or "https://command.invalid")
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ({"http", "https"} if self._inside else {"https"}) or not parts.hostname:
            raise ConnectionsError("invalid", "A server has an address that begins with https://.")
        if "@" in parts.netloc:
            raise ConnectionsError("invalid", "Give the token with --token-stdin, not in the address.")

    # --- sessions ---

    async def _tested(self, person: str, live: _Live) -> shapes.Connection:
        try:
            await self._reached(person, live)
        except ConnectionsError as error:
            log.info("a connection cannot be reached (%s)", error.code, extra={"person": person})
        self._changed(person)
        return _shown(live)

    async def _reached(self, person: str, live: _Live) -> "Server":
        if live.server is not None and not live.server.is_broken:
            return live.server
        async with live.opening:
            if live.server is not None and not live.server.is_broken:
                return live.server
            await live.close()
            definition = live.record.definition
            try:
                return await self._open_server(person, live, definition, None)
            except ConnectionsError as error:
                login = definition.login
                if error.code != "login" or login is None or (login.expires_at or _LONG_AGO) <= _LONG_AGO:
                    raise
                # The server may have ended the access token early. With an expired one, the library refreshes it.
                login.expires_at = _LONG_AGO
                return await self._open_server(person, live, definition, None)

    async def _open_server(self, person: str, live: _Live, definition: Definition, flow: "Flow | None") -> "Server":
        await _loaded()
        from bridge.connections.login import provider
        from bridge.connections.server import OPEN_SECONDS, Server

        async def save() -> None:
            if not live.is_removed:
                live.record.definition = definition
                await self._store.save(person, live.record)

        # Without tokens every attempt would register this client again.
        has_login = flow is not None or (definition.login is not None and definition.login.tokens is not None)
        auth = provider(definition, save, flow) if has_login else None
        server = Server(definition, self._data, inside=self._inside, auth=auth)
        try:
            await server.open(OPEN_SECONDS if flow is None else _LOGIN_SECONDS)
            await self._list(person, live, server)
        except BaseException as error:
            await server.close()
            if isinstance(error, ConnectionsError):
                self._note(person, live, error)
            raise
        before, live.server = live.server, server
        self._note(person, live, None)
        if before is not None:
            await before.close()
        return server

    async def _log_in(self, person: str, live: _Live, flow: "Flow") -> None:
        definition = msgspec.json.decode(msgspec.json.encode(live.record.definition), type=Definition)
        definition.token = ""
        try:
            await self._open_server(person, live, definition, flow)
        except (ConnectionsError, DatabaseError, StoreError) as error:
            log.info("a login at a connection's server failed (%s)", type(error).__name__, extra={"person": person})
        finally:
            if live.flow is flow:
                live.flow = None

    async def _list(self, person: str, live: _Live, server: "Server") -> None:
        """Store the list of a server's tools. After the first list, new and changed ones wait for the person."""
        listed, known = await server.list_tools(), live.record
        if live.is_removed:
            raise ConnectionsError("not_found", "The connection was removed.")
        if known.agreed is None or listed != known.listed:
            known.listed = listed
            if known.agreed is None:
                known.agreed = dict(listed)
            await self._saved(person, live)

    def _note(self, person: str, live: _Live, error: ConnectionsError | None) -> None:
        before = live.state, live.detail
        live.state = "ready" if error is None else "login" if error.code == "login" else "failed"
        live.detail = "" if error is None else str(error)
        if before != (live.state, live.detail):
            self._changed(person)

    def _count(self, live: _Live) -> None:
        daily = live.record.definition.daily
        if live.record.calls_today >= daily:
            raise ConnectionsError("limit", f"{live.record.name} has used up its {daily:,} calls of today (UTC).")
        if wait := live.bucket.wait(1):
            words = f"{_CALLS_PER_MINUTE} calls of this minute. Try again in {math.ceil(wait)} seconds."
            raise ConnectionsError("limit", f"{live.record.name} has used up its {words}")
        live.bucket.take(1)
        live.record.count()
        live.uncounted += 1
        if not self._counts:
            self._counts.start(self._write_counts(_COUNT_SECONDS), "count of calls")

    async def _write_counts(self, seconds: float = 0.0) -> None:
        await asyncio.sleep(seconds)
        for person, live in [(person, live) for person, known in self._people.items() for live in known.values()]:
            if live.uncounted:
                calls, live.uncounted = live.uncounted, 0
                await self._store.count(person, live.record, calls)

    # --- tasks ---

    async def _follow(self) -> None:
        """Adopt changes of other bridges. A session with changed credentials only finishes its calls."""
        async for person in self._store.changes():
            if person not in self._people:
                continue
            try:
                records = {record.name: record for record in await self._store.of(person)}
            except (DatabaseError, StoreError):
                # They are read again at the next use.
                await self.end(person)
                continue
            known = self._people[person]
            for name, live in tuple(known.items()):
                if name not in records:
                    live.is_removed = True
                    await known.pop(name).close()
                elif live.server is not None and records[name].definition != live.record.definition:
                    live.server.is_broken = True
            for name, record in records.items():
                known.setdefault(name, _Live(record)).record = record
            self._changed(person)


async def _loaded() -> None:
    """Import the MCP client in a thread."""
    await asyncio.to_thread(importlib.import_module, "bridge.connections.login")


def _check_usable(live: _Live, tool: str) -> None:
    name = live.record.name
    if live.record.is_usable(tool):
        return
    if tool in live.record.listed:
        words = "changed. The person has to agree to it in the settings before it can be used."
        raise ConnectionsError("changed", f"The tool {tool} of {name} {words}")
    raise ConnectionsError("not_found", f"{name} has no tool {tool[:60]!r}. find_tools lists what there is.")


def _score(words: set[str], connection: str, tool: Tool) -> int:
    name = set(_WORD.findall(f"{tool.name.lower()} {tool.name.lower().replace('_', ' ')}"))
    described = set(_WORD.findall(tool.description.lower()))
    return sum(
        3 * (word in name) + 2 * (word in connection) + (word in described or f"{word}s" in described) for word in words
    )


def _offered(live: _Live, tool: Tool) -> dict[str, Any]:
    return {"connection": live.record.name, **msgspec.structs.asdict(tool)}


def _shown(live: _Live) -> shapes.Connection:
    record = live.record
    before = {name: tool.description[:_CHANGED_CHARS] for name, tool in (record.agreed or {}).items()}
    changed = [
        shapes.ChangedTool(tool.name, tool.description[:_CHANGED_CHARS], before.get(tool.name), tool.digest)
        for tool in record.changed().values()
    ]
    return shapes.Connection(
        name=record.name,
        kind="remote" if record.definition.url else "local",
        address=record.definition.address,
        state=live.state,
        detail=live.detail,
        tools=sorted(record.usable()),
        changed=changed[:_MOST_CHANGED],
        pinned=record.pinned,
        is_on=record.is_on,
        calls_today=record.calls_today,
        daily=record.definition.daily,
    )
