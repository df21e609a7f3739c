"""An OAuth client program, built with the protocol's own package, and the person's browser beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urljoin, urlsplit

from tests.bridge_harness import Bridge
from tests.harness import PATIENCE

# Importing the package takes 0.8 s: each function that needs it imports it.
if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

REDIRECT = "http://127.0.0.1:49152/callback"


@dataclass
class Kept:
    """The program's storage between its runs."""

    tokens: OAuthToken | None = None
    info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.info = client_info


@dataclass
class Browser:
    """A person's browser at the bridge, logged in by a cookie; it selects `scopes`, or refuses without any."""

    bridge: Bridge
    cookie: str
    scopes: list[str]
    #: The pages that it was shown, and its final redirect.
    pages: list[str] = field(default_factory=list)
    sent_to: str = ""

    async def open(self, url: str) -> None:
        """Follow the program's link, read the consent page, and answer."""
        import httpx2

        async with httpx2.AsyncClient(timeout=PATIENCE, headers={"Accept": "text/html"}) as http:
            sent = await http.get(url)
            assert sent.status_code == 302, sent.text
            asked = urljoin(url, sent.headers["Location"])
            shown = await http.get(asked, headers={"Cookie": self.cookie})
            self.pages.append(shown.text)
            assert shown.status_code == 200, shown.text
            form = [("scope", scope) for scope in self.scopes] or [("refused", "yes")]
            body = "&".join(f"{name}={value}" for name, value in form)
            headers = {
                "Cookie": self.cookie,
                "Origin": self.bridge.url,
                "Content-Type": "application/x-www-form-urlencoded",
            }
            answered = await http.post(asked, content=body, headers=headers)
            assert answered.status_code == 303, answered.text
            self.sent_to = answered.headers["Location"]

    async def came_back(self) -> AuthorizationCodeResult:
        """Return the parameters of the call to the program's redirect address."""
        from mcp.shared.auth import AuthorizationCodeResult

        query = {name: values[0] for name, values in parse_qs(urlsplit(self.sent_to).query).items()}
        return AuthorizationCodeResult(code=query.get("code", ""), state=query.get("state"), iss=query.get("iss"))

    def ticks(self) -> dict[str, bool]:
        """Return the scopes on the last page, and whether each was selected."""
        found = re.findall(r'<input type="checkbox" name="scope" value="([^"]+)"( checked)?>', self.pages[-1])
        return {unescape(scope): bool(checked) for scope, checked in found}


def program(browser: Browser, kept: Kept, name: str = "Test Program", redirect: str = REDIRECT) -> OAuthClientProvider:
    """Return the package's own OAuth client."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    metadata = OAuthClientMetadata(
        client_name=name, redirect_uris=[AnyUrl(redirect)], token_endpoint_auth_method="none"
    )
    return OAuthClientProvider(f"{browser.bridge.url}/mcp", metadata, kept, browser.open, browser.came_back)
