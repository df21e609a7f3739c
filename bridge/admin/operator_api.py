"""The operator's page, and the handlers of the control socket (see control.py).

The socket serves people, status, deploys, and requests of `bridge chat`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.admin import control as peer
from bridge.admin.operator_actions import CLI, EXPORT, Entry, Operations, told
from bridge.admin.status import Row, ago, damaged_words, estimate, held_by, stored, until
from bridge.auth.login import Authenticator, Caller
from bridge.auth.people import Person, Role
from bridge.auth.tokens import Token
from bridge.cluster.ownership import NotOwnedError
from bridge.config import LOCAL_PERSON
from bridge.connections.connections import Connections
from bridge.connections.routes import peoples_routes
from bridge.db.database import DatabaseError
from bridge.errors import BridgeError
from bridge.http import messages
from bridge.http.messages import Way
from bridge.providers.provider import HostError, Report
from bridge.replicas.restore import SAY_OVER, Asked, Source, exported, moment
from bridge.replicas.store import StoreError
from bridge.routes.owner import OwnerRouter
from bridge.routes.routes import Routes
from bridge.telemetry.logs import PERSON

_MAX_DETAIL_CHARACTERS = 400
#: Each row needs one request to a host.
_MOST_SHOWN = 60
_LINES_SHOWN = 30


class OperatorPage:
    """Serve the operators' page: a table of people and their sprites."""

    def __init__(self, authenticator: Authenticator, operations: Operations, connections: Connections) -> None:
        self._authenticator = authenticator
        self._connections = connections
        self._operations = operations

    def table(self) -> list[web.RouteDef]:
        """Return the page's route; register it before the catch-all route for the web page's files."""
        return [web.get("/operator", self._show, allow_head=False)]

    async def _show(self, request: web.Request) -> web.StreamResponse:
        caller = await self._operator(request)
        wanted = request.query.get("q", "").strip().lower()
        found = [person for person in await self._operations.people.everyone() if wanted in person.name]
        first = found[:_MOST_SHOWN]
        admitted = [person for person in first if person.revoked_at is None]
        rows = {row.sprite: row for row in await self._operations.overview.rows_of(admitted)}
        audit = await self._operations.acts.audit.since(most=_LINES_SHOWN)
        people = [(person, rows.get(person.name), await self._reached(person.name)) for person in first]
        response = page(people, len(found), wanted, audit, time.time())
        await self._authenticator.renew(response, caller)
        return response

    async def _reached(self, person: str) -> str:
        """Return a line with a person's connections (MCP servers) and their states, or "" without any."""
        try:
            found = await self._connections.listed(person)
        except StoreError as error:
            return str(error)
        return ", ".join(f"{each.name} ({each.state}, {each.calls_today:,} calls today)" for each in found)

    async def _operator(self, request: web.Request) -> Caller:
        """Return the caller if it is an operator. Raise AnsweredError for anybody else."""
        caller = await self._authenticator.who_looks(request)
        if await self._operations.people.role(caller.person) != "operator":
            title, ways = "This page is for operators", [Way("Open your own agent", "/")]
            words = f"You are logged in as `{caller.person}`, who is not an operator."
            how = f"Whoever runs this bridge can change that: `python -m bridge users role {caller.person} operator`"
            refusal = messages.page(request, 403, title, words, how, code="not_an_operator", ways=ways)
            raise messages.AnsweredError(refusal)
        return caller


def page(
    people: Sequence[tuple[Person, Row | None, str]], matching: int, wanted: str, audit: Sequence[Entry], now: float
) -> web.Response:
    """Return the operators' page. `people` have a status row if they have access, and their connections in words.

    `wanted` is the searched part of a name. `matching` people have it, and `people` are the first of them. `now` is in
    Unix seconds.
    """
    rows = [row for _, row, _ in people if row is not None]
    return messages.document(
        "operator.html",
        "Operator",
        style="operator.css",
        people=[(person, _facts(person, row, connections, now)) for person, row, connections in people],
        today_usd=sum(row.today_usd for row in rows),
        month_usd=sum(row.month_usd for row in rows),
        matching=matching,
        wanted=wanted,
        audit=audit,
        told=told,
    )


def _facts(person: Person, row: Row | None, connections: str, now: float) -> list[tuple[str, str]]:
    """Return the labels and values that the operators' page lists about a person and the sprite."""
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
        ("Stored", "nothing" if row.store_behind is None else stored(row)),
        *((("Bridge", held_by(row)),) if row.bridge is not None else ()),
        ("Spent", f"${row.today_usd:.2f} today{estimated}, ${row.month_usd:.2f} this month"),
        *((("Connections", connections),) if connections else ()),
        *(
            ("Note", note[:_MAX_DETAIL_CHARACTERS])
            for note in (row.detail, row.store_trouble, damaged_words(row))
            if note
        ),
    ]


Work = Callable[[Report], Awaitable[str]]


async def told_in_steps(request: web.Request, name: str, work: Work) -> web.StreamResponse:
    """Do the work, and stream its steps as the response: one JSON line {"phase", "words"} for each step.

    The last line has the result of the work. If the client has gone, the work is cancelled as far as possible.
    """
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    steps: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()

    async def run() -> None:
        try:
            steps.put_nowait(("done", await work(lambda phase, words: steps.put_nowait((phase, words)))))
        except NotOwnedError as error:
            steps.put_nowait(("failed", error.for_operators))
        except (HostError, BridgeError) as error:
            steps.put_nowait(("failed", str(error)))
        finally:
            steps.put_nowait(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(run(), name=name)
        while (step := await steps.get()) is not None:
            await response.write(msgspec.json.encode({"phase": step[0], "words": step[1]}) + b"\n")
    return response


log = logging.getLogger(__name__)

#: Header with the time of an archive of a replica (Unix seconds).
AS_OF: Final = "X-Archive-As-Of"
#: Header with a description of its missing parts, percent-encoded.
LEFT_OUT: Final = "X-Archive-Left-Out"


class AskedArchive(msgspec.Struct, rename={"source": "from"}):
    """Query for an archive: its source (None: the best), and its time in Unix seconds (None: the newest).

    Flags without a value: `leave_out_damaged` (both routes), `over` (restore: replace an existing agent).
    """

    source: Source | None = None
    as_of: float | None = None


def _asked_archive(request: web.Request) -> AskedArchive:
    try:
        return msgspec.convert(dict(request.query), AskedArchive, strict=False)
    except msgspec.ValidationError as error:
        raise BridgeError(f"`from` must be machine or store, and `as_of` Unix seconds ({error}).") from error


class AskedRole(msgspec.Struct):
    """Body of a request to change a person's role."""

    role: Role


#: A terminal reconnects whenever its connection was cut; this interval limits the audit lines.
_SPOKEN_SECONDS = 3600.0


class AskedToken(msgspec.Struct):
    """Body of a request to create a token: its name (null: generate one) and its scopes (null: full access)."""

    label: str | None
    scopes: list[str] | None


class AskedLine(msgspec.Struct):
    """Body of a request to record in the audit log what a command does to the store itself."""

    action: Literal["store accept", "store delete"]
    subject: str


class MadeToken(msgspec.Struct):
    """A created token; `secret` is not shown again."""

    token: Token
    secret: str


@dataclass(frozen=True)
class OperatorApi:
    """Handlers for operators' commands on a data folder, whether or not a bridge runs on it."""

    operations: Operations
    connections: Connections
    webhook_key: Callable[[], Awaitable[str]]

    def application(self) -> web.Application:
        """Return the control socket's application. Any program that `control.refusal` admits may do everything."""
        application = web.Application(middlewares=[_for_owner, explained])
        application.add_routes(self.routes())
        return application

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for operators' commands."""
        return [
            web.get("/status", self._status),
            web.get("/notify/key", self._notify_key),
            web.get("/users", self._users),
            web.post("/users/{name}", partial(self._admit, act=self.operations.acts.add)),
            web.post("/users/{name}/restore", partial(self._admit, act=self.operations.acts.restore)),
            web.post("/users/{name}/link", self._link),
            web.delete("/users/{name}", self._revoke),
            web.put("/users/{name}/role", self._change_role),
            web.get("/users/{name}/tokens", self.tokens),
            web.post("/users/{name}/tokens", self.make_token),
            web.delete("/users/{name}/tokens/{label}", self.revoke_token),
            web.get("/audit", self._audit),
            web.post("/audit", self._note),
            web.post("/deploy/{name}", self._deploy),
            web.get("/export/{name}", self.export, allow_head=False),
            web.post("/restore/{name}", self._restore_agent),
            *peoples_routes(self.connections, "/users/{name}/connections", self._named, may_run=True),
        ]

    async def _named(self, request: web.Request) -> str:
        name = request.match_info["name"]
        await self.operations.people.require(name)
        return name

    async def _status(self, _request: web.Request) -> web.Response:
        return messages.as_json({"sprites": await self.operations.overview.rows()})

    async def _notify_key(self, _request: web.Request) -> web.Response:
        return messages.as_json({"key": await self.webhook_key()})

    async def _users(self, _request: web.Request) -> web.Response:
        return messages.as_json({"users": await self.operations.people.everyone()})

    async def _admit(self, request: web.Request, act: Callable[[str, str], Awaitable[tuple[str, str]]]) -> web.Response:
        link, token = await act(CLI, request.match_info["name"])
        return messages.as_json({"link": self.operations.link_of(link), "token": token})

    async def _link(self, request: web.Request) -> web.Response:
        link = await self.operations.acts.link(CLI, request.match_info["name"])
        return messages.as_json({"link": self.operations.link_of(link)})

    async def _revoke(self, request: web.Request) -> web.Response:
        await self.operations.acts.revoke(CLI, request.match_info["name"])
        return messages.as_json({})

    async def _change_role(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=AskedRole)
        has_changed = await self.operations.acts.change_role(CLI, request.match_info["name"], asked.role)
        return messages.as_json({"has_changed": has_changed})

    async def _audit(self, request: web.Request) -> web.Response:
        entries = await self.operations.acts.audit.since(float(request.query.get("since", "0")))
        return messages.as_json({"entries": entries})

    async def _note(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=AskedLine)
        await self.operations.acts.audit.note(CLI, asked.action, asked.subject)
        return messages.as_json({})

    async def tokens(self, request: web.Request) -> web.Response:
        """List a person's tokens."""
        return messages.as_json({"tokens": await self.operations.people.tokens.of(request.match_info["name"])})

    async def make_token(self, request: web.Request) -> web.Response:
        """Create a token for a person's program."""
        name = request.match_info["name"]
        asked = msgspec.json.decode(await request.read(), type=AskedToken)
        secret, token = await self.operations.acts.make_token(_actor(request), name, asked.label, asked.scopes)
        return messages.as_json(MadeToken(token, secret))

    async def revoke_token(self, request: web.Request) -> web.Response:
        """Revoke a token of a person's program and close its connections."""
        name, label = request.match_info["name"], request.match_info["label"]
        await self.operations.acts.revoke_token(_actor(request), name, label)
        return messages.as_json({})

    async def _deploy(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]

        async def deploy(report: Report) -> str:
            await self.operations.acts.deploy(CLI, self.operations.ownership, self.operations.host, name, report)
            return f"{name} is deployed."

        return await told_in_steps(request, f"deploy of {name}", deploy)

    async def _restore_agent(self, request: web.Request) -> web.StreamResponse:
        name, query = request.match_info["name"], request.query
        leaves_out, as_of = "leave_out_damaged" in query, _asked_archive(request).as_of
        asked = Asked(CLI, as_of, over="over" in query, advice=SAY_OVER, leave_out_damaged=leaves_out)
        try:
            await self.operations.restoring.restorer.kept_at(name)
        except StoreError as error:
            return messages.page(request, 404, str(error), code="not_found")

        async def restore(report: Report) -> str:
            return (await self.operations.restoring.restore(name, asked, report)).words

        return await told_in_steps(request, f"restore for {name}", restore)

    async def export(self, request: web.Request) -> web.StreamResponse:
        """Send a person's workspace as a ZIP archive, from the sprite's machine or from the replica."""
        name, asked = request.match_info["name"], _asked_archive(request)
        headers = {"Content-Type": "application/zip", "Content-Disposition": f'attachment; filename="{name}.zip"'}
        async with AsyncExitStack() as stack:
            stack.enter_context(self.operations.ownership.using(name))
            try:
                export = await exported(
                    self.operations.ownership,
                    self.operations.host,
                    self.operations.restoring.restorer,
                    name,
                    lambda *_: None,
                    source=asked.source,
                    as_of=asked.as_of,
                    leave_out_damaged="leave_out_damaged" in request.query,
                )
                chunks = export.chunks
                if isinstance(chunks, AsyncGenerator):
                    # If the client disconnects in the middle, the command ends now.
                    stack.push_async_callback(chunks.aclose)
                chunk = await anext(chunks, None)
            except (HostError, StoreError) as error:
                return messages.page(request, 503, str(error), code="unavailable")
            if export.as_of is not None:
                headers |= {AS_OF: f"{export.as_of:.3f}", LEFT_OUT: quote(export.left_out.words())}
            response = web.StreamResponse(headers=headers)
            # The log must record the export before the client can have all of it.
            at, left_out = export.as_of, export.left_out.names()
            said = {"of": "the machine"} if at is None else {"of": "the store", "as_of": moment(at)}
            said |= {"left_out": left_out} if left_out else {}
            await self.operations.acts.audit.note(_actor(request), EXPORT, name, **said)
            await response.prepare(request)
            try:
                while chunk is not None:
                    # An empty chunk would end the response.
                    if chunk:
                        await response.write(chunk)
                    chunk = await anext(chunks, None)
            except (HostError, StoreError) as error:
                log.warning("an archive could not be written to its end", extra={"person": name})
                # Abort, because a regular end would look like a complete archive.
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError(str(error)) from error
            await response.write_eof()
            return response


@dataclass(frozen=True)
class RunningApi(OperatorApi):
    """The handlers of a running bridge, which also serve its owner's terminals."""

    public: Routes
    owner_router: OwnerRouter | None
    #: Time of the last audit line for a terminal that acts as a person, by the monotonic clock.
    spoken: dict[str, float] = field(default_factory=dict)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of a running bridge's control socket."""
        return [*super().routes(), web.get("/model", self._model), web.get("/ws", self._socket)]

    async def _model(self, _request: web.Request) -> web.Response:
        return messages.as_json({"offline": self.public.offline_model})

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        person = request.query.get("person", LOCAL_PERSON)
        await self.operations.people.require(person)
        now = time.monotonic()
        if person != LOCAL_PERSON and now - self.spoken.get(person, float("-inf")) > _SPOKEN_SECONDS:
            # Once an hour.
            await self.operations.acts.audit.note(CLI, "chat as", person)
            self.spoken[person] = now

        serve = partial(self.public.serve_socket, person=person)
        if self.owner_router is None:
            return await serve(request)
        # By the bridge that has the person's sprite.
        return await self.owner_router.for_person(request, person, serve)


def _actor(request: web.Request) -> str:
    """Return the actor for the audit log: the logged-in person or, because the control socket has no login, `cli`."""
    person: str = request.get(PERSON, CLI)
    return person


@web.middleware
async def _for_owner(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reject requests from programs of an agent, with the reason; pass other requests to the handler."""
    connection = None if request.transport is None else request.transport.get_extra_info("socket")
    words = peer.AGENTS if connection is None else peer.refusal(connection)
    if words is not None:
        log.warning("a program was refused on the control socket")
        return messages.page(request, 403, words, code="refused")
    return await handler(request)


@web.middleware
async def explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn known errors into responses; log any other as a bug."""
    try:
        return await handler(request)
    except DatabaseError as error:
        log.warning("a request on the control socket failed (%s)", error.code)
        return messages.page(request, 503, f"The database could not be used: {error}", code="database")
    except (BridgeError, msgspec.ValidationError, msgspec.DecodeError) as error:
        return messages.page(request, 400, str(error), code="refused")
    except (web.HTTPException, ConnectionError):
        raise
    except Exception:
        # The command line gets the message, the log the traceback.
        log.exception("a request on the control socket failed")
        return messages.page(request, 500, "Something went wrong; the bridge's log says where", code="internal")


class OwnRoutes:
    """Let people export their workspace and manage their tokens. Only a browser's session is accepted, no token."""

    def __init__(self, authenticator: Authenticator, api: OperatorApi) -> None:
        self._authenticator = authenticator
        self._api = api

    def table(self) -> list[web.RouteDef]:
        """Return the routes; register them before the catch-all route for the web page's files."""
        return [
            web.get("/export", self._own(self._api.export), allow_head=False),
            web.get("/tokens", self._own(self._api.tokens), allow_head=False),
            web.post("/tokens", self._own(self._api.make_token, acts=True)),
            web.delete("/tokens/{label}", self._own(self._api.revoke_token, acts=True)),
        ]

    def _own(self, handler: Handler, *, acts: bool = False) -> Handler:
        admit = self._authenticator.who_acts if acts else self._authenticator.who_looks

        async def answer(request: web.Request) -> web.StreamResponse:
            request.match_info["name"] = (await admit(request)).person
            return await explained(request, handler)

        return answer
