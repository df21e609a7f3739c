"""Webhook signatures: the manual's receiver accepts genuine messages only."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

from bridge.notify.webhook import headers, shown
from tests.forking import ROOT
from tests.webhook_receiver import read_key


def the_manuals() -> Any:
    """`is_genuine` of docs/deployment.md."""
    manual = (ROOT / "docs/deployment.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", manual, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own manual
    return names["is_genuine"]


def test_manuals_receiver_accepts_genuine_messages_only() -> None:
    is_genuine, key, now = the_manuals(), secrets.token_bytes(32), int(time.time())
    body = '{"title": "Grüße"}'.encode()
    signed = headers(key, "m1", now, body)
    assert is_genuine(shown(key), signed, body)
    assert not is_genuine(shown(key), signed, body + b" ")
    assert not is_genuine(shown(secrets.token_bytes(32)), signed, body)
    assert not is_genuine(shown(key), signed | {"webhook-id": "m2"}, body)
    assert not is_genuine(shown(key), signed | {"webhook-timestamp": str(now + 1)}, body)
    assert not is_genuine(shown(key), headers(key, "m1", now - 3600, body), body)


def test_signature_matches_standard_test_vector() -> None:
    """https://github.com/standard-webhooks/standard-webhooks: the vector of its libraries' tests."""
    key = read_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_key_is_shown_as_read() -> None:
    key = secrets.token_bytes(32)
    assert read_key(shown(key)) == key
