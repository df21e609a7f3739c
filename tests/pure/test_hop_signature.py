"""Signatures of requests forwarded between bridges: accepted when valid, fresh and new (pure)."""

from __future__ import annotations

import pytest

from bridge.cluster.forward import ForwardedIdentity, ForwardHeader, HopRefusedError, RequestSigner

SECRET = "a secret that two bridges share"
TARGET = "/files/a%20b.txt?preview=1"
HOP = ForwardHeader(
    ForwardedIdentity("ada", "token", "ab" * 32, "my laptop", frozenset({"ask", "observe"})), 7, "0123456789abcdef"
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def reason(seal: RequestSigner, headers: dict[str, str], method: str = "GET", target: str = TARGET) -> str:
    with pytest.raises(HopRefusedError) as caught:
        seal.opened(method, target, headers)
    return caught.value.reason


@pytest.mark.parametrize(
    "passed",
    [
        HOP.passed,
        ForwardedIdentity("ada", "session", "cd" * 32),
        ForwardedIdentity("ada", "operator", None),
        ForwardedIdentity("ada", "token", "00" * 32, "", frozenset()),
    ],
)
def test_signed_request_is_verified_completely(passed: ForwardedIdentity) -> None:
    headers = RequestSigner(SECRET).headers("GET", TARGET, ForwardHeader(passed, 3, "id"))
    assert RequestSigner(SECRET).opened("GET", TARGET, headers) == ForwardHeader(passed, 3, "id")
    assert headers["X-Bridge-Hop"] == "1"


def test_changed_request_is_refused() -> None:
    signed = RequestSigner(SECRET).headers("GET", TARGET, HOP)
    for name, value in signed.items():
        for other in ("", "1 ", value + "0", value[:-1], "grace", "\udcff", "\u00e9", "9" * 5000):
            if other != value:
                assert reason(RequestSigner(SECRET), {**signed, name: other}) == "unsigned", (name, other)
        assert reason(RequestSigner(SECRET), {key: kept for key, kept in signed.items() if key != name}) == "unsigned"
    assert reason(RequestSigner(SECRET), signed, method="POST") == "unsigned"
    assert reason(RequestSigner(SECRET), signed, target="/files/other.txt") == "unsigned"
    assert reason(RequestSigner(SECRET), {}) == "unsigned"
    assert reason(RequestSigner(SECRET + "!"), signed) == "unsigned"


def test_field_boundaries_are_unambiguous() -> None:
    signed = RequestSigner(SECRET).headers(
        "GET", "/a", ForwardHeader(ForwardedIdentity("ada", "operator", None), 12, "3")
    )
    claims, _, signature = signed["X-Bridge-Signature"].partition(".")
    moved = {**signed, "X-Bridge-Signature": f"{claims[1:]}.{signature}"}
    assert reason(RequestSigner(SECRET), moved, target=f"/a{claims[0]}") == "unsigned"
    assert reason(RequestSigner(SECRET), signed, method="GET/", target="a") == "unsigned"


@pytest.mark.parametrize(
    ("apart", "is_believed"), [(0.0, True), (29.9, True), (-29.9, True), (30.1, False), (-31, False)]
)
def test_clock_skew_of_half_minute_is_accepted(apart: float, is_believed: bool) -> None:
    here, there = Clock(), Clock()
    there.now += apart
    signed = RequestSigner(SECRET, here).headers("GET", TARGET, HOP)
    if is_believed:
        assert RequestSigner(SECRET, there).opened("GET", TARGET, signed) == HOP
    else:
        assert reason(RequestSigner(SECRET, there), signed) == "late"


def test_replay_is_refused_while_signature_is_fresh() -> None:
    here, there = Clock(), Clock()
    here.now += 29.0
    seal = RequestSigner(SECRET, there)
    signed = RequestSigner(SECRET, here).headers("GET", TARGET, HOP)
    seal.opened("GET", TARGET, signed)
    for _ in range(59):
        assert reason(seal, signed) == "replayed"
        there.now += 1.0
    there.now += 1.0
    assert reason(seal, signed) == "late"


def test_resigned_request_passes_and_expired_is_forgotten() -> None:
    clock = Clock()
    seal, signer = RequestSigner(SECRET, clock), RequestSigner(SECRET, clock)
    for _ in range(500):
        clock.now += 1.0
        seal.opened("GET", TARGET, signer.headers("GET", TARGET, HOP))
    assert len(seal._seen) <= 62  # an expired signature is not remembered
