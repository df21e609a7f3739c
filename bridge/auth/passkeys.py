"""`/passkeys` lists, adds and removes the logged-in person's passkeys. `/login/passkey` logs in with one."""

import logging
import secrets
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from bridge.auth.admission import OpenSockets
from bridge.auth.login import Authenticator, log_in, return_path
from bridge.auth.passkey_store import MAX_LABEL_CHARACTERS, Party, PasskeyError, Passkeys, credential_named, user_handle
from bridge.auth.sealed_cookie import SealedCookie, Spent
from bridge.http import messages
from bridge.http.messages import body_within, small_form

_UNKNOWN = "This passkey is unknown here. Log in another way, and add it again."


class Asked(msgspec.Struct, frozen=True):
    """A passkey challenge, as the browser's cookie keeps it: `person` is the owner of a new passkey, "" for a login."""

    challenge: str
    kind: Literal["new", "login"]
    person: str = ""


class PasskeyFlow:
    """Create passkeys and log people in with them. The browser's signed cookie keeps `Asked` in between."""

    def __init__(self, passkeys: Passkeys, party: Party, spent: Spent) -> None:
        self.passkeys = passkeys
        self.party = party
        self._spent = spent

    async def begin_new(self, person: str) -> tuple[Asked, bytes]:
        """Return a new passkey's challenge for the browser's cookie, and the options for the device as JSON."""
        asked = Asked(secrets.token_urlsafe(32), "new", person)
        known = await self.passkeys.of(person)
        return asked, self.party.new_options(person, asked.challenge.encode(), known)

    def begin_login(self) -> tuple[Asked, bytes]:
        """Return a login's challenge for the browser's cookie, and the options for the device as JSON."""
        asked = Asked(secrets.token_urlsafe(32), "login")
        return asked, self.party.login_options(asked.challenge.encode())

    async def end_new(self, asked: Asked | None, person: str, answer: bytes, label: str) -> None:
        """Verify and store a new passkey. Raise PasskeyError."""
        challenge = await self._challenge(asked, "new", person)
        made = self.party.believed_new(answer, challenge)
        await self.passkeys.add(person, made.credential_id, made.credential_public_key, made.sign_count, label)

    async def end_login(self, asked: Asked | None, answer: bytes) -> str:
        """Verify a login and return its person. Raises PasskeyError."""
        challenge = await self._challenge(asked, "login", "")
        credential_id, handle = credential_named(answer)
        passkey = await self.passkeys.found(credential_id)
        if passkey is None or (handle is not None and handle != user_handle(passkey.person)):
            raise PasskeyError(_UNKNOWN)
        verified = self.party.believed_login(answer, challenge, passkey)
        if not await self.passkeys.used(passkey, verified.new_sign_count):
            raise PasskeyError("This passkey was used elsewhere at the same moment. Try again.")
        return passkey.person

    async def _challenge(self, asked: Asked | None, kind: str, person: str) -> bytes:
        """Consume a challenge and return it. Raises PasskeyError if it does not match or was answered."""
        if asked is None or (asked.kind, asked.person) != (kind, person):
            raise PasskeyError("The login took more than ten minutes, or was started in another browser. Try again.")
        if not await self._spent.spend(asked.challenge):
            raise PasskeyError("This passkey request was already answered. Try again.")
        return asked.challenge.encode()


log = logging.getLogger(__name__)

_SCRIPT = "/passkeys.js"
_MAX_ANSWER_BYTES = 32 * 1024


class NewPasskey(msgspec.Struct):
    """A browser's request: the device's raw answer and the label for the key."""

    answer: msgspec.Raw
    label: Annotated[str, msgspec.Meta(max_length=400)] = ""


class PasskeyDoor:
    """Serve the routes that log people in by passkey, and that list, add and remove passkeys."""

    def __init__(
        self, flow: PasskeyFlow, authenticator: Authenticator, open_sockets: OpenSockets, cookie: SealedCookie[Asked]
    ) -> None:
        self._flow = flow
        self._authenticator = authenticator
        self._open_sockets = open_sockets
        self._cookie = cookie

    def table(self) -> list[web.RouteDef]:
        """Return the passkey routes, which must come before the catch-all for the page's files."""
        return [
            web.get("/passkeys", self._show, allow_head=False),
            web.post("/passkeys", self._add),
            web.post("/passkeys/options", self._begin),
            web.post("/passkeys/remove", self._remove),
            web.get("/login/passkey", self._login_page, allow_head=False),
            web.post("/login/passkey", self._login),
            web.post("/login/passkey/options", self._begin_login),
        ]

    # --- who is logged in ---

    async def _show(self, request: web.Request) -> web.StreamResponse:
        caller = await self._authenticator.who_looks(request)
        return self._page(
            request,
            "Your passkeys",
            person=caller.person,
            passkeys=await self._flow.passkeys.of(caller.person),
            token=self._authenticator.form_token(caller),
            max_label=MAX_LABEL_CHARACTERS,
        )

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        caller = await self._authenticator.who_acts(request)
        return self._asked(*await self._flow.begin_new(caller.person))

    async def _add(self, request: web.Request) -> web.StreamResponse:
        # The body may arrive slowly, so the caller is authenticated after it.
        body = await body_within(request, _MAX_ANSWER_BYTES)
        caller = await self._authenticator.who_acts(request)
        try:
            sent = msgspec.json.decode(body or b"", type=NewPasskey)
            await self._flow.end_new(self._cookie.of(request), caller.person, bytes(sent.answer), sent.label)
        except (PasskeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return self._refused(request, error)
        log.info("a passkey was added", extra={"person": caller.person})
        response = web.Response(status=201)
        self._cookie.take_back(response)
        return response

    async def _remove(self, request: web.Request) -> web.StreamResponse:
        caller = await self._authenticator.who_looks(request)
        form = await small_form(request)
        self._authenticator.require_own_form(request, caller, form.get("token", ""))
        try:
            credential_id = bytes.fromhex(form.get("passkey", ""))
        except ValueError:
            credential_id = b""
        if await self._flow.passkeys.remove(caller.person, credential_id):
            log.info("a passkey was removed", extra={"person": caller.person})
        return messages.redirect("/passkeys")

    # --- who logs in ---

    async def _login_page(self, request: web.Request) -> web.StreamResponse:
        return self._page(request, "Log in", person=None, to=return_path(request.query.get("to", "/")))

    async def _begin_login(self, request: web.Request) -> web.StreamResponse:
        self._authenticator.require_same_origin(request)
        return self._asked(*self._flow.begin_login())

    async def _login(self, request: web.Request) -> web.StreamResponse:
        self._authenticator.require_same_origin(request)
        body = await body_within(request, _MAX_ANSWER_BYTES)
        response = web.Response(status=204)
        try:
            person = await self._flow.end_login(self._cookie.of(request), body or b"")
            if not await log_in(self._authenticator, self._open_sockets, request, person, response):
                raise PasskeyError("Your access here was revoked.")  # noqa: TRY301 - one refusal for all
        except PasskeyError as error:
            return self._refused(request, error)
        log.info("somebody logged in by a passkey", extra={"person": person})
        self._cookie.take_back(response)
        return response

    def _page(self, request: web.Request, title: str, **values: Any) -> web.Response:
        party = self._flow.party
        elsewhere = "" if party.is_at(request.host) else party.origins[0]
        return messages.document(
            "passkeys.html", title, style="passkeys.css", script=_SCRIPT, elsewhere=elsewhere, **values
        )

    def _asked(self, asked: Asked, options: bytes) -> web.Response:
        headers = {"Cache-Control": "no-store"}
        response = web.Response(body=options, content_type="application/json", headers=headers)
        self._cookie.give(response, asked)
        return response

    def _refused(self, request: web.Request, error: Exception) -> web.Response:
        words = str(error) if isinstance(error, PasskeyError) else "The browser's answer is not from a passkey."
        response = messages.page(request, 400, "This passkey was rejected", words, code="passkey")
        self._cookie.take_back(response)
        return response


def no_passkeys() -> list[web.RouteDef]:
    """Return routes that explain why this address has no passkeys."""

    async def refuse(request: web.Request) -> web.StreamResponse:
        return messages.page(
            request,
            404,
            "There are no passkeys at this address",
            "Browsers store passkeys only for a host name with https, not for an IP address or plain http.",
            "Whoever runs this bridge can change that: with an https proxy in front of it and "
            "`BRIDGE_PUBLIC_URL=https://NAME`.",
            code="no_passkeys",
        )

    return [
        web.get("/passkeys", refuse, allow_head=False),
        web.get("/login/passkey", refuse, allow_head=False),
        web.post("/{path:passkeys(?:/options|/remove)?|login/passkey(?:/options)?}", refuse),
    ]
