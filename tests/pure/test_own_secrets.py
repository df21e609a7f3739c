"""Redaction of the bridge's own keys in logs, notifications and the audit log."""

from __future__ import annotations

import base64
import logging
import os

import pytest

from bridge.config import OidcSettings, Settings
from bridge.notify import notice as wording
from bridge.telemetry.logs import JsonLines, PlainLines
from sprite.common import own_secrets

STORE = os.urandom(32)
SETTINGS = Settings(
    api_key="a-key-of-no-shape",
    auth_token="an-auth-token-of-no-shape",
    sprites_token="the-organisations-token",
    cluster_secret="what bridges share",
    notify_url="https://hooks.example.org/x/only-they-know",
    store_keys=(STORE,),
    database_url="postgresql://sprite:their-long-password@db/sprite",
    oidc=OidcSettings("https://id.example.org", "sprite", "the-clients-secret"),
)
WORDS = (
    *("a-key-of-no-shape", "an-auth-token-of-no-shape", "the-organisations-token"),
    *("what bridges share", "https://hooks.example.org/x/only-they-know", "their-long-password", "the-clients-secret"),
    *(base64.b64encode(STORE).decode(), base64.urlsafe_b64encode(STORE).decode(), STORE.hex()),
)


@pytest.fixture(autouse=True)
def _held() -> None:
    own_secrets.hold(*SETTINGS.secrets)


@pytest.mark.parametrize("secret", WORDS, ids=range(len(WORDS)))
def test_own_secret_is_redacted_in_logs_and_notices(secret: str) -> None:
    record = logging.LogRecord("bridge.x", logging.WARNING, "", 0, "it said %s.", (secret,), None)
    for formatter in (JsonLines(), PlainLines()):
        assert secret.rstrip("=") not in formatter.format(record)
    title, body = wording.of_reply(f"Found {secret}\nIt is {secret} indeed")
    assert secret.rstrip("=") not in title + body
    assert secret.rstrip("=") not in wording.line(f"{'x' * 390} {secret}")


def test_short_or_missing_value_is_no_secret() -> None:
    own_secrets.hold(None, "", "offline")
    assert own_secrets.without("an offline model") == "an offline model"


def test_many_login_links_evict_no_key() -> None:
    for number in range(1000):
        own_secrets.hold_passing(f"a-login-link-{number}-and-more")
    assert own_secrets.without("a-login-link-999-and-more, a-key-of-no-shape").count("[redacted:") == 2
