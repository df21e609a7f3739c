"""The operator's webhook: signed, retried, also by the next bridge; no receiver delays or redirects messages."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.config import from_environment
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.errors import OperatorError
from bridge.notify.notice import Notice
from bridge.notify.webhook import MOST_WAITING, Outbox, Webhook
from tests.bridge_harness import bridge_environment, run_bridge, running_bridge
from tests.inspection import eventually
from tests.waking_stage import died
from tests.webhook_receiver import KEY, Receiver, answers_ten_megabytes, fails, hangs, read_key, receiving, redirects

NOTICE = Notice("m1", "ended", "ada", "ada", "Your open actions", "Three are left.", 1000.5)
#: Pauses between tries, in seconds.
SOON = (0.01, 0.01, 0.01, 0.01)


@asynccontextmanager
async def hooked(
    database: Database,
    receiver: Receiver,
    *,
    words: bool = True,
    pauses: tuple[float, ...] = SOON,
    seconds: float = 20.0,
) -> AsyncIterator[Webhook]:
    async def wants_words(_: str) -> bool:
        return words

    outbox = Outbox(database, pauses)
    async with Webhook(receiver.url, KEY, outbox, wants_words, died, try_seconds=seconds) as webhook:
        yield webhook


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(tmp_path / "bridge.db") as database:
        yield database


async def test_webhook_message_is_signed(database: Database) -> None:
    """The format is that of the Standard Webhooks specification."""
    async with receiving() as receiver, hooked(database, receiver) as webhook:
        await webhook.deliver(NOTICE)
        (message,) = await receiver.received(1)
        assert message.pop("id")
        assert message == {
            "kind": "ended",
            "person": "ada",
            "sprite": "ada",
            "at": 1000.5,
            "title": "Your open actions",
            "body": "Three are left.",
        }
        await eventually(lambda: webhook.sent["taken"] == 1, "the message was not accepted")
        question = replace(NOTICE, key="q1", kind="permission", request_id="q1")
        await webhook.deliver(question)
        assert (await receiver.received(2))[1]["request_id"] == "q1"


async def test_webhook_without_text_hides_content(database: Database) -> None:
    async with receiving() as receiver, hooked(database, receiver, words=False) as webhook:
        await webhook.deliver(NOTICE)
        (message,) = await receiver.received(1)
        assert (message["title"], message["body"]) == ("Sprite has something for you", "")


async def test_webhook_retries_with_same_id_then_gives_up(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """There are five tries."""
    caplog.set_level(logging.INFO, "bridge")
    async with receiving() as receiver, hooked(database, receiver) as webhook:
        receiver.answers = [fails, fails]
        await webhook.deliver(NOTICE)
        assert len({message["id"] for message in await receiver.received(3)}) == 1
        await eventually(lambda: webhook.sent == {"failed": 2, "taken": 1}, "the tries do not match")
        receiver.always = fails
        await webhook.deliver(replace(NOTICE, key="m2"))
        await eventually(lambda: webhook.sent["failed"] == 7, "there were not five tries")
        assert receiver.requests == 8
        assert not await Outbox(database).due(10)
    assert "given up" in caplog.text
    assert "planted words" not in caplog.text
    assert receiver.url not in caplog.text


async def test_hanging_receiver_delays_no_other_message(database: Database) -> None:
    async with receiving() as receiver, hooked(database, receiver, seconds=1.0) as webhook:
        receiver.answers = [hangs]
        await webhook.deliver(NOTICE)
        await receiver.received(1)
        await webhook.deliver(replace(NOTICE, key="m2"))
        await eventually(lambda: webhook.sent["taken"] == 2, "a message was not accepted")
        assert webhook.sent["failed"] > 0


async def test_webhook_redirect_is_not_followed(database: Database) -> None:
    async with receiving() as receiver, hooked(database, receiver) as webhook:
        receiver.answers = [redirects]
        await webhook.deliver(NOTICE)
        await eventually(lambda: webhook.sent == {"failed": 1, "taken": 1}, "the message was not retried")
        assert receiver.elsewhere == 0


async def test_endless_webhook_response_is_not_read(database: Database) -> None:
    async with receiving() as receiver, hooked(database, receiver) as webhook:
        receiver.answers = [answers_ten_megabytes]
        await webhook.deliver(NOTICE)
        await webhook.deliver(replace(NOTICE, key="m2"))
        await eventually(lambda: webhook.sent == {"taken": 2}, "a message was not accepted")


async def test_webhook_outbox_survives_restart_and_is_bounded(database: Database) -> None:
    async with receiving() as receiver:
        receiver.always = fails
        async with hooked(database, receiver, pauses=(0.2,) * 100) as webhook:
            await webhook.deliver(NOTICE)
            await receiver.received(1)
        receiver.always = hangs
        receiver.messages.clear()
        async with hooked(database, receiver) as webhook:
            await receiver.received(1)
            outbox = Outbox(database)
            for number in range(MOST_WAITING + 20):
                await outbox.add(str(number), b"{}")
            assert len(await database.statement("SELECT id FROM webhook_outbox")) == MOST_WAITING


async def test_bridge_posts_waiting_messages_with_its_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    status, out, err = await run_bridge("notify", "key", "--data", str(data))
    assert (status, err) == (0, "")
    async with open_database(data / "bridge.db") as database:
        await Outbox(database).add("m-1", b'{"id": "m-1", "title": "planted"}')
    async with receiving(read_key(out.strip())) as receiver:
        receiver.always = fails
        async with running_bridge(data, SPRITE_NOTIFY_URL=receiver.url) as bridge:
            assert (await bridge.run("notify", "key"))[1] == out
            (message,) = await receiver.received(1)
            assert message["title"] == "planted"
            await eventually(lambda: "the webhook did not take" in bridge.log, "the failure is not logged")
            assert out.strip() not in bridge.log


async def test_serve_with_invalid_webhook_url_fails(tmp_path: Path) -> None:
    environment = bridge_environment(SPRITE_NOTIFY_URL="ftp://planted.example/x")
    status, out, err = await run_bridge("serve", "--port", "0", "--data", str(tmp_path), environment=environment)
    assert (status, out, "SPRITE_NOTIFY_URL" in err, "planted" in err) == (2, "", True, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPRITE_NOTIFY_URL", "planted"),
        ("SPRITE_NOTIFY_URL", "https://[planted"),
        ("SPRITE_NOTIFY_URL", "https://planted.example:99999/"),
    ],
)
def test_invalid_webhook_url_is_named_but_not_repeated(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(OperatorError, match=name) as refused:
        from_environment()
    assert "planted" not in str(refused.value)
