"""Tables of the bridge on SQLite and on Postgres: the same contents after every change, and bounded growth."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bridge.auth.people import People, Session
from bridge.cluster.ownership import Ownership
from bridge.db.database import Database, WriteBehind
from bridge.db.open import open_database
from bridge.notify import webhook
from bridge.notify.push import MAX_PER_PERSON, Keys, Subscription, SubscriptionError, Subscriptions, kept_key
from bridge.notify.routes import NotifySettings, NotifySettingsStore
from bridge.proxy.sprite_tokens import SpriteTokens
from bridge.wakeups.waker import DueDate, DueDates, stored


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as database:
        yield database


def died() -> None:
    raise AssertionError("a task died")


async def logged_in(people: People, name: str) -> str:
    session = await people.redeem(await people.link(name))
    assert isinstance(session, Session)
    return session.id


async def test_login_link_used_concurrently_works_once(database: Database) -> None:
    people = People(database)
    await people.add("ada")
    link = await people.link("ada")
    assert (await people.found_link(link)) != "used"
    found = await asyncio.gather(*(people.redeem(link) for _ in range(8)))
    assert sorted(isinstance(each, Session) for each in found) == [False] * 7 + [True]
    assert {each for each in found if not isinstance(each, Session)} == {"used"}


async def test_session_renews_daily_and_ends_with_person(database: Database) -> None:
    """A session also ends when it is logged out."""
    people = People(database)
    await people.prepare()
    await people.prepare()
    await people.add("ada")
    first, second = await logged_in(people, "ada"), await logged_in(people, "ada")
    assert not await people.renew_session(first)
    await database.statement("UPDATE sessions SET expires_at = expires_at - ?", (2 * 86_400,))
    assert await people.renew_session(first)
    assert not await people.renew_session("unknown")
    await people.seen("ada")
    (_, ada) = await people.everyone()
    assert (ada.name, ada.sessions, ada.last_seen_at is None) == ("ada", 2, False)
    await people.end_session(first)
    assert (await people.of_session(first), await people.of_session(second)) == (None, "ada")
    await people.revoke("ada")
    assert await people.of_session(second) is None
    assert not await people.may_come("ada")
    await people.restore("ada")
    assert await people.may_come("ada")


async def test_concurrent_requests_create_one_key(database: Database) -> None:
    for make in (People(database).cookie_key, partial(webhook.kept_key, database)):
        assert len(set(await asyncio.gather(*(make() for _ in range(6))))) == 1
    assert (await kept_key(database, None)).public == (await kept_key(database, None)).public


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def subscription(number: int) -> Subscription:
    point = ec.generate_private_key(ec.SECP256R1()).public_key()
    raw = point.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return Subscription(f"https://push.example.org/{number}", Keys(encoded(raw), encoded(bytes(16))))


async def test_person_browsers_are_bounded_and_end_with_session(database: Database) -> None:
    people, subscriptions = People(database), Subscriptions(database)
    await people.add("ada")
    session = await logged_in(people, "ada")
    made = [subscription(number) for number in range(MAX_PER_PERSON + 2)]
    for each in made:
        await subscriptions.add("ada", session, each)
    assert await subscriptions.of("ada") == made[:1:-1]
    await subscriptions.add("ada", session, made[3])
    assert (await subscriptions.of("ada"))[0] == made[3]
    await subscriptions.drop(Subscription(made[3].endpoint, Keys("", "renewed")))
    await subscriptions.remove("ada", made[4].endpoint)
    await subscriptions.drop(made[5])
    assert {*await subscriptions.of("ada")} == {made[2], made[3], *made[6:]}
    await people.end_session(session)
    assert await subscriptions.of("ada") == []
    with pytest.raises(SubscriptionError, match="logged out"):
        await subscriptions.add("ada", session, made[0])


async def test_preference_keeps_last_choice(database: Database) -> None:
    await People(database).add("ada")
    choices = NotifySettingsStore(database)
    assert not await choices.wants_words("ada")
    for words in (True, False, True):
        await choices.change("ada", NotifySettings(words=words))
        assert await choices.wants_words("ada") is words


async def test_sprite_token_is_replaced_and_outlives_bridge(database: Database) -> None:
    tokens = SpriteTokens(database)
    first = await tokens.rotate("ada")
    second = await tokens.rotate("ada")
    bobs = await tokens.rotate("bob")
    await tokens.revoke("bob")
    later = SpriteTokens(database)
    assert [await later.sprite_of(token) for token in (first, second, bobs)] == [None, "ada", None]


async def test_due_dates_round_trip(database: Database) -> None:
    async with DueDates(database, died, Ownership()) as due:
        due.opened("ada")
        due.opened("bob")
        due.closed("bob", at_rest=True)
    dates = await stored(database)
    assert {name: (date.at, date.is_open) for name, date in dates.items()} == {
        "ada": (None, True),
        "bob": (None, False),
    }
    keep = "INSERT INTO waking VALUES (?, ?, ?, ?) ON CONFLICT (sprite) DO UPDATE SET next_due = excluded.next_due"
    async with WriteBehind(database, keep, "due dates", died) as rows:
        rows.note("ada", 1.5, 3.0, 0)
        rows.note("cleo", None, 3.0, 0)
    dates = await stored(database)
    assert dates["ada"].at == 1.5
    assert dates["cleo"] == DueDate(None, 3.0, is_open=False)
