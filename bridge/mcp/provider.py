"""OAuth provider for the `mcp` package, over `grants`.

Registrations are not verified. Redirect URIs are checked, because the receiver of an answer gets access.
"""

import json
import re
import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from itsdangerous import BadSignature, URLSafeTimedSerializer
from mcp.server.auth import provider as sdk
from mcp.shared.auth import InvalidRedirectUriError, InvalidScopeError, OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl, ValidationError

from bridge.auth.tokens import Scope
from bridge.mcp.grants import ACCESS_SECONDS, Grants, Issued
from bridge.mcp.mount import CONSENT, is_here

#: Scopes that a program can be granted here. `observe` requires a token that a person creates.
GRANTABLE: Final[tuple[Scope, ...]] = ("memory:read", "actions", "ask")
#: Limits for a person's answer, and for the program to exchange its code.
ASK_SECONDS: Final = 600
_CODE_SECONDS: Final = 60
_MAX_INFO_CHARS, _MAX_REDIRECTS, _MAX_REDIRECT_CHARS = 16_384, 10, 500
_MAX_STATE_CHARS, _CHALLENGE = 2_000, re.compile(r"[A-Za-z0-9_-]{43,128}")
#: A program's own scheme: a reversed domain (RFC 8252, 7.1). Others may belong to other programs or the browser.
_SCHEME = re.compile(r"(?=.{1,64}\Z)[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+")
_HOST = re.compile(r"\[[0-9a-f:.]+\]|[a-z0-9.-]+")
_UNSAFE = "A redirect URI must use https, http on this machine, or a reversed domain as its scheme (com.example.app:)."


class Program(OAuthClientInformationFull):
    """A registered program."""

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """Accept a registered URI; for loopback URIs any port is accepted (RFC 8252, 7.3)."""
        try:
            return super().validate_redirect_uri(redirect_uri)
        except InvalidRedirectUriError:
            known = {_without_port(str(uri)) for uri in self.redirect_uris or []} - {None}
            if redirect_uri is None or _without_port(str(redirect_uri)) not in known:
                raise
            return redirect_uri

    def validate_scope(self, requested_scope: str | None) -> list[str] | None:
        """Return the requested scopes, or None. They are only a wish: the person chooses the granted ones."""
        wanted = [] if requested_scope is None else requested_scope.split()
        for scope in wanted:
            if scope not in GRANTABLE:
                raise InvalidScopeError(f"There is no scope {scope[:40]!r}. The scopes are {', '.join(GRANTABLE)}.")
        return wanted or None


class GrantedAccess(sdk.OAuthAuthorizationServerProvider[sdk.AuthorizationCode, sdk.RefreshToken, sdk.AccessToken]):
    """Register programs and exchange their codes and tokens, as the provider of the `mcp` package.

    `is_ours` checks resource indicators; `ended` ends the requests of a revoked grant.
    """

    def __init__(
        self, grants: Grants, cookie_key: bytes, is_ours: Callable[[str], bool], ended: Callable[[bytes], None]
    ) -> None:
        self._grants = grants
        self._asked = URLSafeTimedSerializer(cookie_key, salt="mcp consent")
        self._is_ours = is_ours
        self._ended = ended

    async def get_client(self, client_id: str) -> Program | None:
        """Return a registered program, or None."""
        info = await self._grants.client(client_id)
        try:
            return None if info is None else Program.model_validate_json(info)
        except ValidationError:
            # Stored by another version of the package; the program registers again.
            return None

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Store a program's registration. Raises RegistrationError for an unsafe redirect URI."""
        uris = [str(uri) for uri in client_info.redirect_uris or []]
        if not 0 < len(uris) <= _MAX_REDIRECTS:
            raise sdk.RegistrationError("invalid_redirect_uri", f"Register 1 to {_MAX_REDIRECTS} redirect URIs.")
        for uri in uris:
            if leads_to(uri) is None:
                raise sdk.RegistrationError("invalid_redirect_uri", _UNSAFE)
        info = client_info.model_dump_json(exclude_none=True)
        if len(info) > _MAX_INFO_CHARS:
            words = f"The registration has more than {_MAX_INFO_CHARS:,} characters."
            raise sdk.RegistrationError("invalid_client_metadata", words)
        await self._grants.add_client(client_info.client_id, info)

    async def authorize(self, client: OAuthClientInformationFull, params: sdk.AuthorizationParams) -> str:
        """Return the URL of the page that asks the person for consent to a program's request."""
        if params.resource is not None and not self._is_ours(params.resource):
            raise sdk.AuthorizeError("invalid_target", "This bridge gives access only to its own /mcp.")
        if _CHALLENGE.fullmatch(params.code_challenge) is None:
            raise sdk.AuthorizeError("invalid_request", "The code challenge is not a valid S256 challenge.")
        if len(params.state or "") > _MAX_STATE_CHARS:
            raise sdk.AuthorizeError("invalid_request", f"A state may have at most {_MAX_STATE_CHARS:,} characters.")
        asked = [client.client_id, params.model_dump(mode="json")]
        return f"{CONSENT}?request={self._asked.dumps(asked)}"

    async def asked(self, text: str) -> tuple[Program, sdk.AuthorizationParams] | None:
        """Return the program and its request from a consent URL, or None if it is invalid or expired."""
        try:
            client_id, params = self._asked.loads(text, max_age=ASK_SECONDS)
        except BadSignature:
            return None
        client = await self.get_client(client_id)
        return None if client is None else (client, sdk.AuthorizationParams.model_validate(params))

    async def agreed(self, program: Program, params: sdk.AuthorizationParams, person: str, scopes: list[str]) -> str:
        """Store a person's consent. Return its code, valid once and for a minute."""
        code = sdk.AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=scopes,
            expires_at=time.time() + _CODE_SECONDS,
            client_id=program.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=person,
        )
        await self._grants.add_code(code)
        return code.code

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> sdk.AuthorizationCode | None:
        """Return a code's consent if it belongs to this program."""
        info = await self._grants.code(authorization_code)
        if info is None:
            return None
        code = sdk.AuthorizationCode.model_validate({**json.loads(info), "code": authorization_code})
        return code if code.client_id == client.client_id else None

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: sdk.AuthorizationCode
    ) -> OAuthToken:
        """Exchange a code for tokens, once."""
        issued = await self._grants.exchange_code(authorization_code, client.client_name or "")
        if issued is None:
            raise sdk.TokenError("invalid_grant", "This code was used, or has expired.")
        return _tokens(issued)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> sdk.RefreshToken | None:
        """Return a refresh token's grant if it belongs to this program. A token that was used before ends its grant."""
        grant = await self._grants.refresh(refresh_token)
        if grant is None and (key := await self._grants.end_reused(refresh_token)) is not None:
            self._ended(key)
        if grant is None or grant.client_id != client.client_id:
            return None
        return sdk.RefreshToken(
            token=refresh_token,
            client_id=grant.client_id,
            scopes=grant.scopes,
            expires_at=int(grant.expires_at),
            subject=grant.person,
        )

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - the package asks for it
        refresh_token: sdk.RefreshToken,
        scopes: list[str],  # noqa: ARG002 - see below
    ) -> OAuthToken:
        """Exchange a refresh token for new tokens, once. The grant keeps its scopes; fewer need a new consent."""
        issued = await self._grants.exchange_refresh(refresh_token.token)
        if issued is None:
            raise sdk.TokenError("invalid_grant", "This refresh token was used, or has expired.")
        return _tokens(issued)

    async def load_access_token(self, token: str) -> sdk.AccessToken | None:
        """Never called: the bridge looks access tokens up itself."""
        raise NotImplementedError(token)

    async def revoke_token(self, token: sdk.AccessToken | sdk.RefreshToken) -> None:
        """Never called: no revocation endpoint is offered."""
        raise NotImplementedError(token)


def leads_to(uri: str) -> str | None:
    """Return a redirect's target as a source of a Content-Security-Policy, or None if no answer may be sent there."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return None
    if len(uri) > _MAX_REDIRECT_CHARS or parts.fragment or "@" in parts.netloc or "#" in uri:
        return None
    if parts.scheme not in {"http", "https"}:
        return f"{parts.scheme}:" if _SCHEME.fullmatch(parts.scheme) else None
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    if _HOST.fullmatch(host) is None or (parts.scheme == "http" and not is_here(uri)):
        return None
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}"


def _without_port(uri: str) -> tuple[str, str, str] | None:
    """Return a loopback redirect without its port, or None for any other URI."""
    parts = urlsplit(uri)
    if parts.scheme != "http" or parts.hostname is None or not is_here(uri):
        return None
    return parts.hostname, parts.path, parts.query


def _tokens(issued: Issued) -> OAuthToken:
    return OAuthToken(
        access_token=issued.access,
        expires_in=ACCESS_SECONDS,
        scope=" ".join(issued.scopes),
        refresh_token=issued.refresh,
    )
