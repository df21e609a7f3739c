"""The operator's pages: people and their sprites, the newest lines of the audit log, and login methods. Pure.

They use plain forms and no script: they work by keyboard, on a phone, and without JavaScript.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from bridge.door import messages
from bridge.operating.audit import told
from bridge.operating.status import ago, damaged_words, estimate, held_by, stored, until
from bridge.store.losses import moment

if TYPE_CHECKING:
    from aiohttp import web

    from bridge.door.people import Person
    from bridge.operating.acts import WaysIn
    from bridge.operating.audit import AuditLog
    from bridge.operating.status import Row

_MAX_DETAIL_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Seen:
    """A person and their sprite's row (None: they have no access).

    `kept_at` is set if their machine may hang: the time of its replica (Unix seconds).
    """

    person: Person
    row: Row | None
    kept_at: float | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """Data of the page for `reader`; `now` in Unix seconds.

    `people` are the first of the `matching` ones; `trouble` describes current problems.
    """

    reader: str
    people: Sequence[Seen]
    matching: int
    wanted: str
    audit: AuditLog
    trouble: str
    token: str
    now: float


def page(shown: Shown) -> web.Response:
    """Return the page of people and their sprites."""
    rows = [seen.row for seen in shown.people if seen.row is not None]
    return messages.document(
        "operator.html",
        "Operator",
        style="operator.css",
        today_usd=sum(row.today_usd for row in rows),
        month_usd=sum(row.month_usd for row in rows),
        facts=_facts,
        moment=moment,
        told=told,
        **{each.name: getattr(shown, each.name) for each in fields(shown)},
    )


def may_hang(row: Row) -> bool:
    """Return whether its machine exists, a replica of it exists, and this bridge has no link to it."""
    return row.state != "absent" and row.store_behind is not None and row.link != "ready"


def ways_in(name: str, ways: WaysIn, token: str) -> web.Response:
    """Return the page of a person's login methods, except links."""
    taken: list[tuple[str, float, float | None, str, str]] = [
        (f"{each.subject} at {each.issuer}", each.created_at, None, "unlink-identity", f"{each.issuer} {each.subject}")
        for each in ways.identities
    ]
    taken += [
        (f"Passkey {each.label}", each.created_at, each.used_at, "remove-passkey", each.id) for each in ways.passkeys
    ]
    title = f"How {name} logs in"
    return messages.document("ways_in.html", title, style="operator.css", name=name, taken=taken, token=token)


def _facts(seen: Seen, now: float) -> list[tuple[str, str]]:
    """Return the terms of a person's card and their values."""
    row = seen.row
    if row is None:
        return [("Last seen", ago(seen.person.last_seen_at, now))]
    estimated = f" (of which {estimate(row.estimated_usd)})" if row.estimated_usd else ""
    return [
        ("State", row.state),
        ("Version", row.version or "-"),
        ("Last seen", ago(row.last_seen_at, now)),
        ("Open pages", str(row.clients)),
        ("Browsers", str(seen.person.sessions)),
        ("Next due", until(row.next_due, now)),
        ("Stored", "nothing" if row.store_behind is None else stored(row.store_behind, row.files_seen)),
        *((("Bridge", held_by(row)),) if row.bridge is not None else ()),
        ("Spent", f"${row.today_usd:.2f} today{estimated}, ${row.month_usd:.2f} this month"),
        *(
            ("Note", note[:_MAX_DETAIL_CHARACTERS])
            for note in (row.detail, row.store_trouble, damaged_words(row))
            if note
        ),
    ]
