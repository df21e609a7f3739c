"""Passkeys: verification of authenticator responses. The device is emulated; each hostile answer has one defect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from bridge.auth.passkey_store import MOST_EACH, Party, PasskeyError, Passkeys, user_handle
from bridge.auth.passkeys import Asked, PasskeyFlow
from bridge.auth.people import People
from bridge.auth.sealed_cookie import Spent
from bridge.db.database import Database
from bridge.db.open import open_database
from tests.authenticator import PRESENT, Authenticator


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as database:
        for name in ("ada", "bob"):
            await People(database).add(name)
        yield database


@pytest.fixture
def flow(database: Database) -> PasskeyFlow:
    return PasskeyFlow(Passkeys(database), Party("localhost", ("http://localhost:8080",)), Spent(database))


async def added(flow: PasskeyFlow, person: str = "ada") -> Authenticator:
    device = Authenticator()
    asked, options = await flow.begin_new(person)
    await flow.end_new(asked, person, device.made(options), "Laptop")
    return device


async def test_added_passkey_logs_in_and_records_use(flow: PasskeyFlow) -> None:
    device = await added(flow)
    for count in (1, 2, 3):
        asked, options = flow.begin_login()
        assert await flow.end_login(asked, device.signed(options)) == "ada"
        (kept,) = await flow.passkeys.of("ada")
        assert (kept.label, kept.sign_count) == ("Laptop", count)
        assert kept.used_at is not None


async def test_passkey_options_require_verified_resident_key(flow: PasskeyFlow) -> None:
    await added(flow)
    new = json.loads((await flow.begin_new("ada"))[1])
    selection = new["authenticatorSelection"]
    assert (selection["residentKey"], selection["userVerification"]) == ("required", "required")
    assert len(new["excludeCredentials"]) == 1
    assert "ada" not in new["user"]["id"]
    asked = json.loads(flow.begin_login()[1])
    assert asked["userVerification"] == "required"
    assert not asked.get("allowCredentials")


WRONG_ANSWERS: list[dict[str, Any]] = [
    {"origin": "https://evil.example"},
    {"origin": "http://localhost:8081"},
    {"origin": None},
    {"rp_id": "evil.example"},
    {"challenge": "AAAA"},
    {"challenge": ""},
    {"kind": "webauthn.create"},
    {"flags": PRESENT},
    {"flags": 0},
    {"count": 0},
    {"key": ec.generate_private_key(ec.SECP256R1())},
    {"user": user_handle("bob")},
    {"user": b""},
]


async def test_assertion_with_one_defect_is_refused(flow: PasskeyFlow) -> None:
    device = await added(flow)
    for change in WRONG_ANSWERS:
        asked, options = flow.begin_login()
        with pytest.raises(PasskeyError):
            await flow.end_login(asked, device.signed(options, **change))
        # The answer came from another device.
        asked, options = flow.begin_login()
        assert await flow.end_login(asked, device.signed(options)) == "ada", change


WRONG_KEYS: list[dict[str, Any]] = [
    {"origin": "https://evil.example"},
    {"rp_id": "evil.example"},
    {"challenge": "AAAA"},
    {"kind": "webauthn.get"},
    {"flags": PRESENT},
    {"attestation": b""},
    {"attestation": b"\xff" * 100},
    {"attestation": b"\x81" * 5000},
    {"attestation": cbor2.dumps({"fmt": "packed", "attStmt": {"alg": -7, "sig": b"x"}, "authData": b"x" * 37})},
    {"attestation": cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": b"x" * 54 + b"\xff\xff"})},
]


async def test_invalid_attestation_is_not_stored(flow: PasskeyFlow) -> None:
    for change in WRONG_KEYS:
        asked, options = await flow.begin_new("ada")
        with pytest.raises(PasskeyError):
            await flow.end_new(asked, "ada", Authenticator().made(options, **change), "x")
        assert await flow.passkeys.of("ada") == [], change


async def test_challenge_is_single_use_and_person_bound(flow: PasskeyFlow) -> None:
    device = await added(flow)
    asked, options = flow.begin_login()
    answer = device.signed(options)
    assert await flow.end_login(asked, answer) == "ada"
    with pytest.raises(PasskeyError, match="already answered"):
        await flow.end_login(asked, answer)
    # A wrong answer consumes it as well.
    asked, options = flow.begin_login()
    for wrong in (b"{}", device.signed(options)):
        with pytest.raises(PasskeyError):
            await flow.end_login(asked, wrong)
    asked, options = await flow.begin_new("ada")
    for other in (None, Asked(asked.challenge, "login"), Asked(asked.challenge, "new", "bob")):
        with pytest.raises(PasskeyError, match="started in another browser"):
            await flow.end_new(other, "ada", Authenticator().made(options), "x")
    with pytest.raises(PasskeyError, match="started in another browser"):
        await flow.end_login(asked, device.signed(options))


async def test_cloned_device_is_detected_by_counter(flow: PasskeyFlow) -> None:
    device = await added(flow)
    copy = Authenticator(key=device.key, id=device.id, user=device.user)
    for _ in range(3):
        asked, options = flow.begin_login()
        await flow.end_login(asked, device.signed(options))
    asked, options = flow.begin_login()
    with pytest.raises(PasskeyError):
        await flow.end_login(asked, copy.signed(options))


async def test_device_without_counter_may_return(flow: PasskeyFlow) -> None:
    device = await added(flow)
    for _ in range(2):
        asked, options = flow.begin_login()
        assert await flow.end_login(asked, device.signed(options, count=0)) == "ada"


NO_ANSWERS = [
    *(b"", b"[]", b"7", b'"x"', b"\xff", b'{"id": 7}', b'{"id": "AA", "response": {}}', b"[" * 100_000),
    *(b'{"id": "\\ud800", "response": {}}', b'{"id": "\\u0000", "response": {"userHandle": "!"}}'),
    b'{"id": "' + b"A" * 100_000 + b'", "response": {}}',
]


async def test_malformed_answer_is_refused_in_words(flow: PasskeyFlow) -> None:
    await added(flow)
    for answer in NO_ANSWERS:
        asked, _ = flow.begin_login()
        with pytest.raises(PasskeyError):
            await flow.end_login(asked, answer)
        asked, _ = await flow.begin_new("ada")
        with pytest.raises(PasskeyError):
            await flow.end_new(asked, "ada", answer, "x")


async def test_revoked_person_has_no_passkeys(flow: PasskeyFlow, database: Database) -> None:
    device = await added(flow)
    await People(database).revoke("ada")
    await People(database).restore("ada")
    asked, options = flow.begin_login()
    with pytest.raises(PasskeyError, match="unknown here"):
        await flow.end_login(asked, device.signed(options))
    await People(database).revoke("ada")
    asked, options = await flow.begin_new("ada")
    with pytest.raises(PasskeyError, match="was revoked"):
        await flow.end_new(asked, "ada", Authenticator().made(options), "x")


async def test_passkeys_are_bounded_named_and_removed_by_owner(flow: PasskeyFlow) -> None:
    device = await added(flow)
    (kept,) = await flow.passkeys.of("ada")
    assert not await flow.passkeys.remove("bob", kept.credential_id)
    asked, options = await flow.begin_new("bob")
    with pytest.raises(PasskeyError, match="already added"):
        await flow.end_new(asked, "bob", Authenticator(key=device.key, id=device.id).made(options), "mine now")
    for number in range(1, MOST_EACH):
        await flow.passkeys.add("ada", bytes([number]), b"k", 0, f"  a\x00\n{'b' * 99}")
    with pytest.raises(PasskeyError, match="Remove one first"):
        await flow.passkeys.add("ada", b"more", b"k", 0, "")
    assert (await flow.passkeys.of("ada"))[1].label == "a " + "b" * 38
    assert await flow.passkeys.remove("ada", kept.credential_id)
    asked, options = flow.begin_login()
    with pytest.raises(PasskeyError, match="unknown here"):
        await flow.end_login(asked, device.signed(options))
