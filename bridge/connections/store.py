"""Records of connections. Everything but the name and the count of calls is sealed with the store's key."""

import hashlib
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from bridge.db.database import ConstraintError, Database, Transaction, in_snapshot, in_transaction
from bridge.errors import BridgeError
from bridge.proxy.budgets import DAY_SECONDS
from bridge.replicas.keys import BrokenSealError, Keyring
from bridge.replicas.store import StoreError
from sprite.common import own_secrets

NAME = re.compile(r"[a-z][a-z0-9-]{0,23}")
MOST_CONNECTIONS = 30
DAILY_CALLS = 2000
#: Channel on which bridges announce the people whose connections changed.
CHANNEL = "connections"
#: Shorter values are words such as "true", which occur in any text.
_SHORTEST_SECRET = 8


class ConnectionsError(BridgeError):
    """A connection cannot do what was asked; the message is for people and agents and holds no credential."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class Tool(msgspec.Struct, frozen=True):
    """A tool as its server describes it, without its hints: a server may not make its tools freer."""

    name: str
    description: str
    input_schema: dict[str, Any]

    @property
    def digest(self) -> str:
        """A hash of everything that the server says about the tool."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


class Login(msgspec.Struct):
    """The results of an OAuth login, as JSON of the `mcp` library's types. `expires_at` is in Unix seconds."""

    tokens: str | None = None
    client: str | None = None
    server: str | None = None
    resource: str | None = None
    expires_at: float | None = None


class Definition(msgspec.Struct):
    """A server with its credentials, as a person adds it: by its URL, or by a command that starts it."""

    url: str = ""
    token: str = ""
    command: list[str] = []
    env: dict[str, str] = {}
    hosts: list[str] = []
    daily: int = DAILY_CALLS
    login: Login | None = None

    @property
    def address(self) -> str:
        """The URL without user, query and fragment, or the command's program."""
        if not self.url:
            return self.command[0]
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()

    def without_secrets(self, text: str) -> str:
        """Return the text with a mark instead of each credential."""
        for secret in self._secrets():
            for spelling in {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}:
                text = text.replace(spelling, "[redacted:credential]")
        return text

    def hold_secrets(self) -> None:
        """Redact the credentials in everything that this process logs from now on."""
        for secret in self._secrets():
            own_secrets.hold_passing(secret)

    def _secrets(self) -> list[str]:
        login = self.login or Login()
        found = [self.token, *self.env.values(), urlsplit(self.url).password or "", urlsplit(self.url).query]
        for text in (login.tokens, login.client):
            members = msgspec.json.decode(text) if text else {}
            found += [str(members.get(name) or "") for name in ("access_token", "refresh_token", "client_secret")]
        # The longest first: one may be a part of another.
        return sorted((each for each in found if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)


class Record(msgspec.Struct):
    """A connection: its tools as listed, agreed to (None: not yet) and pinned; `calls` of a UTC `day` since 1970."""

    name: str
    definition: Definition
    listed: dict[str, Tool] = {}
    agreed: dict[str, Tool] | None = None
    pinned: list[str] = []
    #: Whether they may be used where nobody is asked about words from outside, too.
    is_on: bool = False
    day: int = 0
    calls: int = 0

    def is_usable(self, name: str) -> bool:
        """Return whether the server has the tool `name`, unchanged since the person agreed to it."""
        return name in self.listed and self.listed[name] == (self.agreed or {}).get(name)

    def usable(self) -> dict[str, Tool]:
        """Return the tools, by name, that are unchanged since the person agreed to them."""
        return {name: tool for name, tool in self.listed.items() if self.is_usable(name)}

    def changed(self) -> dict[str, Tool]:
        """Return the new and changed tools, which wait for the person's agreement."""
        return {name: tool for name, tool in self.listed.items() if not self.is_usable(name)}

    @property
    def calls_today(self) -> int:
        """The number of calls of this day."""
        return self.calls if self.day == _today() else 0

    def count(self) -> None:
        """Count a call of today."""
        self.calls, self.day = self.calls_today + 1, _today()


class ConnectionStore:
    """Read and write the records. Methods may raise DatabaseError, and StoreError if the sealing key is missing."""

    def __init__(self, database: Database, keyring: Keyring) -> None:
        self._database = database
        self._keyring = keyring
        self._id = secrets.token_hex(8)

    @in_snapshot
    def of(self, db: Transaction, person: str) -> list[Record]:
        """Return a person's connections, by name."""
        rows = db.execute("SELECT * FROM connections WHERE person = ? ORDER BY name", (person,))
        return [self._record(person, row) for row in rows]

    async def add(self, person: str, record: Record) -> None:
        """Store a new connection. Raise ConnectionsError if its name is taken or there are too many."""
        row = (person, record.name, *self._sealed(person, record))

        def insert(tx: Transaction) -> None:
            count = tx.execute("SELECT count(*) FROM connections WHERE person = ?", (person,)).fetchone()[0]
            if count >= MOST_CONNECTIONS:
                words = f"There are {MOST_CONNECTIONS} connections already, which is the limit. Remove one first."
                raise ConnectionsError("limit", words)
            tx.execute("INSERT INTO connections (person, name, key_id, sealed) VALUES (?, ?, ?, ?)", row)

        try:
            await self._database.write(insert)
        except ConstraintError:
            raise ConnectionsError(
                "invalid", f"There is a connection {record.name} already, or no such person."
            ) from None

    @in_transaction
    def save(self, tx: Transaction, person: str, record: Record) -> None:
        """Update a connection, unless it was removed."""
        tx.execute(
            "UPDATE connections SET key_id = ?, sealed = ? WHERE person = ? AND name = ?",
            (*self._sealed(person, record), person, record.name),
        )
        self._tell_others(tx, person)

    async def count(self, person: str, record: Record, calls: int) -> None:
        """Add this bridge's calls to the stored count, and take over the sum of all bridges."""
        rows = await self._database.statement(
            "UPDATE connections SET calls = CASE WHEN day = ? THEN calls + ? ELSE ? END, day = ? "
            "WHERE person = ? AND name = ? RETURNING calls",
            (record.day, calls, calls, record.day, person, record.name),
        )
        record.calls = max([record.calls, *(int(row["calls"]) for row in rows)])

    @in_transaction
    def remove(self, tx: Transaction, person: str, name: str) -> None:
        """Delete a connection with its credentials."""
        tx.execute("DELETE FROM connections WHERE person = ? AND name = ?", (person, name))
        self._tell_others(tx, person)

    async def changes(self) -> AsyncIterator[str]:
        """Yield the people whose connections another bridge changed."""
        async for text in self._database.listen(CHANNEL):
            bridge, _, person = text.partition(":")
            if bridge != self._id:
                yield person

    def _tell_others(self, tx: Transaction, person: str) -> None:
        tx.execute("SELECT db_notify(?, ?)", (CHANNEL, f"{self._id}:{person}"))

    def _sealed(self, person: str, record: Record) -> tuple[str, bytes]:
        key = self._keyring.current()
        return key.id, key.seal(person, _place(record.name), msgspec.json.encode(record))

    def _record(self, person: str, row: Any) -> Record:
        name = str(row["name"])
        try:
            content = self._keyring.of(row["key_id"]).unseal(person, _place(name), bytes(row["sealed"]))
        except BrokenSealError as error:
            raise StoreError(f"The stored credentials of the connection {name} are damaged.") from error
        record = msgspec.json.decode(content, type=Record)
        record.day, record.calls = int(row["day"]), int(row["calls"])
        record.definition.hold_secrets()
        return record


def _today() -> int:
    return int(time.time() // DAY_SECONDS)


def _place(name: str) -> bytes:
    return b"connection\0" + name.encode()
