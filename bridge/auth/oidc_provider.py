"""Client of the OIDC provider: discovery, keys and code exchange. The provider's answers are limited in size.

Owns the HTTP requests; has no data of people. No token is stored: an access token is used for one userinfo request.
"""

import asyncio
import base64
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # type: ignore[import-untyped] # has no stubs
from authlib.oauth2.rfc7636 import create_s256_code_challenge  # type: ignore[import-untyped] # has no stubs
from authlib.oidc.core import CodeIDToken  # type: ignore[import-untyped] # has no stubs
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from bridge.auth.people import claim_in
from bridge.config import OidcSettings, is_safe
from bridge.errors import BridgeError
from bridge.http.messages import body_within
from sprite.common.tasks import Service

#: Excludes `none` and algorithms with a shared secret.
ALGORITHMS: Final = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519".split()
#: Allowed clock difference between bridge and provider, in seconds.
SKEW_SECONDS: Final = 60
MAX_TOKEN_CHARACTERS: Final = 32 * 1024
_MAX_SUBJECT_CHARACTERS = 255


class IdTokenError(BridgeError):
    """The provider's ID token is invalid; the message is for operators."""


class UnknownKeyError(IdTokenError):
    """The ID token is signed with a key that is not among the provider's."""


def verified(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str, now: float, access_token: str | None = None
) -> dict[str, Any]:
    """Return the claims of a valid token. IdTokenError says why one is invalid."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise IdTokenError("it is too long")
    try:
        kid = jws.extract_compact(token.encode("ascii")).headers().get("kid")
        if kid is not None and all(key.kid != kid for key in keys.keys):
            raise UnknownKeyError("it is signed by an unknown key")
        read = jwt.decode(token, keys, algorithms=ALGORITHMS)
        options: Any = {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": client_id}}
        params = {"nonce": nonce, "client_id": client_id, "access_token": access_token}
        claims = CodeIDToken(read.claims, read.header, options, params)
        claims.validate(now=int(now), leeway=SKEW_SECONDS)
    except JoseError as error:
        # The description names a claim or header, without its value.
        raise IdTokenError(error.description or error.error) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise IdTokenError("it cannot be read") from error
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT_CHARACTERS or not subject.isprintable():
        raise IdTokenError("its subject is not a valid name")
    return dict(claims)


log = logging.getLogger(__name__)

_SECONDS = 10.0
_MAX_ANSWER_BYTES = 256 * 1024
_DISCOVERY_SECONDS = 3600.0
#: Longest time that a withdrawn key is still accepted.
_KEYS_LAST_SECONDS = 3600.0
#: Shortest time between two key requests, because any token can name an unknown key.
_KEYS_SECONDS = 60.0
_T = TypeVar("_T")
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOKEN_CHARACTERS)]


class ProviderError(BridgeError):
    """The provider is unreachable or its answer is invalid; the message is for operators."""


class CodeRefusedError(ProviderError):
    """The provider rejects this code: it was used or has expired."""


class _Discovery(msgspec.Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] = []


class _Tokens(msgspec.Struct):
    id_token: _Text
    access_token: _Text | None = None


class Provider(Service):
    """Call an OIDC provider while the block runs. `redirect_uri` is the callback for browsers."""

    def __init__(self, settings: OidcSettings, redirect_uri: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._redirect_uri = redirect_uri
        self._clock = clock
        self._discovery: tuple[float, _Discovery] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._looking = asyncio.Lock()
        self._session: aiohttp.ClientSession

    async def _open(self, stack: AsyncExitStack) -> None:
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        # A cookie of the provider would be shared by all people.
        session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=True)
        self._session = await stack.enter_async_context(session)

    async def login_address(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the provider's login URL for a browser. Raises ProviderError."""
        found = await self._discovered()
        return str(
            prepare_grant_uri(
                found.authorization_endpoint,
                self.settings.client_id,
                "code",
                self._redirect_uri,
                list(self.settings.scopes),
                state,
                nonce=nonce,
                code_challenge=create_s256_code_challenge(verifier),
                code_challenge_method="S256",
            )
        )

    async def claims(self, code: str, *, verifier: str, nonce: str) -> dict[str, Any]:
        """Exchange a code and return the verified claims. Raises ProviderError or IdTokenError."""
        found = await self._discovered()
        tokens = await self._exchanged(found, code, verifier)
        claims = await self._believed(found, tokens, nonce)
        wanted = ("preferred_username", "email", self.settings.groups_claim)
        is_lacking = any(claim_in(claims, claim) is None for claim in wanted)
        if found.userinfo_endpoint is not None and tokens.access_token is not None and is_lacking:
            claims = await self._told(found.userinfo_endpoint, tokens.access_token, claims)
        return claims

    async def _discovered(self) -> _Discovery:
        async with self._looking:
            if self._discovery is not None and self._clock() - self._discovery[0] < _DISCOVERY_SECONDS:
                return self._discovery[1]
            address = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            found = await self._asked(_Discovery, "GET", address)
            if found.issuer != self.settings.issuer:
                raise ProviderError("The login provider names another issuer than BRIDGE_OIDC_ISSUER.")
            endpoints = [found.authorization_endpoint, found.token_endpoint, found.jwks_uri]
            for endpoint in [*endpoints, *([found.userinfo_endpoint] if found.userinfo_endpoint else [])]:
                if not is_safe(endpoint):
                    raise ProviderError("The login provider names an address without https.")
            self._discovery = (self._clock(), found)
            return found

    async def _exchanged(self, found: _Discovery, code: str, verifier: str) -> _Tokens:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers = {}
        identity, secret = self.settings.client_id, self.settings.client_secret
        methods = found.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        if secret is None or "client_secret_basic" not in methods:
            form["client_id"] = identity
            if secret is not None:
                form["client_secret"] = secret
        else:
            # RFC 6749, section 2.3.1: both are form-encoded first.
            pair = f"{quote(identity, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return await self._asked(_Tokens, "POST", found.token_endpoint, form=form, headers=headers)

    async def _believed(self, found: _Discovery, tokens: _Tokens, nonce: str) -> dict[str, Any]:
        verify = partial(
            verified,
            tokens.id_token,
            issuer=self.settings.issuer,
            client_id=self.settings.client_id,
            nonce=nonce,
            now=time.time(),
            access_token=tokens.access_token,
        )
        try:
            return verify(await self._known_keys(found, is_stale=False))
        except UnknownKeyError:
            return verify(await self._known_keys(found, is_stale=True))

    async def _known_keys(self, found: _Discovery, *, is_stale: bool) -> KeySet:
        """Return the provider's keys, at most an hour old; a minute if a token has an unknown key (`is_stale`)."""
        lasting = _KEYS_SECONDS if is_stale else _KEYS_LAST_SECONDS
        async with self._looking:
            if self._keys is not None and self._clock() - self._keys[0] < lasting:
                return self._keys[1]
            told = await self._asked(dict[str, Any], "GET", found.jwks_uri)
            try:
                keys = KeySet.import_key_set({"keys": [key for key in told["keys"] if key.get("use", "sig") == "sig"]})
            except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise ProviderError("The login provider's signing keys cannot be read.") from error
            self._keys = (self._clock(), keys)
            return keys

    async def _told(self, endpoint: str, access_token: str, claims: dict[str, Any]) -> dict[str, Any]:
        """Return the ID token's claims, completed from the provider's userinfo `endpoint`. Signed claims win."""
        headers = {"Authorization": f"Bearer {access_token}"}
        told = await self._asked(dict[str, Any], "GET", endpoint, headers=headers)
        if told.get("sub") != claims["sub"]:
            raise ProviderError("The login provider's answer is about another person than the one who logged in.")
        return {**told, **claims}

    async def _asked(
        self,
        type_: type[_T],
        method: str,
        address: str,
        *,
        form: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> _T:
        """Send a request to the provider and decode the answer. Redirects are not followed: the request has secrets."""
        headers = {"Accept": "application/json", **(headers or {})}
        try:
            async with self._session.request(
                method, address, data=form, headers=headers, allow_redirects=False
            ) as response:
                body = await body_within(response, _MAX_ANSWER_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ProviderError("The login provider cannot be reached.") from error
        if body is None:
            raise ProviderError("The login provider's answer is too large.")
        if form is not None and response.status in {400, 401, 403}:
            _refused(body)
        if response.status != 200:  # noqa: PLR2004 - OK
            raise ProviderError(f"The login provider answered with status {response.status}.")
        try:
            return msgspec.json.decode(body, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProviderError("The provider's answer is invalid.") from error


class _Refusal(msgspec.Struct):
    error: str = ""


def _refused(body: bytes) -> None:
    """Raise CodeRefusedError or ProviderError for the token endpoint's error response."""
    try:
        code = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        code = ""
    if code == "invalid_grant":
        raise CodeRefusedError("The login provider no longer accepts this login.")
    if code in {"invalid_client", "unauthorized_client"}:
        raise ProviderError("The provider refuses the bridge. Check BRIDGE_OIDC_CLIENT_ID and _SECRET.")
    raise ProviderError("The login provider refused to say who logged in.")
