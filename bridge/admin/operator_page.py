"""`/operator`: the page for operators. Each action is a POST from a form of the page, and is audited."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.typedefs import Handler
from markupsafe import escape

from bridge.admin.audit import told
from bridge.admin.operator_actions import Work, steps_told
from bridge.admin.status import ago, damaged_words, estimate, held_by, stored, until
from bridge.auth.passkey_store import PasskeyError
from bridge.auth.tokens import PeopleError
from bridge.http import messages
from bridge.http.messages import Way, small_form
from bridge.replicas.restore import Asked, moment

if TYPE_CHECKING:
    from bridge.admin.audit import AuditLog
    from bridge.admin.operator_actions import Operations, WaysIn
    from bridge.admin.status import Row
    from bridge.auth.login import Authenticator, Caller
    from bridge.auth.people import Person
    from bridge.providers.provider import Report


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


#: An action: takes the request, the operator and the name of a person.
_Act = Callable[[web.Request, str, str], Awaitable[web.StreamResponse]]
#: Each row needs one request to a host.
_MOST_SHOWN = 60
_LINES_SHOWN = 30
_BACK = Way("Back to the operator's page", "/operator")
#: Shown if a restore is refused.
_SAY_OVER = "Whoever runs this bridge can have what is kept put in its place: `python -m bridge restore {name} --over`"
_ANSWERS = "{name}'s agent answers: its machine is not given up, and nothing was done."
_NOT_TYPED = "{name} was not typed: nothing was done."
#: The identity or passkey that a form names, or the text typed for confirmation.
_WHICH = web.RequestKey("which", str)
_STEPS = "<!-- steps -->"


class OperatorPage:
    """The page and its actions."""

    def __init__(self, authenticator: Authenticator, operations: Operations) -> None:
        self._authenticator = authenticator
        self._operations = operations

    def table(self) -> list[web.RouteDef]:
        """Return the routes; register them before the catch-all for the page's files."""
        does: dict[str, _Act] = {
            "add": partial(self._hand_over, self._operations.acts.add),
            "restore": partial(self._hand_over, self._operations.acts.restore),
            "link": self._link,
            "revoke": self._revoke,
            "promote": self._promote,
            "demote": self._demote,
            "deploy": self._deploy,
            "restore-agent": self._restore_agent,
            "new-machine": self._new_machine,
            "unlink-identity": self._unlink_identity,
            "remove-passkey": self._remove_passkey,
        }
        return [
            web.get("/operator", self._show, allow_head=False),
            web.get("/operator/ways-in", self._show_ways_in, allow_head=False),
            *(web.post(f"/operator/{name}", self._acting(act)) for name, act in does.items()),
        ]

    async def _show(self, request: web.Request) -> web.StreamResponse:
        caller = await self._operator(request)
        wanted = request.query.get("q", "").strip().lower()
        found = [person for person in await self._operations.people.everyone() if wanted in person.name]
        first = found[:_MOST_SHOWN]
        rows = {
            row.sprite: row
            for row in await self._operations.overview.rows_of(
                [person for person in first if person.revoked_at is None]
            )
        }
        kept = {
            name: words[1]
            for name, row in rows.items()
            if may_hang(row) and (words := await self._operations.restoring.restorer.kept_words(name)) is not None
        }
        shown = Shown(
            caller.person,
            [Seen(person, rows.get(person.name), kept.get(person.name)) for person in first],
            len(found),
            wanted,
            await self._operations.acts.audit.since(most=_LINES_SHOWN),
            await self._operations.trouble(),
            self._authenticator.form_token(caller),
            time.time(),
        )
        response = page(shown)
        await self._authenticator.renew(response, caller)
        return response

    async def _show_ways_in(self, request: web.Request) -> web.StreamResponse:
        """Show a person's login methods, except links."""
        caller = await self._operator(request)
        name = request.query.get("name", "")
        try:
            ways = await self._operations.acts.ways_in(name)
        except PeopleError as error:
            return messages.page(request, 404, "There is nobody of that name", str(error), code="nobody", ways=[_BACK])
        return ways_in(name, ways, self._authenticator.form_token(caller))

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

    def _acting(self, act: _Act) -> Handler:
        """Return the route of an action: only for operators, only from this page's form; explain refusals."""

        async def handler(request: web.Request) -> web.StreamResponse:
            await self._operator(request)
            form = await small_form(request)
            # The body may have arrived slowly, so check the role again.
            caller = await self._operator(request)
            self._authenticator.require_own_form(request, caller, form.get("token", ""))
            request[_WHICH] = form.get("which", "")
            try:
                return await act(request, caller.person, form.get("name", ""))
            except (PeopleError, PasskeyError) as error:
                return messages.page(request, 400, "That cannot be done", str(error), code="refused", ways=[_BACK])

        return handler

    async def _hand_over(
        self, act: Callable[[str, str], Awaitable[tuple[str, str]]], _request: web.Request, actor: str, name: str
    ) -> web.StreamResponse:
        return self._handed(name, *await act(actor, name))

    async def _link(self, _request: web.Request, actor: str, name: str) -> web.StreamResponse:
        return self._handed(name, await self._operations.acts.link(actor, name))

    def _handed(self, name: str, link: str, token: str | None = None) -> web.Response:
        title = f"A login link for {name}"
        return messages.document("login_link.html", title, link=self._operations.link_of(link), token=token, name=name)

    async def _revoke(self, _request: web.Request, actor: str, name: str) -> web.StreamResponse:
        _require_other(actor, name)
        await self._operations.acts.revoke(actor, name)
        return _back(name)

    async def _promote(self, _request: web.Request, actor: str, name: str) -> web.StreamResponse:
        await self._operations.acts.change_role(actor, name, "operator")
        return _back(name)

    async def _demote(self, _request: web.Request, actor: str, name: str) -> web.StreamResponse:
        _require_other(actor, name)
        await self._operations.acts.change_role(actor, name, "person")
        return _back(name)

    async def _unlink_identity(self, request: web.Request, actor: str, name: str) -> web.StreamResponse:
        # An address has no spaces.
        issuer, _, subject = request[_WHICH].partition(" ")
        await self._operations.acts.unlink_identity(actor, name, subject, issuer)
        return _back_to_ways(name)

    async def _remove_passkey(self, request: web.Request, actor: str, name: str) -> web.StreamResponse:
        await self._operations.acts.remove_passkey(actor, name, request[_WHICH])
        return _back_to_ways(name)

    async def _deploy(self, request: web.Request, actor: str, name: str) -> web.StreamResponse:
        async def deploy(report: Report) -> str:
            await self._operations.acts.deploy(actor, self._operations.ownership, self._operations.host, name, report)
            return f"{name} is deployed."

        await self._operations.people.require(name)
        return await _told(request, name, "Deploying", deploy)

    async def _restore_agent(self, request: web.Request, actor: str, name: str) -> web.StreamResponse:
        return await self._restored(request, name, Asked(actor, advice=_SAY_OVER.format(name=name)))

    async def _new_machine(self, request: web.Request, actor: str, name: str) -> web.StreamResponse:
        await self._operations.people.require(name)
        if request[_WHICH].strip() != name:
            raise PeopleError(_NOT_TYPED.format(name=name))
        (row,) = await self._operations.overview.rows_of(
            [each for each in await self._operations.people.everyone() if each.name == name]
        )
        # The form may be older than the machine's last answer.
        if not may_hang(row):
            raise PeopleError(_ANSWERS.format(name=name))
        return await self._restored(request, name, Asked(actor, over=True, anew=True))

    async def _restored(self, request: web.Request, name: str, asked: Asked) -> web.StreamResponse:
        async def restore(report: Report) -> str:
            return (await self._operations.restoring.restore(name, asked, report)).words

        await self._operations.people.require(name)
        return await _told(request, name, "Restoring", restore)


async def _told(request: web.Request, name: str, doing: str, work: Work) -> web.StreamResponse:
    """Stream the steps of some work on a sprite, because it takes minutes."""
    whole = messages.document("steps.html", f"{doing} {name}", style="operator.css", name=name)
    before, _, after = (whole.text or "").partition(_STEPS)
    response = web.StreamResponse(headers=whole.headers)
    response.headers.pop("Content-Length", None)
    await response.prepare(request)
    await response.write(before.encode())

    async def tell(phase: str, words: str) -> None:
        await response.write(f"<li>{escape(f'{phase}: {words}')}</li>\n".encode())

    await steps_told(f"{doing.lower()} {name} on the operator's page", work, tell)
    await response.write(after.encode())
    await response.write_eof()
    return response


def _require_other(actor: str, name: str) -> None:
    if actor == name:
        raise PeopleError("Nobody locks themselves out here: ask another operator, or do it by command.")


def _back(name: str) -> web.Response:
    return messages.redirect(f"/operator#{name}")


def _back_to_ways(name: str) -> web.Response:
    return messages.redirect(f"/operator/ways-in?{urlencode({'name': name})}")
