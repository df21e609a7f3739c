"""Routes for notifications in the page and its service worker: key, subscriptions, test, and answers to questions.

They accept only the session cookie of a logged-in browser: a subscription ends with the session that made it.
"""

import asyncio
import logging
import time
from typing import Annotated, Literal, TypeVar

import msgspec
from aiohttp import web

from bridge.auth.login import Authenticator, Caller
from bridge.db.database import Database, Transaction, in_snapshot
from bridge.http import messages
from bridge.http.messages import small_body
from bridge.hub.hub import Relay
from bridge.hub.link import LinkDownError
from bridge.notify.push import Push, Subscription, SubscriptionError, Subscriptions, VapidKey
from sprite.common.limits import TokenBucket
from sprite.protocol.messages import Ack, Error, Permission, ServerPayload, Status, System

log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Browsers give a worker about half a minute to handle a notification.
_ANSWER_SECONDS = 20.0
#: For all people together: each test is a request to an external service.
_TESTS_PER_SECOND, _TESTS_AT_ONCE = 0.2, 10.0
_SUBSCRIPTION = '{"endpoint": "https://…", "keys": {"p256dh": "…", "auth": "…"}}'
_ENDPOINT = '{"endpoint": "https://…"}'
_GO_ON = '{"raise_limit": false}'
_DECISION = '{"request_id": "…", "decision": "allow"}'


class Endpoint(msgspec.Struct, frozen=True):
    """A push subscription's URL, which identifies one of the person's browsers."""

    endpoint: str


class Decision(msgspec.Struct, frozen=True):
    """A decision that a person made in a notification. "Always" is offered only in the page, which explains it."""

    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    decision: Literal["allow", "deny"]


class GoOn(msgspec.Struct, frozen=True):
    """A click on "Go on" in a notification, or on "Raise today's limit and go on"."""

    raise_limit: bool = False


class PushRoutes:
    """HTTP handlers for notifications; answers to questions go through the relay to the person's sprite.

    The routes for settings answer with the current choice: `{"words": false}`.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        settings: "NotifySettingsStore",
        key: VapidKey,
        subscriptions: Subscriptions,
        push: Push,
        relay: Relay,
    ) -> None:
        self._authenticator = authenticator
        self._settings = settings
        self._key = key
        self._subscriptions = subscriptions
        self._push = push
        self._relay = relay
        self._tests = TokenBucket(_TESTS_PER_SECOND, _TESTS_AT_ONCE)

    def table(self) -> list[web.RouteDef]:
        """Return the routes; register them before the catch-all for the page's files."""
        return [
            web.get("/push/key", self._show_key, allow_head=False),
            web.post("/push/subscriptions", self._subscribe),
            web.delete("/push/subscriptions", self._unsubscribe),
            web.post("/push/test", self._test),
            web.post("/push/permission", self._permission),
            web.post("/push/go-on", self._go_on),
            web.get("/notify/settings", self._show_settings, allow_head=False),
            web.put("/notify/settings", self._change_settings),
        ]

    async def _show_key(self, request: web.Request) -> web.StreamResponse:
        await self._authenticator.who_looks(request)
        return web.json_response({"key": self._key.public}, headers={"Cache-Control": "no-store"})

    async def _subscribe(self, request: web.Request) -> web.StreamResponse:
        caller, subscription = await self._asked(request, Subscription, _SUBSCRIPTION)
        try:
            await self._subscriptions.add(caller.person, caller.session or "", subscription)
        except SubscriptionError as error:
            return messages.page(request, 400, "This browser cannot be reached", str(error), code="bad_subscription")
        return await self._done(caller, 201)

    async def _unsubscribe(self, request: web.Request) -> web.StreamResponse:
        caller, which = await self._asked(request, Endpoint, _ENDPOINT)
        await self._subscriptions.remove(caller.person, which.endpoint)
        return web.Response(status=204)

    async def _test(self, request: web.Request) -> web.StreamResponse:
        caller, which = await self._asked(request, Endpoint, _ENDPOINT)
        own = await self._subscriptions.of(caller.person)
        found = next((each for each in own if each.endpoint == which.endpoint), None)
        if found is None:
            words = "Turn notifications off in this browser and on again."
            return messages.page(request, 404, "This browser is not known here", words, code="no_subscription")
        if self._tests.wait(1) > 0:
            return messages.page(request, 429, "Too many tests at once", "Wait a minute.", code="rate_limited")
        self._tests.take(1)
        if not await self._push.try_out(found, time.time()):
            words = "The push service of this browser did not accept the message. Try again in a while."
            return messages.page(request, 502, "The notification could not be sent", words, code="push_failed")
        return web.Response(status=202)

    async def _permission(self, request: web.Request) -> web.StreamResponse:
        caller, word = await self._asked(request, Decision, _DECISION)
        answer = await self._told(caller, Permission(word.request_id, word.decision))
        if isinstance(answer, Error) and answer.code == "not_found":
            words = "Somebody answered it elsewhere, or nobody answered in time."
            return messages.page(request, 409, "This question is not open any more", words, code="closed")
        if not isinstance(answer, Ack):
            words = answer.message if isinstance(answer, Error) else "The sprite's answer is invalid."
            if answer is None:
                words = "Your sprite could not be reached. Open the page, and answer there."
            return messages.page(request, 503, "Your answer did not arrive", words, code="unavailable")
        log.info("a question was answered from a notification", extra={"person": caller.person})
        return await self._done(caller)

    async def _go_on(self, request: web.Request) -> web.StreamResponse:
        """Resume a paused agent, after raising today's limit where the notification said so."""
        caller, word = await self._asked(request, GoOn, _GO_ON)
        if word.raise_limit and not await self._relay.raise_today(caller.person):
            words = "Today's limit cannot be raised now, because the bridge cannot store it. Try again soon."
            return messages.page(request, 503, "The agent does not continue yet", words, code="unavailable")
        if not isinstance(await self._told(caller, System(action="go_on")), Status):
            words = "Your sprite could not be reached. Open the page, and continue there."
            return messages.page(request, 503, "Your answer did not arrive", words, code="unavailable")
        log.info("a paused agent is resumed by a notification", extra={"person": caller.person})
        return await self._done(caller)

    async def _show_settings(self, request: web.Request) -> web.StreamResponse:
        caller = await self._authenticator.known(request)
        return messages.as_json(await self._settings.of(caller.person))

    async def _change_settings(self, request: web.Request) -> web.StreamResponse:
        caller = await self._authenticator.known(request, acts=True)
        chosen = await small_body(request, NotifySettings, '{"words": true}')
        await self._settings.change(caller.person, chosen)
        return messages.as_json(chosen)

    async def _told(self, caller: Caller, payload: Permission | System) -> ServerPayload | None:
        """Send a message of the person to the sprite. Return the answer, or None if it does not come in time."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                with self._relay.held(caller.person) as room:
                    return await room.ask(payload)
        except (TimeoutError, LinkDownError):
            return None

    async def _done(self, caller: Caller, status: int = 204) -> web.StreamResponse:
        response = web.Response(status=status)
        await self._authenticator.renew(response, caller)
        return response

    async def _asked(self, request: web.Request, kind: type[_T], example: str) -> tuple[Caller, _T]:
        """Return the caller and the JSON body as `kind`. Raises AnsweredError, whose text shows `example`."""
        caller = await self._authenticator.who_acts(request)
        return caller, await small_body(request, kind, example)


class NotifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Without `words`, the default, notifications hide their subject: they pass through services and locked screens."""

    words: bool = False


class NotifySettingsStore:
    """Read and write each person's choice about notifications."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_snapshot
    def of(self, db: Transaction, person: str) -> NotifySettings:
        """Return the person's choice, or the default. Raise DatabaseError."""
        row = db.execute("SELECT words FROM notify_settings WHERE person = ?", (person,)).fetchone()
        return NotifySettings() if row is None else NotifySettings(words=bool(row["words"]))

    async def wants_words(self, person: str) -> bool:
        """Return whether the person wants full texts. Raise DatabaseError."""
        return (await self.of(person)).words

    async def change(self, person: str, settings: NotifySettings) -> None:
        """Store a choice. Raise DatabaseError."""
        await self._database.statement(
            "INSERT INTO notify_settings VALUES (?, ?) ON CONFLICT (person) DO UPDATE SET words = excluded.words",
            (person, int(settings.words)),
        )
