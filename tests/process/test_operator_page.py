"""The operator page on a real listener: access control, its forms, and protection against cross-site requests."""

from __future__ import annotations

import asyncio
import html
import os
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.admin import control
from bridge.app import Bridge, running
from bridge.config import Settings
from bridge.providers.provider import LOG, SYSTEM
from bridge.replicas.sealed_store import open_store
from sprite.protocol.replication import Shipped, ShippedRow
from tests.harness import PATIENCE, start_in_thread
from tests.shipping_by_hand import ship

ACTS = (
    "add",
    "restore",
    "link",
    "revoke",
    "promote",
    "demote",
    "deploy",
    "restore-agent",
    "new-machine",
    "unlink-identity",
    "remove-passkey",
)


@dataclass
class Desk:
    """A bridge, and a browser session of the local person, who is an operator."""

    bridge: Bridge
    settings: Settings
    session: aiohttp.ClientSession

    async def open(self) -> str:
        async with self.session.get("/operator") as response:
            assert response.status == 200
            return await response.text()

    async def token(self) -> str:
        found = re.search(r'name="token" value="([^"]+)"', await self.open())
        assert found is not None
        return found[1]

    async def act(self, act: str, name: str, **change: Any) -> tuple[int, str]:
        """Submit a form as the page does, with the given changes. Return status and text."""
        form = {"token": change["token"] if "token" in change else await self.token(), "name": name}
        form |= {"which": change["which"]} if "which" in change else {}
        headers = {"Origin": change.get("origin", self.bridge.url)}
        session = change.get("session", self.session)
        async with session.post(f"/operator/{act}", data=form, headers=headers, allow_redirects=False) as response:
            return response.status, await response.text()

    async def asked(self, method: str, path: str, body: object = None) -> Any:
        async with control.control_session(self.settings.run) as session:
            return await control.ask(session, method, path, body)

    async def people(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in (await self.asked("GET", "/users"))["users"]}

    async def audit(self) -> list[tuple[str, str]]:
        entries = (await self.asked("GET", "/audit"))["entries"]
        said = [(entry["actor"], f"{entry['action']} {entry['subject']}") for entry in entries]
        assert said[0] == ("cli", "settings serve")
        return said[1:]

    @asynccontextmanager
    async def browser(self, link: str) -> AsyncIterator[aiohttp.ClientSession]:
        jar = aiohttp.CookieJar(unsafe=True)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        headers = {"Accept": "text/html"}
        async with aiohttp.ClientSession(self.bridge.url, cookie_jar=jar, timeout=timeout, headers=headers) as session:
            async with session.get(link, allow_redirects=False) as response:
                assert response.status == 303
            yield session


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "SPRITE"))}
    environment |= {"HOME": str(tmp_path), "SPRITE_PREWARM_SECONDS": "0"}
    settings = Settings(data=tmp_path / "data", port=0, environment=environment)
    async with running(settings, asyncio.Event().set, start_sprite=start_in_thread) as bridge:
        desk = Desk(bridge, settings, aiohttp.ClientSession())
        await desk.session.close()
        async with desk.browser(bridge.address) as session:
            desk.session = session
            yield desk


async def test_operator_forms_act_as_commands_with_audit(desk: Desk) -> None:
    status, text = await desk.act("add", "ada")
    link, token = re.findall(r"<code>([^<]+)</code>", text)
    assert status == 200
    assert link.startswith(f"{desk.bridge.url}/login?token=")
    assert token.startswith("bridge-person-")
    async with desk.browser(link) as ada, ada.get("/", headers={"Authorization": f"Bearer {token}"}) as response:
        assert response.status == 200
    assert (await desk.act("promote", "ada"))[0] == 303
    assert (await desk.people())["ada"]["role"] == "operator"
    assert (await desk.act("demote", "ada"))[0] == 303
    assert (await desk.people())["ada"]["role"] == "person"
    assert "/login?token=" in (await desk.act("link", "ada"))[1]
    assert (await desk.act("revoke", "ada"))[0] == 303
    assert (await desk.people())["ada"]["revoked_at"] is not None
    assert "Let ada in again" in await desk.open()
    assert "/login?token=" in (await desk.act("restore", "ada"))[1]
    acts = ("users add", "users role", "users role", "users link", "users revoke", "users restore")
    assert await desk.audit() == [("local", f"{act} ada") for act in acts]
    # Connections on behalf of another person are in the audit log too, once each.
    async with control.control_session(desk.settings.run) as session:
        for person in ("ada", "ada", "local"):
            async with session.get(f"/files/documents/none.txt?person={person}") as response:
                assert response.status == 404
    assert (await desk.audit())[len(acts) :] == [("cli", "chat as ada")]
    # Tokens and login links are shown once.
    shown = await desk.open()
    assert "users restore ada" in shown
    assert token not in shown
    assert "/login?token=" not in shown


async def test_operator_page_rejects_other_people(desk: Desk) -> None:
    await desk.act("add", "bob")
    link = (await desk.asked("POST", "/users/bob/link"))["link"]
    token = await desk.token()
    before = await desk.audit()
    async with desk.browser(link) as bob:
        async with bob.get("/operator") as response:
            assert response.status == 403
            assert "users role bob operator" in await response.text()
        for act in ACTS:
            assert (await desk.act(act, "bob", session=bob, token=token))[0] == 403
        async with bob.get("/operator", headers={"Cookie": ""}) as response:
            assert response.status in {401, 403}
        # A demotion takes effect at the next request.
        await desk.act("promote", "bob")
        async with bob.get("/operator") as response:
            assert response.status == 200
        await desk.act("demote", "bob")
        async with bob.get("/operator") as response:
            assert response.status == 403
    assert len(await desk.audit()) == len(before) + 2
    async with aiohttp.ClientSession(desk.bridge.url) as stranger:
        for act in ACTS:
            assert (await desk.act(act, "bob", session=stranger, token=token))[0] == 401


async def test_form_of_demoted_operator_is_rejected(desk: Desk) -> None:
    """The operator is demoted while the body of the form is still being sent."""
    await desk.act("add", "bob")
    await desk.asked("PUT", "/users/bob/role", {"role": "operator"})
    link = (await desk.asked("POST", "/users/bob/link"))["link"]
    begun, demoted = asyncio.Event(), asyncio.Event()
    async with desk.browser(link) as bob:
        async with bob.get("/operator") as response:
            found = re.search(r'name="token" value="([^"]+)"', await response.text())
        assert found is not None

        async def form() -> AsyncIterator[bytes]:
            yield f"token={found[1]}&name=".encode()
            begun.set()
            await demoted.wait()
            yield b"mallory"

        async def demote() -> None:
            await begun.wait()
            # The requests below are answered only after the bridge has begun to read the form.
            for _ in range(3):
                await desk.open()
            await desk.asked("PUT", "/users/bob/role", {"role": "person"})
            demoted.set()

        headers = {"Origin": desk.bridge.url, "Content-Type": "application/x-www-form-urlencoded"}
        demoting = asyncio.create_task(demote())
        async with bob.post("/operator/add", data=form(), headers=headers) as response:
            assert response.status == 403
        await demoting
    assert "mallory" not in await desk.people()


async def test_operator_page_rejects_cross_site_requests(desk: Desk) -> None:
    """GET requests change nothing."""
    await desk.act("add", "bob")
    link = (await desk.asked("POST", "/users/bob/link"))["link"]
    async with desk.browser(link) as bob:
        await desk.asked("PUT", "/users/bob/role", {"role": "operator"})
        async with bob.get("/operator") as response:
            found = re.search(r'name="token" value="([^"]+)"', await response.text())
        assert found is not None
    before = await desk.audit()
    right = await desk.token()
    for change in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"token": ""},
        {"token": right[:-1] + "x"},
        {"token": "\N{SNOWMAN}\x00"},
        # Each session has its own token.
        {"token": found[1]},
    ):
        for act in ("revoke", "deploy", "restore-agent"):
            assert (await desk.act(act, "bob", **change))[0] == 403, change
    for act in ACTS:
        async with desk.session.get(f"/operator/{act}?name=bob&token={right}") as response:
            assert response.status in {404, 405}
    async with desk.session.post(
        "/operator/revoke", data=b"x" * 100_000, headers={"Origin": desk.bridge.url}
    ) as response:
        assert response.status == 403
    assert await desk.audit() == before


async def test_operator_restores_missing_agent_only(desk: Desk, curated: Path) -> None:
    await desk.act("add", "ada")
    shown = await desk.open()
    assert "<dt>Stored</dt><dd>nothing</dd>" in shown
    # Without a replica, no restore is offered.
    assert "/operator/restore-agent" not in shown
    async with open_store(Settings(desk.settings.data), None) as store:
        await ship(store, "ada", curated)
        kept = await store.position("ada")
        at = kept.through + 1
        lacking = ShippedRow("manifest", "files_left_out", {"over_limit": 2, "bytes": 2_400_000}, at)
        await store.append("ada", Shipped(kept.log or "", at, [lacking], [], whole=True))
    shown = await desk.open()
    assert "<dt>Stored</dt><dd>all</dd>" in shown
    offer = shown.index('aria-label="Restore: ada"')
    # The offer needs a confirmation.
    assert shown.rindex("<details>", 0, offer) < offer < shown.index(">Restore the agent of ada</button>")
    status, told = await desk.act("restore-agent", "ada")
    assert status == 200
    assert "<li>done: ada&#39;s agent is restored, with 9 turn(s)" in told
    assert "since they did not fit: 2 file(s) (2.4 MB)." in told
    assert (desk.settings.workspaces / "ada" / SYSTEM / LOG).exists()
    assert "/operator/restore-agent" not in await desk.open()
    # A form opened before the restore is rejected.
    _, told = await desk.act("restore-agent", "ada")
    assert "<li>failed: ada&#39;s agent is there. It has 9 turn(s)" in told
    assert "python -m bridge restore ada --over" in told
    assert [line for line in await desk.audit() if "users" not in line[1]] == [("local", "restore ada")] * 2


async def test_machine_replacement_requires_typed_name(desk: Desk, curated: Path) -> None:
    await desk.act("add", "ada")
    workspace = shutil.copytree(curated, desk.settings.workspaces / "ada")
    assert 'aria-label="New machine: ada"' not in await desk.open()
    async with open_store(Settings(desk.settings.data), None) as store:
        await ship(store, "ada", curated)
    (workspace / "documents").mkdir(exist_ok=True)
    (workspace / "documents/newer.txt").write_text("on it alone")
    shown = html.unescape(await desk.open())
    offer = shown.index('aria-label="New machine: ada"')
    warned = shown[offer : shown.index("Give up the machine of ada, and restore</button>")]
    for words in (
        "It is given up, with whatever is on it alone. The agent of ada is made anew of what is kept: everything",
        "that was said, remembered, drawn and filed until 20",
        "What came after that is lost, and nobody can look whether anything did. If it can wait, wait: it is tried on.",
        "Type ada to go on",
    ):
        assert words in warned
    for typed in ({}, {"which": "bob"}):
        assert (await desk.act("new-machine", "ada", **typed))[0] == 400
    assert (workspace / "documents/newer.txt").exists()
    status, told = await desk.act("new-machine", "ada", which="ada")
    assert status == 200
    assert "<li>done: ada&#39;s agent is restored, with 9 turn(s)" in told
    assert not (workspace / "documents/newer.txt").exists()
    entries = [each for each in (await desk.asked("GET", "/audit"))["entries"] if each["action"] == "restore"]
    assert [(each["actor"], each["subject"], each["detail"]) for each in entries] == [
        ("local", "ada", {"anew": "yes", "over": "yes"}),
        ("local", "ada", {"outcome": "done"}),
    ]
    # A form opened earlier is rejected, because the sprite answers now.
    link = re.findall(r"<code>([^<]+)</code>", (await desk.act("link", "ada"))[1])[0]
    async with desk.browser(link) as ada, ada.ws_connect("/ws", origin=desk.bridge.url) as page:
        await page.send_json({"type": "resume", "id": "r", "timestamp": 0, "payload": {}})
        async with asyncio.timeout(PATIENCE):
            while (said := await page.receive_json())["type"] != "link" or said["payload"]["state"] != "ready":
                pass
        assert 'aria-label="New machine: ada"' not in await desk.open()
        status, told = await desk.act("new-machine", "ada", which="ada")
        assert status == 400
        assert "its machine is not given up, and nothing was done" in html.unescape(told)


async def test_operator_lists_and_removes_login_methods(desk: Desk) -> None:
    await desk.act("add", "ada")
    subject = "u-1 <i>&"
    for issuer in ("https://one.example", "https://two.example"):
        await desk.asked("PUT", "/users/ada/identity", {"issuer": issuer, "subject": subject})
    with closing(sqlite3.connect(desk.settings.database)) as database, database:
        key = (b"\x01" * 16, "ada", b"public", 0, "<b>Phone</b>", 0.0, "")
        database.execute(
            "INSERT INTO passkeys (credential_id, person, public_key, sign_count, label, created_at, aaguid) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            key,
        )
    link = (await desk.asked("POST", "/users/ada/link"))["link"]
    assert 'href="/operator/ways-in?name=ada"' in await desk.open()

    async def shown(name: str = "ada") -> tuple[int, str]:
        async with desk.session.get("/operator/ways-in", params={"name": name}) as response:
            return response.status, await response.text()

    async with desk.browser(link) as ada:
        async with ada.get("/operator/ways-in?name=ada") as response:
            assert response.status == 403
        status, text = await shown()
        assert (status, "<i>" in text, "<b>" in text) == (200, False, False)
        named = [html.unescape(which) for which in re.findall(r'name="which" value="([^"]+)"', text)]
        assert named == [f"https://one.example {subject}", f"https://two.example {subject}", "01" * 6]
        assert (await desk.act("unlink-identity", "ada", which=named[0]))[0] == 303
        async with ada.get("/") as response:
            assert response.status == 401
    assert (await desk.act("unlink-identity", "ada", which=named[0]))[0] == 400
    assert (await desk.act("unlink-identity", "ada"))[0] == 400
    assert (await desk.act("remove-passkey", "ada", which="nothing"))[0] == 400
    assert (await desk.act("remove-passkey", "ada", which=named[-1]))[0] == 303
    assert re.findall(r'name="which" value="([^"]+)"', (await shown())[1]) == [html.escape(named[1])]
    assert (await shown("nobody"))[0] == 404
    acts = [line for line in await desk.audit() if line[1].startswith(("users unlink", "users remove"))]
    assert acts == [("local", "users unlink-identity ada"), ("local", "users remove-passkey ada")]


async def test_invalid_operator_action_is_rejected(desk: Desk) -> None:
    before = await desk.audit()
    for act, name, words in (
        ("add", "Not a name", "is no name here"),
        ("add", "<script>", "is no name here"),
        ("revoke", "nobody", "nobody called"),
        ("deploy", "nobody", "nobody called"),
        ("restore-agent", "nobody", "nobody called"),
        ("revoke", "local", "Nobody locks themselves out"),
        ("demote", "local", "Nobody locks themselves out"),
        ("link", "", "nobody called"),
    ):
        status, text = await desk.act(act, name)
        assert status == 400
        assert words in text
        assert "<script>" not in text
    assert await desk.audit() == before


async def test_operator_page_has_no_scripts_or_cache(desk: Desk) -> None:
    async with desk.session.get("/operator?q=%22%3E%3Cscript%3E") as response:
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["Cache-Control"] == "no-store"
        assert "<script" not in await response.text()
