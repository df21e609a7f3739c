"""Two real bridges over one Postgres, and a person whose sprite belongs to the first one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bridge_harness import Bridge, PageClient, running_bridge
from tests.postgres import Server

SECRET = "what these two bridges share"


@dataclass
class BridgePair:
    """`owner` owns the sprite while `page` is open there; `other` does not."""

    owner: Bridge
    other: Bridge
    page: PageClient
    cookie: str
    token: str

    @property
    def workspace(self) -> Path:
        return self.owner.data / "workspaces" / "ada"

    async def ask(self, method: str, path: str, *, token: str | None = None, **options: Any) -> tuple[int, str]:
        """Return the other bridge's answer, to a token if given, else to a browser on its page."""
        headers = {"Authorization": f"Bearer {token}"} if token else {"Cookie": self.cookie, "Origin": self.other.url}
        headers |= options.pop("headers", {})
        async with (
            self.other.http() as session,
            session.request(method, path, headers=headers, allow_redirects=False, **options) as response,
        ):
            return response.status, await response.text()

    def passed_on(self) -> int:
        """Count the requests that the owner answered for the other bridge: they share one id."""
        seen = [
            {record.get("request_id") for record in map(_record, bridge.log.splitlines()) if record.get("route")}
            for bridge in (self.owner, self.other)
        ]
        return len(seen[0] & seen[1])


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


@asynccontextmanager
async def two_bridges(folder: Path, postgres: Server, *flags: str, **environment: Any) -> AsyncIterator[BridgePair]:
    url = postgres.create()
    shared: dict[str, Any] = {"BRIDGE_DATABASE_URL": url, "BRIDGE_CLUSTER_SECRET": SECRET, **environment}
    try:
        async with (
            running_bridge(folder / "a/data", *flags, **shared) as owner,
            running_bridge(folder / "b/data", *flags, **shared) as other,
        ):
            _, said, _ = await owner.run("users", "add", "ada")
            words = said.split()
            # A login link of one bridge is valid at another.
            link = next(word for word in words if "/login?token=" in word)
            cookie = await other.login(link.replace(owner.url, other.url))
            token = next(word for word in words if word.startswith("bridge-person-"))
            async with owner.page(cookie) as page:
                await page.type("state_sync")
                yield BridgePair(owner, other, page, cookie, token)
    finally:
        postgres.drop(url)
