"""Web Push from the bridge: real encryption and signatures, checked by a push service on loopback."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bridge.auth.people import People, Session
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.notify.notice import SHORT_TITLE, Notice
from bridge.notify.push import (
    MAX_PAYLOAD_BYTES,
    MAX_PER_PERSON,
    Push,
    Subscription,
    SubscriptionError,
    Subscriptions,
    kept_key,
)
from bridge.notify.routes import NotifySettings, NotifySettingsStore
from tests.push_service import PushService, answering, cutting

QUESTION = Notice(
    "r1",
    "permission",
    "ada",
    "ada",
    "May Sprite run a command?",
    "make deploy",
    1_790_000_000.0,
    request_id="r1",
    is_whole=True,
)
MISSION = str(uuid.uuid4())
ENDED = Notice(MISSION, "ended", "ada", "ada", "The tests are green", "All 900 of them.", 1_790_000_000.0)


@dataclass
class Phone:
    """A push sender with its database and push service, for one person, Ada."""

    database: Database
    people: People
    session: Session
    subscriptions: Subscriptions
    push: Push
    service: PushService

    async def subscribe(self, *names: str) -> None:
        for name in names:
            browser = self.service.browser(name)
            await self.subscriptions.add("ada", self.session.id, browser.subscription)

    async def wants_words(self) -> None:
        await NotifySettingsStore(self.database).change("ada", NotifySettings(words=True))


async def logged_in(people: People) -> Session:
    session = await people.redeem(await people.link("ada"))
    assert isinstance(session, Session)
    return session


@asynccontextmanager
async def phone(
    folder: Path, *, public_url: str | None = None, allow_inside: bool = True, try_seconds: float = 10.0
) -> AsyncIterator[Phone]:
    async with open_database(folder / "bridge.db") as database, PushService() as service:
        people = People(database)
        await people.add("ada")
        session = await logged_in(people)
        key = await kept_key(database, public_url)
        service.public_key = key.public
        subscriptions = Subscriptions(database, allow_inside=allow_inside)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bridge.notify.push._TRY_SECONDS", try_seconds)
            patch.setattr("bridge.notify.push._FIRST_WAIT_SECONDS", 0.01)
            wants_words = NotifySettingsStore(database).wants_words
            async with Push(key, subscriptions, wants_words, allow_inside=allow_inside) as push:
                yield Phone(database, people, session, subscriptions, push, service)


# --- delivery ---


async def test_push_of_question_is_encrypted_signed_and_urgent(tmp_path: Path) -> None:
    """It expires with the question."""
    async with phone(tmp_path, public_url="https://sprite.example.org") as ada:
        await ada.subscribe("phone")
        await ada.wants_words()
        await ada.push.deliver(QUESTION)
        (got,) = await ada.service.pushed()
    assert got.message == {
        "key": "r1",
        "kind": "permission",
        "title": "May Sprite run a command?",
        "body": "make deploy",
        "at": 1_790_000_000.0,
        "url": "/#question=r1",
        "request_id": "r1",
        "allow": True,
    }
    assert got.claims["sub"] == "https://sprite.example.org"
    assert (got.headers["TTL"], got.headers["Urgency"]) == ("600", "high")
    assert 1 <= len(got.headers["Topic"]) <= 32


async def test_push_without_text_hides_content_and_allow(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        for notice in (QUESTION, ENDED):
            await ada.push.deliver(notice)
        asked, ended = await ada.service.pushed(2)
    for got in (asked, ended):
        assert (got.message["title"], got.message["body"]) == (SHORT_TITLE, "")
        assert not {"request_id", "allow"} & set(got.message)
        assert not {"make deploy", "green", "900"} & set(str(got.message).split())
    assert (asked.message["url"], ended.message["url"]) == ("/#question=r1", f"/#mission={MISSION}")
    assert (ended.headers["TTL"], ended.headers["Urgency"]) == ("86400", "normal")


async def test_push_for_several_notices_opens_page(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        for notice in (replace(ENDED, key="more-1"), replace(ENDED, kind="budget")):
            await ada.push.deliver(notice)
        assert {got.message["url"] for got in await ada.service.pushed(2)} == {"/"}


async def test_repeated_push_reuses_topic(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        for notice in (ENDED, ENDED, QUESTION):
            await ada.push.deliver(notice)
        first, again, other = await ada.service.pushed(3)
    assert first.headers["Topic"] == again.headers["Topic"] != other.headers["Topic"]


@pytest.mark.parametrize("character", ["a", "\u00e4", "\U0001f600", '"', "\x07"])
async def test_long_push_text_is_truncated_to_limit(tmp_path: Path, character: str) -> None:
    notice = Notice("m1", "ended", "ada", "ada", character * 100, character * 100_000, 1.0)
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        await ada.wants_words()
        await ada.push.deliver(notice)
        (got,) = await ada.service.pushed()
    assert got.size <= 4096
    assert len(str(got.message["body"]).encode()) <= MAX_PAYLOAD_BYTES
    assert got.message["body"].startswith(character * 300)
    assert got.message["body"].endswith("\u2026")


async def test_push_of_truncated_question_has_no_allow(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        await ada.wants_words()
        for notice in (replace(QUESTION, is_whole=False), replace(QUESTION, body="x" * 5000)):
            await ada.push.deliver(notice)
        for got in await ada.service.pushed(2):
            assert got.message["request_id"] == "r1"
            assert "allow" not in got.message


async def test_push_reaches_every_browser_of_its_person(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.people.add("bob")
        bob = await ada.people.redeem(await ada.people.link("bob"))
        assert isinstance(bob, Session)
        await ada.subscriptions.add("bob", bob.id, ada.service.browser("bob").subscription)
        await ada.subscribe("phone", "laptop")
        await ada.push.deliver(ENDED)
        await ada.service.pushed(2)
        assert ada.service.tries == 2


async def test_push_key_survives_restart(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as database:
        first = (await kept_key(database, None)).public
    async with open_database(tmp_path / "bridge.db") as database:
        assert (await kept_key(database, None)).public == first


# --- failing push services ---


@pytest.mark.parametrize("status", [404, 410])
async def test_gone_subscription_is_dropped(tmp_path: Path, status: int) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("gone")
        ada.service.answers = [answering(status)]
        await ada.push.deliver(ENDED)
        assert await ada.subscriptions.of("ada") == []
        assert ada.service.tries == 1
        await ada.subscribe("phone")
        await ada.push.deliver(ENDED)
        await ada.service.pushed()


async def test_renewed_subscription_survives_late_drop(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        old = ada.service.browser("phone").subscription
        await ada.subscriptions.add("ada", ada.session.id, old)
        new = Subscription(old.endpoint, type(old.keys)(old.keys.p256dh, "AAAAAAAAAAAAAAAAAAAAAA"))
        await ada.subscriptions.add("ada", ada.session.id, new)
        await ada.subscriptions.drop(old)
        assert await ada.subscriptions.of("ada") == [new]


async def test_failing_push_service_is_retried(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        ada.service.answers = [answering(500), answering(429, Retry_After="0"), cutting]
        await ada.push.deliver(ENDED)
        assert len(await ada.service.pushed()) == 1
        assert ada.service.tries == 4


async def test_push_gives_up_after_retries_without_unsubscribing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the status, but not the endpoint."""
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        ada.service.answers = [answering(503)] * 100
        with caplog.at_level(logging.INFO):
            await ada.push.deliver(ENDED)
        assert ada.service.tries == 4
        assert len(await ada.subscriptions.of("ada")) == 1
    assert "given up: 503" in caplog.text
    assert "/to/phone" not in caplog.text


async def test_hanging_push_service_delays_no_other_browser(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone", "laptop")
        ada.service.hanging.add("phone")
        delivering = asyncio.create_task(ada.push.deliver(ENDED))
        await ada.service.pushed()
        assert not delivering.done()
        delivering.cancel()
        await asyncio.gather(delivering, return_exceptions=True)


async def test_hanging_push_service_times_out(tmp_path: Path) -> None:
    async with phone(tmp_path, try_seconds=0.1) as ada:
        await ada.subscribe("phone")
        ada.service.hanging.add("phone")
        await ada.push.deliver(ENDED)
        assert len(await ada.subscriptions.of("ada")) == 1


async def test_push_redirect_is_not_followed(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada, PushService() as other:
        await ada.subscribe("phone")
        ada.service.answers = [answering(307, Location=f"{other.origin}/to/phone")]
        await ada.push.deliver(ENDED)
        assert (ada.service.tries, other.tries) == (1, 0)


async def test_push_with_wrong_signature_is_not_retried(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        ada.service.public_key = "another"
        await ada.push.deliver(ENDED)
        assert (ada.service.tries, ada.service.taken) == (1, [])


# --- endpoint addresses ---


async def test_push_to_private_network_is_blocked(tmp_path: Path) -> None:
    async with phone(tmp_path, allow_inside=False) as ada:
        port = ada.service.origin.rsplit(":", 1)[1]
        keys = ada.service.browser("phone").subscription.keys
        for host in ("localhost", "127.0.0.1", "0x7f.1", "0.0.0.0"):  # noqa: S104 - a way to loopback
            inside = Subscription(f"https://{host}:{port}/to/phone", keys)
            await ada.subscriptions.add("ada", ada.session.id, inside)
        await ada.push.deliver(ENDED)
        assert ada.service.tries == 0


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://push.example.org/x",
        "http://127.0.0.1/x",
        "ftp://push.example.org/x",
        "https:///x",
        "https://ada:secret@push.example.org/x",
        "https://[::1]/x",
        "https://[fe80::1%25eth0]/x",
        "https://push.example.org:0/x",
        "https://push.example.org:99999/x",
        "https://push.example.org/x y",
        "https://push.example.org/x\r\nX: y",
        "https://push.example.org/#x",
        "https://push.example.org/" + "x" * 3000,
        "//push.example.org",
        "",
    ],
)
async def test_invalid_push_endpoint_is_rejected(tmp_path: Path, endpoint: str) -> None:
    async with phone(tmp_path, allow_inside=False) as ada:
        keys = ada.service.browser("phone").subscription.keys
        with pytest.raises(SubscriptionError, match="push service"):
            await ada.subscriptions.add("ada", ada.session.id, Subscription(endpoint, keys))
        assert await ada.subscriptions.of("ada") == []


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [("", ""), ("AAAA", "AAAA"), ("A" * 87, "A" * 21), ("\u00e4" * 87, "x"), ("!" * 87, "!" * 22), ("A" * 10**6, "")],
)
async def test_invalid_push_keys_are_rejected(tmp_path: Path, p256dh: str, auth: str) -> None:
    async with phone(tmp_path) as ada:
        made = ada.service.browser("phone").subscription
        keys = type(made.keys)
        for wrong in (keys(p256dh, made.keys.auth), keys(made.keys.p256dh, auth)):
            with pytest.raises(SubscriptionError, match="keys"):
                await ada.subscriptions.add("ada", ada.session.id, Subscription(made.endpoint, wrong))


# --- owners and lifetime ---


async def test_new_subscription_over_limit_evicts_oldest(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        names = [f"browser-{number}" for number in range(MAX_PER_PERSON + 2)]
        await ada.subscribe(*names)
        kept = [each.endpoint.rsplit("/", 1)[1] for each in await ada.subscriptions.of("ada")]
        assert sorted(kept) == sorted(names[2:])


async def test_logout_and_revocation_end_push(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        other = await logged_in(ada.people)
        await ada.subscriptions.add("ada", other.id, ada.service.browser("laptop").subscription)
        await ada.people.end_session(ada.session.id)
        assert [each.endpoint[-6:] for each in await ada.subscriptions.of("ada")] == ["laptop"]
        await ada.people.revoke("ada")
        assert await ada.subscriptions.of("ada") == []
        await ada.push.deliver(ENDED)
        assert ada.service.tries == 0
        # A page that is still open cannot subscribe after the logout.
        with pytest.raises(SubscriptionError, match="logged out"):
            await ada.subscriptions.add("ada", other.id, ada.service.browser("late").subscription)


async def test_expired_session_ends_push(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.subscribe("phone")
        await ada.database.write(lambda tx: tx.execute("UPDATE sessions SET expires_at = ?", (time.time() - 1,)))
        await ada.push.deliver(ENDED)
        assert ada.service.tries == 0


async def test_subscription_moves_to_new_person_of_browser(tmp_path: Path) -> None:
    async with phone(tmp_path) as ada:
        await ada.people.add("bob")
        bob = await ada.people.redeem(await ada.people.link("bob"))
        assert isinstance(bob, Session)
        await ada.subscribe("shared")
        (shared,) = await ada.subscriptions.of("ada")
        await ada.subscriptions.add("bob", bob.id, shared)
        assert await ada.subscriptions.of("ada") == []
        await ada.subscriptions.remove("ada", shared.endpoint)
        assert await ada.subscriptions.of("bob") == [shared]
