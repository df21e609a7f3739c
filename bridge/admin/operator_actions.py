"""Actions of operators on people, each recorded in the audit log: actor, time, action, subject.

The log (table `audit`) is append-only and never contains secrets. A short action is logged when it was done, a long one
before anything is changed or given out.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bridge.admin.status import Overview
from bridge.auth.admission import Admission, OpenSockets
from bridge.auth.people import People, Role
from bridge.auth.tokens import Token
from bridge.cluster.ownership import Ownership
from bridge.config import Settings
from bridge.db.database import Database, Transaction, in_snapshot, in_transaction
from bridge.providers.provider import Host, Report
from bridge.routes.routes import Restoring
from sprite.common import own_secrets

#: The actor of commands typed on the bridge's own machine.
CLI: Final = "cli"
#: The action of exporting an archive of an agent's data.
EXPORT: Final = "export"
#: Most lines that are shown at once, the newest ones.
MOST_SHOWN = 10_000
_MOST_CHARACTERS = 500

Detail = str | int | float | bool | None


class Entry(msgspec.Struct, frozen=True):
    """An entry of the audit log; `at` in Unix seconds, `actor` a person, `cli`, or `oidc` for groups of a provider."""

    id: int
    at: float
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


class Audit:
    """The audit log in the bridge's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def note(self, tx: Transaction, actor: str, action: str, subject: str, /, **detail: Detail) -> None:
        """Append an entry to the audit log; `detail` is more information for readers. Raise DatabaseError."""
        cut = {
            name: own_secrets.without(value)[:_MOST_CHARACTERS] if isinstance(value, str) else value
            for name, value in detail.items()
        }
        text = msgspec.json.encode(cut, order="sorted").decode()
        number = tx.execute("SELECT coalesce(max(id), 0) + 1 AS next FROM audit").fetchone()["next"]
        at = float(tx.execute("SELECT db_now() AS at").fetchone()["at"])
        line = (number, at, actor, action, own_secrets.without(subject)[:_MOST_CHARACTERS], text)
        tx.execute("INSERT INTO audit (id, at, actor, action, subject, detail_json) VALUES (?, ?, ?, ?, ?, ?)", line)

    @in_snapshot
    def since(self, db: Transaction, at: float = 0.0, most: int = MOST_SHOWN) -> list[Entry]:
        """Return the newest `most` lines of the audit log since `at` (Unix seconds), oldest first."""
        rows = db.execute("SELECT * FROM audit WHERE at >= ? ORDER BY id DESC LIMIT ?", (at, most)).fetchall()
        return [_entry(row) for row in reversed(rows)]


def _entry(row: Any) -> Entry:
    detail = msgspec.json.decode(row["detail_json"], type=dict[str, Any])
    return Entry(row["id"], row["at"], row["actor"], row["action"], row["subject"], detail)


def told(entry: Entry) -> str:
    """Describe an audit log entry's action, subject and details in words, for a table."""
    detail = ", ".join(f"{name} {value}" for name, value in entry.detail.items())
    return f"{entry.action} {entry.subject}" + (f" ({detail})" if detail else "")


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Operations:
    """Read and change people and sprites for operators' page and commands; `link_of` returns a token's login link."""

    people: People
    acts: "Acts"
    host: Host
    ownership: Ownership
    overview: Overview
    restoring: Restoring
    link_of: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Inside:
    """Close connections of people in a running bridge; `revoke_sprite` revokes the model token of a person's sprite."""

    admission: Admission
    open_sockets: OpenSockets
    revoke_sprite: Callable[[str], Awaitable[None]]

    async def end_person(self, name: str) -> None:
        """Close all connections of a person who lost access, and revoke the model token of the person's sprite."""
        self.admission.end_person(name)
        await self.open_sockets.end_person(name)
        await self.revoke_sprite(name)

    async def end_token(self, name: str, key: bytes) -> None:
        """Close the connections that were opened with one token or one browser session."""
        self.admission.revoked(key)
        await self.open_sockets.end_way_in(name, key.hex())


class Acts:
    """Perform operators' actions on people and record them in the audit log; `inside` is None if no bridge runs."""

    def __init__(self, people: People, audit: Audit, inside: Inside | None = None) -> None:
        self._people = people
        self._inside = inside
        self.audit = audit

    async def add(self, actor: str, name: str) -> tuple[str, str]:
        """Add a person; return a login link's token and a Bearer token."""
        made = await self._people.add(name)
        await self._done(actor, "users add", name)
        return made

    async def restore(self, actor: str, name: str) -> tuple[str, str]:
        """Give a revoked person access again; return a login link's token and a Bearer token."""
        made = await self._people.restore(name)
        await self._done(actor, "users restore", name)
        return made

    async def link(self, actor: str, name: str) -> str:
        """Return the token of a new login link for a person."""
        made = await self._people.link(name)
        await self._done(actor, "users link", name)
        return made

    async def revoke(self, actor: str, name: str) -> None:
        """Revoke a person's access at once."""
        await self._people.revoke(name)
        if self._inside is not None:
            await self._inside.end_person(name)
        await self._done(actor, "users revoke", name)

    async def change_role(self, actor: str, name: str, role: Role) -> bool:
        """Grant or remove a person's operator role; return False if nothing changed."""
        has_changed = await self._people.change_role(name, role)
        if has_changed:
            await self._done(actor, "users role", name, role=role)
        return has_changed

    async def make_token(
        self, actor: str, name: str, label: str | None, scopes: Iterable[str] | None
    ) -> tuple[str, Token]:
        """Create a token for a program; return its secret and its properties."""
        secret, token = await self._people.tokens.make(name, label, scopes)
        opens = "everything" if token.scopes is None else " ".join(token.scopes)
        await self._done(actor, "users token", name, token=token.label, opens=opens)
        return secret, token

    async def revoke_token(self, actor: str, name: str, label: str) -> None:
        """Revoke a program's token and close its connections at once."""
        key = await self._people.tokens.revoke(name, label)
        if self._inside is not None:
            await self._inside.end_token(name, key)
        await self._done(actor, "users revoke-token", name, token=label)

    async def deploy(self, actor: str, ownership: Ownership, host: Host, name: str, report: Report) -> None:
        """Update a sprite to this bridge's version, and start it. Raise HostError, or NotOwnedError."""
        log.info("%s acted: deploy", actor, extra={"person": name})
        await self.audit.note(actor, "deploy", name)
        await ownership.own(name)
        with ownership.using(name):
            await host.deploy(name, report)

    async def _done(self, actor: str, action: str, subject: str, **detail: str) -> None:
        log.info("%s acted: %s", actor, action, extra={"person": subject})
        await self.audit.note(actor, action, subject, **detail)


def people_of(settings: Settings, database: Database) -> People:
    """Return the register of people; on a bridge that only this machine reaches, the local person is an operator."""
    is_here = settings.is_loopback and settings.public_url is None
    return People(database, local_operates=is_here, is_alone=bool(settings.own_access))
