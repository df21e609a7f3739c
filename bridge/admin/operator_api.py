"""Handlers of the control socket: people, status, deploys, and requests of `bridge chat`. See control.py."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Literal, Protocol
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.admin import control as peer
from bridge.admin.audit import CLI, EXPORT, of_what
from bridge.admin.operator_actions import Operations, Work, steps_told
from bridge.auth.people import Role
from bridge.auth.tokens import Token
from bridge.config import LOCAL_PERSON
from bridge.db.open import DatabaseError
from bridge.errors import BridgeError, OperatorError
from bridge.http import messages
from bridge.providers.provider import HostError, Report
from bridge.replicas.archive import Source, exported_as_owner
from bridge.replicas.restore import SAY_OVER, Asked
from bridge.replicas.store import StoreError
from bridge.routes import files
from bridge.routes.owner import OwnerRouter

if TYPE_CHECKING:
    from bridge.routes.routes import Routes


async def told_in_steps(request: web.Request, name: str, work: Work) -> web.StreamResponse:
    """Stream the steps as the response, a line of JSON each: {"phase", "words"}."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)

    async def tell(phase: str, words: str) -> None:
        await response.write(msgspec.json.encode({"phase": phase, "words": words}) + b"\n")

    await steps_told(name, work, tell)
    return response


log = logging.getLogger(__name__)

#: Header with the time of an archive of a replica (Unix seconds).
AS_OF: Final = "X-Archive-As-Of"
#: Header with a description of its missing parts, percent-encoded.
LEFT_OUT: Final = "X-Archive-Left-Out"


def _source(text: str | None) -> Source | None:
    match text:
        case None | "machine" | "store":
            return text
        case _:
            raise OperatorError("from must be machine or store.")


def _moment(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise OperatorError("as_of is no time.") from None


#: A terminal reconnects whenever its connection was cut; this interval limits the audit lines.
_SPOKEN_SECONDS = 3600.0


class Notices(Protocol):
    """Notification functions for operators."""

    async def key(self) -> str:
        """Return the key that signs the webhook's messages."""

    async def try_out(self, person: str) -> list[str]:
        """Send a test notification to a person; return descriptions of the channels used."""


class AskedToken(msgspec.Struct):
    """A requested token: its name (null: generate one) and its scopes (null: full access)."""

    label: str | None
    scopes: list[str] | None


class AskedIdentity(msgspec.Struct):
    """A person's identity at a provider."""

    issuer: str
    subject: str


class AskedRole(msgspec.Struct):
    """A person's new role."""

    role: Role


class AskedLine(msgspec.Struct):
    """An action that a command performs itself, for the audit log."""

    action: Literal["store rotate-key", "store accept", "store delete"]
    subject: str
    #: Its outcome; "" at its beginning.
    outcome: str = ""


class MadeToken(msgspec.Struct):
    """A created token; `secret` is not shown again."""

    token: Token
    secret: str


class OperatorApi:
    """Handlers of the control socket; a client that `peer.refusal` admits may do everything here."""

    def __init__(
        self,
        operations: Operations,
        routes: Routes,
        owner_router: OwnerRouter | None,
        notices: Notices,
        key_ids: Callable[[], tuple[str, ...]],
        give_way: Callable[[], None] | None,
    ) -> None:
        """`key_ids` returns the ids of the store's keys, the sealing one first."""
        self._operations = operations
        self._routes = routes
        self._owner_router = owner_router
        self._notices = notices
        self._key_ids = key_ids
        self._give_way = give_way
        #: Time of the last audit line for a terminal that acts as a person, by the monotonic clock.
        self._spoken: dict[str, float] = {}

    def application(self) -> web.Application:
        """Return the application for the control socket."""
        application = web.Application(middlewares=[_for_owner, _explained])
        application.add_routes(
            [
                web.get("/ws", self._socket),
                web.get("/files/{path:.+}", self._file, allow_head=False),
                web.get("/status", self._status),
                web.get("/notify/key", self._notify_key),
                web.post("/notify/test/{name}", self._notify_test),
                web.get("/users", self._users),
                web.post("/users/{name}", self._add),
                web.post("/users/{name}/restore", self._restore),
                web.post("/users/{name}/link", self._link),
                web.delete("/users/{name}", self._revoke),
                web.put("/users/{name}/role", self._change_role),
                web.put("/users/{name}/identity", self._link_identity),
                web.get("/users/{name}/identities", self._ways_in),
                web.delete("/users/{name}/identities/{subject}", self._unlink_identity),
                web.delete("/users/{name}/passkeys/{passkey}", self._remove_passkey),
                web.get("/users/{name}/tokens", self._tokens),
                web.post("/users/{name}/tokens", self._make_token),
                web.delete("/users/{name}/tokens/{label}", self._revoke_token),
                web.get("/store/keys", self._store_keys),
                web.get("/audit", self._audit),
                web.post("/audit", self._note),
                web.post("/deploy/{name}", self._deploy),
                web.get("/export/{name}", self._export, allow_head=False),
                web.post("/restore", self._restore_own),
                web.post("/restore/{name}", self._restore_agent),
                web.post("/give-way", self._make_room),
            ]
        )
        return application

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        person = await self._spoken_as(request)
        return await self._led(request, person, lambda asked: self._routes.serve_socket(asked, person))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        person = await self._spoken_as(request)
        return await self._led(request, person, lambda asked: files.serve(asked, self._operations.host, person))

    async def _spoken_as(self, request: web.Request) -> str:
        """Return the person for whom a terminal speaks; record it once an hour if that is another person."""
        person = request.query.get("person", LOCAL_PERSON)
        await self._operations.people.require(person)
        now = time.monotonic()
        if person != LOCAL_PERSON and now - self._spoken.get(person, float("-inf")) > _SPOKEN_SECONDS:
            await self._operations.acts.audit.note(CLI, "chat as", person)
            self._spoken[person] = now
        return person

    async def _led(self, request: web.Request, person: str, handler: Handler) -> web.StreamResponse:
        """Handle the request on the bridge that has the person's sprite."""
        return await (
            handler(request) if self._owner_router is None else self._owner_router.for_person(request, person, handler)
        )

    async def _make_room(self, _request: web.Request) -> web.Response:
        if self._give_way is None:
            raise OperatorError("This bridge was started to serve, and gives way to no other.")
        log.info("giving way to a bridge that serves")
        self._give_way()
        return _json({})

    async def _status(self, _request: web.Request) -> web.Response:
        return _json({"sprites": await self._operations.overview.rows(), "trouble": await self._operations.trouble()})

    async def _notify_key(self, _request: web.Request) -> web.Response:
        return _json({"key": await self._notices.key()})

    async def _notify_test(self, request: web.Request) -> web.Response:
        await self._operations.people.require(request.match_info["name"])
        return _json({"ways": await self._notices.try_out(request.match_info["name"])})

    async def _users(self, _request: web.Request) -> web.Response:
        return _json({"users": await self._operations.people.everyone()})

    async def _add(self, request: web.Request) -> web.Response:
        link, token = await self._operations.acts.add(CLI, request.match_info["name"])
        return _json({"link": self._operations.link_of(link), "token": token})

    async def _restore(self, request: web.Request) -> web.Response:
        link, token = await self._operations.acts.restore(CLI, request.match_info["name"])
        return _json({"link": self._operations.link_of(link), "token": token})

    async def _link(self, request: web.Request) -> web.Response:
        return _json(
            {"link": self._operations.link_of(await self._operations.acts.link(CLI, request.match_info["name"]))}
        )

    async def _revoke(self, request: web.Request) -> web.Response:
        await self._operations.acts.revoke(CLI, request.match_info["name"])
        return _json({})

    async def _change_role(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=AskedRole)
        return _json(
            {"has_changed": await self._operations.acts.change_role(CLI, request.match_info["name"], asked.role)}
        )

    async def _link_identity(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=AskedIdentity)
        name = request.match_info["name"]
        return _json({"before": await self._operations.acts.link_identity(CLI, name, asked.issuer, asked.subject)})

    async def _store_keys(self, _request: web.Request) -> web.Response:
        return _json({"keys": self._key_ids()})

    async def _ways_in(self, request: web.Request) -> web.Response:
        return _json(await self._operations.acts.ways_in(request.match_info["name"]))

    async def _unlink_identity(self, request: web.Request) -> web.Response:
        name, subject = request.match_info["name"], request.match_info["subject"]
        return _json(
            {"issuer": await self._operations.acts.unlink_identity(CLI, name, subject, request.query.get("issuer"))}
        )

    async def _remove_passkey(self, request: web.Request) -> web.Response:
        name, passkey = request.match_info["name"], request.match_info["passkey"]
        return _json({"label": await self._operations.acts.remove_passkey(CLI, name, passkey)})

    async def _audit(self, request: web.Request) -> web.Response:
        return _json(await self._operations.acts.audit.since(float(request.query.get("since", "0"))))

    async def _note(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=AskedLine)
        detail = {"outcome": asked.outcome} if asked.outcome else {}
        await self._operations.acts.audit.note(CLI, asked.action, asked.subject, **detail)
        return _json({})

    async def _tokens(self, request: web.Request) -> web.Response:
        return _json({"tokens": await self._operations.people.tokens.of(request.match_info["name"])})

    async def _make_token(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        asked = msgspec.json.decode(await request.read(), type=AskedToken)
        secret, token = await self._operations.acts.make_token(CLI, name, asked.label, asked.scopes)
        return _json(MadeToken(token, secret))

    async def _revoke_token(self, request: web.Request) -> web.Response:
        await self._operations.acts.revoke_token(CLI, request.match_info["name"], request.match_info["label"])
        return _json({})

    async def _deploy(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]

        async def deploy(report: Report) -> str:
            await self._operations.acts.deploy(CLI, self._operations.ownership, self._operations.host, name, report)
            return f"{name} is deployed."

        return await told_in_steps(request, f"deploy of {name}", deploy)

    async def _restore_agent(self, request: web.Request) -> web.StreamResponse:
        name, query = request.match_info["name"], request.query
        asked = Asked(
            CLI,
            _moment(query.get("as_of")),
            over="over" in query,
            anew="anew" in query,
            advice=SAY_OVER,
            leave_out_damaged="leave_out_damaged" in query,
        )

        async def restore(report: Report) -> str:
            return (await self._operations.restoring.restore(name, asked, report)).words

        return await told_in_steps(request, f"restore for {name}", restore)

    async def _restore_own(self, request: web.Request) -> web.StreamResponse:
        person = request.query.get("person", LOCAL_PERSON)
        await self._operations.people.require(person)
        return await self._operations.restoring.answer(request, person, actor=person if person == LOCAL_PERSON else CLI)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        headers = {"Content-Type": "application/zip"}
        async with AsyncExitStack() as stack:
            stack.enter_context(self._operations.ownership.using(name))
            try:
                export = await exported_as_owner(
                    self._operations.ownership,
                    self._operations.host,
                    self._operations.restoring.restorer,
                    name,
                    lambda *_: None,
                    source=_source(request.query.get("from")),
                    as_of=_moment(request.query.get("as_of")),
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
            said = of_what(export.as_of, request.query.get("into", ""), export.left_out.names())
            async with self._operations.acts.audit.act(CLI, EXPORT, name, **said):
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


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


@web.middleware
async def _for_owner(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse programs of agents with an explanation."""
    connection = None if request.transport is None else request.transport.get_extra_info("socket")
    words = peer.AGENTS if connection is None else peer.refusal(connection)
    if words is not None:
        log.warning("a program was refused on the control socket")
        return messages.page(request, 403, words, code="refused")
    return await handler(request)


@web.middleware
async def _explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn known errors into responses; log any other as a bug."""
    try:
        return await handler(request)
    except DatabaseError as error:
        log.warning("a request on the control socket failed (%s)", error.code)
        return messages.page(request, 503, f"The database could not be used: {error}", code="database")
    except BridgeError as error:
        return messages.page(request, 400, str(error), code="refused")
    except (web.HTTPException, ConnectionError):
        raise
    except Exception:
        # The command line gets the message, the log the traceback.
        log.exception("a request on the control socket failed")
        return messages.page(request, 500, "Something went wrong; the bridge's log says where", code="internal")
