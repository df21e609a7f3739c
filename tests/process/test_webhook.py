"""The operator's webhook: signed, retried, also by the next bridge; no receiver delays or redirects messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.config import from_environment
from bridge.db.open import open_database
from bridge.errors import OperatorError
from bridge.notify.notice import SHORT_TITLE, Notice
from bridge.notify.webhook import Webhook
from tests.bridge_harness import bridge_environment, run_bridge, running_bridge
from tests.inspection import eventually
from tests.webhook_receiver import KEY, Receiver, answers_ten_megabytes, fails, hangs, read_key, receiving, redirects

NOTICE = Notice("m1", "ended", "ada", "ada", "Your open actions", "Three are left.", 1000.5)
#: Pauses between tries, in seconds.
SOON = (0.01, 0.01, 0.01, 0.01)


@asynccontextmanager
async def hooked(receiver: Receiver, *, words: bool = True, seconds: float = 20.0) -> AsyncIterator[Webhook]:
    async def wants_words(_: str) -> bool:
        return words

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bridge.notify.webhook._PAUSES", SOON)
        patch.setattr("bridge.notify.webhook._TRY_SECONDS", seconds)
        async with Webhook(receiver.url, KEY, wants_words) as webhook:
            yield webhook


async def test_webhook_message_is_signed() -> None:
    """The format is that of the Standard Webhooks specification."""
    async with receiving() as receiver, hooked(receiver) as webhook:
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
        assert webhook.sent["taken"] == 1
        question = replace(NOTICE, key="q1", kind="permission", request_id="q1")
        await webhook.deliver(question)
        assert (await receiver.received(2))[1]["request_id"] == "q1"


async def test_webhook_without_text_hides_content() -> None:
    async with receiving() as receiver, hooked(receiver, words=False) as webhook:
        await webhook.deliver(NOTICE)
        (message,) = await receiver.received(1)
        assert (message["title"], message["body"]) == ("Sprite has something for you", "")


async def test_webhook_retries_with_same_id_then_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    """There are five tries."""
    caplog.set_level(logging.INFO, "bridge")
    async with receiving() as receiver, hooked(receiver) as webhook:
        receiver.answers = [fails, fails]
        await webhook.deliver(NOTICE)
        assert len({message["id"] for message in receiver.messages}) == 1
        assert webhook.sent == {"failed": 2, "taken": 1}
        receiver.always = fails
        await webhook.deliver(replace(NOTICE, key="m2"))
        assert webhook.sent == {"failed": 7, "taken": 1}
        assert receiver.requests == 8
    assert "given up" in caplog.text
    assert "planted words" not in caplog.text
    assert receiver.url not in caplog.text


async def test_hanging_receiver_delays_no_other_message() -> None:
    async with receiving() as receiver, hooked(receiver, seconds=1.0) as webhook:
        receiver.answers = [hangs]
        async with asyncio.TaskGroup() as group:
            first = group.create_task(webhook.deliver(NOTICE))
            await receiver.received(1)
            await webhook.deliver(replace(NOTICE, key="m2"))
            assert not first.done()
        assert webhook.sent == {"failed": 1, "taken": 2}


async def test_webhook_redirect_is_not_followed() -> None:
    async with receiving() as receiver, hooked(receiver) as webhook:
        receiver.answers = [redirects]
        await webhook.deliver(NOTICE)
        assert webhook.sent == {"failed": 1, "taken": 1}
        assert receiver.elsewhere == 0


async def test_endless_webhook_response_is_not_read() -> None:
    async with receiving() as receiver, hooked(receiver) as webhook:
        receiver.answers = [answers_ten_megabytes]
        await webhook.deliver(NOTICE)
        await webhook.deliver(replace(NOTICE, key="m2"))
        assert webhook.sent == {"taken": 2}


async def test_bridge_posts_left_notices_with_its_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    status, out, err = await run_bridge("notify", "key", "--data", str(data))
    assert (status, err) == (0, "")
    row = ("local", "m-1", "ended", "planted", "", time.time(), 0, 1.0)
    async with open_database(data / "bridge.db") as database:
        await database.statement(
            "INSERT INTO notices (sprite, key, kind, title, body, at, is_told, kept_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
    async with receiving(read_key(out.strip())) as receiver:
        receiver.always = fails
        async with running_bridge(data, SPRITE_NOTIFY_URL=receiver.url) as bridge:
            assert (await bridge.run("notify", "key"))[1] == out
            (message,) = await receiver.received(1)
            assert (message["person"], message["title"]) == ("local", SHORT_TITLE)
            await eventually(lambda: "the webhook did not accept" in bridge.log, "the failure is not logged")
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
