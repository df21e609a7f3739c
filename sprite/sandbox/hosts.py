"""The hosts that the agent may reach: registries, the person's rules and questions, and the log of connections.

A rule covers one exact host on the ports of the web, or one `host:port`. Only a person's answer adds a rule. The
tables are in workspace.db, which the agent cannot read or write.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from sprite.common.addresses import Address, plain_address
from sprite.common.tasks import TaskSet
from sprite.config import Egress
from sprite.errors import StorageError
from sprite.protocol.messages import AllowedHost, ReachedHost
from sprite.storage.connection import Tables, in_transaction

log = logging.getLogger(__name__)

#: Ports that a host's rule covers. Another port needs a rule of its own.
WEB_PORTS = frozenset({80, 443})
#: Package registries, and the hosts from which their clients download. A leading dot covers all subdomains. Each
#: host serves files that anyone can read; several also accept uploads from people with an account.
REGISTRIES = frozenset(
    (
        "pypi.org files.pythonhosted.org "
        "registry.npmjs.org registry.yarnpkg.com "
        "index.crates.io static.crates.io crates.io static.rust-lang.org "
        "proxy.golang.org sum.golang.org "
        "rubygems.org index.rubygems.org "
        "deb.debian.org security.debian.org "
        # Country mirrors are subdomains.
        "archive.ubuntu.com .archive.ubuntu.com security.ubuntu.com ports.ubuntu.com "
        # Files of releases, which installers of npm, pip and cargo packages download; no repositories and no API.
        "objects.githubusercontent.com release-assets.githubusercontent.com codeload.github.com"
    ).split()
)
#: Open questions about hosts; more would only tire the person.
MAX_QUESTIONS = 8
#: A question stays open for this time after the last connection left it: clients give up and try again.
GRACE_SECONDS = 30.0
#: Connections that the log keeps. Refused ones are counted separately, so that they cannot displace the others.
MAX_CONNECTIONS_KEPT = 5000
MAX_REFUSED_KEPT = 1000
#: Hosts that the view lists.
MAX_HOSTS_SHOWN = 200
#: Characters of the message that began a turn, in the view.
_MESSAGE_CHARS = 120

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
#: Such a last label makes C libraries read the name as an address: 2130706433, 0x7f.1, 0177.0.0.1.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_NAME = 253


class HostRefusedError(Exception):
    """The agent may not reach the host. The message is a sentence that the agent's program shows."""


@dataclass(frozen=True, slots=True)
class Place:
    """A host and port that a program wants to reach; the host is canonical (lower-case ASCII, no trailing dot)."""

    host: str
    port: int

    @classmethod
    def of(cls, host: str, port: int) -> Place:
        """Parse a host. Raises ValueError for anything that is not a plain name or a plain address."""
        name = host.lower().removesuffix(".")
        if not 0 < port < 1 << 16 or not name.isascii() or "%" in name:
            raise ValueError("not a host and a port")
        if ":" in name or _NUMBER.fullmatch(name.rpartition(".")[2]):
            return cls(str(plain_address(ipaddress.ip_address(name))), port)
        if len(name) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, name.split("."))):
            raise ValueError("not a host")
        return cls(name, port)

    @property
    def address(self) -> Address | None:
        """The address, if the host is one."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def key(self) -> str:
        """The name under which rules and answers cover this place: its host, with the port if it is not a web port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in WEB_PORTS else f"{host}:{self.port}"

    @property
    def is_local_name(self) -> bool:
        """Whether the host is a name, not an address, that can exist only on this machine or its network."""
        return "." not in self.host or self.host.endswith((".localhost", ".local", ".internal", ".home.arpa"))

    @property
    def is_registry(self) -> bool:
        """Whether the host is a known package registry, on a web port."""
        around = self.host.partition(".")[2]
        return self.port in WEB_PORTS and (self.host in REGISTRIES or f".{around}" in REGISTRIES)


# --- the log and the rules ---

#: `mission_id` is the turn in which a host was allowed or reached; null outside of turns. Rules that are not
#: `exposed` hold in clean sessions only.
SCHEMA = """
    CREATE TABLE host_rules (
        id INTEGER PRIMARY KEY,
        host TEXT NOT NULL UNIQUE,
        at REAL NOT NULL,
        mission_id TEXT,
        exposed INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE host_connections (
        id INTEGER PRIMARY KEY,
        host TEXT NOT NULL,
        port INTEGER NOT NULL,
        at REAL NOT NULL,
        ended_at REAL,
        sent INTEGER NOT NULL DEFAULT 0,
        received INTEGER NOT NULL DEFAULT 0,
        mission_id TEXT,
        decision TEXT NOT NULL
            CHECK (decision IN ('model', 'registry', 'open', 'always', 'session', 'turn', 'refused'))
    );
    CREATE INDEX host_connections_refused ON host_connections (decision = 'refused', id);
"""

#: The message that began the turn of a row.
_MESSAGE = (
    f"(SELECT substr(text, 1, {_MESSAGE_CHARS}) FROM chat_messages AS line "  # noqa: S608 - our own
    "WHERE line.mission_id = row.mission_id AND role = 'user' ORDER BY line.id LIMIT 1)"
)

#: Why a connection was allowed: it is the model's, a package registry, all hosts are open, or a person's answer.
Reason = Literal["model", "registry", "open", "always", "session", "turn"]


class HostTables(Tables):
    """Read and write the person's rules about hosts and the log of connections, in workspace.db."""

    async def rules(self) -> list[AllowedHost]:
        """Return the hosts that the person always allows, the newest first."""
        sql = f"SELECT host, 'always', at, {_MESSAGE} FROM host_rules AS row ORDER BY id DESC"  # noqa: S608 - our own
        return await self._db.fetch_as(AllowedHost, sql)

    async def has_rule(self, host: str, *, exposed: bool = False) -> bool:
        """Return whether the person always allows a host; with `exposed`, even after untrusted content was read."""
        sql = "SELECT EXISTS (SELECT 1 FROM host_rules WHERE host = ? AND exposed >= ?)"
        return bool(await self._db.fetch_value(sql, (host, exposed)))

    async def add_rule(self, host: str, mission_id: str | None, *, exposed: bool = False) -> None:
        """Store that the person always allows a host; with `exposed`, even after untrusted content was read."""
        sql = (
            "INSERT INTO host_rules (host, at, mission_id, exposed) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (host) DO UPDATE SET exposed = max(exposed, excluded.exposed)"
        )
        await self._db.execute(sql, (host, time.time(), mission_id, exposed))

    @in_transaction
    def revoke(self, tx: sqlite3.Connection, host: str) -> bool:
        """Delete a rule. Return False if there is none."""
        return tx.execute("DELETE FROM host_rules WHERE host = ?", (host,)).rowcount > 0

    @in_transaction
    def began(self, tx: sqlite3.Connection, place: Place, decision: str, mission_id: str | None) -> int:
        """Log the start of a connection; return its number. Delete the oldest connections above the limit."""
        refused = decision == "refused"
        tx.execute(
            "DELETE FROM host_connections WHERE (decision = 'refused') = ?1 AND id <= (SELECT id FROM host_connections "
            "WHERE (decision = 'refused') = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            (refused, (MAX_REFUSED_KEPT if refused else MAX_CONNECTIONS_KEPT) - 1),
        )
        cursor = tx.execute(
            "INSERT INTO host_connections (host, port, at, mission_id, decision) VALUES (?, ?, ?, ?, ?)",
            (place.host, place.port, time.time(), mission_id, decision),
        )
        return cursor.lastrowid or 0

    async def ended(self, number: int, sent: int, received: int, decision: str) -> None:
        """Log that a connection has ended, with its bytes and its final decision."""
        sql = "UPDATE host_connections SET ended_at = ?, sent = ?, received = ?, decision = ? WHERE id = ?"
        await self._db.execute(sql, (time.time(), sent, received, decision, number))

    async def uses(self) -> list[ReachedHost]:
        """Return the logged hosts, most recently used first, without the bytes of open connections."""
        # SQLite takes the other columns from the row with the greatest `at`.
        return await self._db.fetch_as(
            ReachedHost,
            f"SELECT host, port, decision, count(*), sum(sent), sum(received), max(at), {_MESSAGE} "  # noqa: S608 - our own
            "FROM host_connections AS row GROUP BY host, port, decision ORDER BY max(at) DESC LIMIT ?",
            (MAX_HOSTS_SHOWN,),
        )


# --- the decision ---

Answer = Literal["allow", "session", "always", "deny"]
_ALLOWING = frozenset({"allow", "session"})
#: Asks the person about a host in a turn (None: outside of turns). Raises HostRefusedError without an answer.
Ask = Callable[[str, str | None], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Moment:
    """The agent's session and turn at some time, and whether the session has read untrusted content (`exposed`)."""

    session: str | None
    turn: str | None
    exposed: bool = False


@dataclass(slots=True)
class _Question:
    """An open question to the person about a host: its task, and how many connections wait for it."""

    task: asyncio.Task[Reason | HostRefusedError]
    waiting: int = 0


class HostGate:
    """Allow or refuse each connection, by the mode, the rules, or the person's answer.

    All connections to a host wait for the same question.
    """

    def __init__(self, mode: Egress, tables: HostTables, now: Callable[[], Moment], ask: Ask) -> None:
        self.mode = mode
        self.tables = tables
        self.now = now
        self._ask = ask
        #: Answers that hold for a session or a turn, by key.
        self._answers: dict[str, tuple[Answer, Moment]] = {}
        self._questions: dict[str, _Question] = {}
        self._tasks = TaskSet()

    async def admit(self, place: Place) -> Reason:
        """Wait until a connection is allowed; return why. Raises HostRefusedError if it is refused."""
        if self.mode == "bridge":
            raise HostRefusedError("Sprite lets the agent reach no hosts here.")
        if place.is_registry:
            return "registry"
        if self.mode == "packages":
            raise HostRefusedError(f"Sprite lets the agent reach package registries only, and not {place.key}.")
        if self.mode == "open" and place.port in WEB_PORTS:
            return "open"
        return await self._known(place.key) or await self._asked(place.key)

    def answers(self) -> dict[str, Literal["session", "turn"]]:
        """Return the hosts that the person allowed for the current session or turn, and for which of them."""
        now = {key: self._answer(key) for key in self._answers}
        return {key: "session" if word == "session" else "turn" for key, word in now.items() if word in _ALLOWING}

    async def revoke(self, key: str) -> bool:
        """Delete the person's permission for a host. Return False if there is none."""
        is_allowed = self._answer(key) in _ALLOWING
        self._answers.pop(key, None)
        return await self.tables.revoke(key) or is_allowed

    async def close(self) -> None:
        """Withdraw all questions."""
        await self._tasks.close()

    def _answer(self, key: str) -> Answer | None:
        """Return the person's answer about a host if it holds for the current session or turn, else None."""
        word, asked = self._answers.get(key, (None, None))
        now = self.now()
        if asked is None or now.session is None or now.session != asked.session:
            return None
        if now.exposed and not asked.exposed and word in _ALLOWING:
            return None
        return word if word == "session" or (now.turn is not None and now.turn == asked.turn) else None

    async def _known(self, key: str) -> Reason | None:
        if await self.tables.has_rule(key, exposed=self.now().exposed):
            return "always"
        word = self._answer(key)
        if word == "deny":
            raise HostRefusedError(f"The person does not allow {key} in this turn.")
        return "session" if word == "session" else "turn" if word == "allow" else None

    async def _asked(self, key: str) -> Reason:
        question = self._questions.get(key)
        if question is None:
            if len(self._questions) >= MAX_QUESTIONS:
                raise HostRefusedError(f"Sprite asks about other hosts already. Try {key} again later.")
            question = _Question(self._tasks.start(self._ask_person(key), f"question about {key}"))
            self._questions[key] = question
        question.waiting += 1
        try:
            answer = await asyncio.shield(question.task)
        finally:
            question.waiting -= 1
            if not question.waiting:
                asyncio.get_running_loop().call_later(GRACE_SECONDS, _withdraw, question)
        if isinstance(answer, HostRefusedError):
            raise answer
        return answer

    async def _ask_person(self, key: str) -> Reason | HostRefusedError:
        asked = self.now()
        try:
            word = await self._ask(key, asked.turn)
            if word == "always":
                await self.tables.add_rule(key, asked.turn, exposed=asked.exposed)
                return "always"
        except HostRefusedError as error:
            # Returned, because no connection may be left to take an exception.
            return error
        except StorageError as error:
            return HostRefusedError(f"The rule for {key} cannot be stored: {error}")
        finally:
            del self._questions[key]
        self._answers[key] = word, asked
        if word == "deny":
            return HostRefusedError(f"The person does not allow {key} in this turn.")
        return "session" if word == "session" else "turn"


def _withdraw(question: _Question) -> None:
    if not question.waiting:
        question.task.cancel()
