"""`/operator`: people and their sprites, and the newest lines of the audit log. Changes are made by command."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web

from bridge.admin.audit import told
from bridge.admin.status import ago, damaged_words, estimate, held_by, stored, until
from bridge.http import messages
from bridge.http.messages import Way

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.admin.audit import Entry
    from bridge.admin.operator_actions import Operations
    from bridge.admin.status import Row
    from bridge.auth.login import Authenticator, Caller
    from bridge.auth.people import Person


_MAX_DETAIL_CHARACTERS = 400
#: Each row needs one request to a host.
_MOST_SHOWN = 60
_LINES_SHOWN = 30


class OperatorPage:
    """The page."""

    def __init__(self, authenticator: Authenticator, operations: Operations) -> None:
        self._authenticator = authenticator
        self._operations = operations

    def table(self) -> list[web.RouteDef]:
        """Return the route; register it before the catch-all for the page's files."""
        return [web.get("/operator", self._show, allow_head=False)]

    async def _show(self, request: web.Request) -> web.StreamResponse:
        caller = await self._operator(request)
        wanted = request.query.get("q", "").strip().lower()
        found = [person for person in await self._operations.people.everyone() if wanted in person.name]
        first = found[:_MOST_SHOWN]
        rows = await self._operations.overview.rows_of([person for person in first if person.revoked_at is None])
        audit = await self._operations.acts.audit.since(most=_LINES_SHOWN)
        response = page(first, {row.sprite: row for row in rows}, len(found), wanted, audit, time.time())
        await self._authenticator.renew(response, caller)
        return response

    async def _operator(self, request: web.Request) -> Caller:
        """Return the caller, an operator. Raises AnsweredError for anybody else."""
        caller = await self._authenticator.who_looks(request)
        if await self._operations.people.role(caller.person) != "operator":
            raise messages.AnsweredError(
                messages.page(
                    request,
                    403,
                    "This page is for operators",
                    f"You are `{caller.person}` here, a person like any other. Whoever runs this bridge can change "
                    "that:",
                    f"`python -m bridge users role {caller.person} operator`",
                    code="not_an_operator",
                    ways=[Way("To your own agent", "/")],
                )
            )
        return caller


def page(
    people: Sequence[Person],
    rows: Mapping[str, Row],
    matching: int,
    wanted: str,
    audit: Sequence[Entry],
    now: float,
) -> web.Response:
    """Return the page of people and their sprites' rows (none: no access).

    `people` are the first of the `matching` ones for the name part `wanted`; `now` in Unix seconds.
    """
    return messages.document(
        "operator.html",
        "Operator",
        style="operator.css",
        people=[(person, _facts(person, rows.get(person.name), now)) for person in people],
        today_usd=sum(row.today_usd for row in rows.values()),
        month_usd=sum(row.month_usd for row in rows.values()),
        matching=matching,
        wanted=wanted,
        audit=audit,
        told=told,
    )


def _facts(person: Person, row: Row | None, now: float) -> list[tuple[str, str]]:
    """Return the terms of a person's card and their values."""
    if row is None:
        return [("Last seen", ago(person.last_seen_at, now))]
    estimated = f" (of which {estimate(row.estimated_usd)})" if row.estimated_usd else ""
    return [
        ("State", row.state),
        ("Version", row.version or "-"),
        ("Last seen", ago(row.last_seen_at, now)),
        ("Open pages", str(row.clients)),
        ("Browsers", str(person.sessions)),
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
