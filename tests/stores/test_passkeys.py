"""Passkeys: what a device must prove. The device is one in software; each hostile answer is right but for one thing."""

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
from bridge.db.open import Database, open_database
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


async def test_a_device_that_was_added_logs_its_person_in_and_each_use_is_noted(flow: PasskeyFlow) -> None:
    device = await added(flow)
    for count in (1, 2, 3):
        asked, options = flow.begin_login()
        assert await flow.end_login(asked, device.signed(options)) == "ada"
        (kept,) = await flow.passkeys.of("ada")
        assert (kept.label, kept.sign_count) == ("Laptop", count)
        assert kept.used_at is not None
    assert kept.aaguid == "00000000-0000-0000-0000-000000000000"


async def test_devices_are_asked_to_see_their_person_and_to_know_whose_key_they_have(flow: PasskeyFlow) -> None:
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


async def test_an_answer_with_one_thing_wrong_opens_nothing(flow: PasskeyFlow) -> None:
    device = await added(flow)
    for change in WRONG_ANSWERS:
        asked, options = flow.begin_login()
        with pytest.raises(PasskeyError):
            await flow.end_login(asked, device.signed(options, **change))
        # It was not the device.
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


async def test_a_key_that_was_not_made_as_it_must_be_is_not_kept(flow: PasskeyFlow) -> None:
    for change in WRONG_KEYS:
        asked, options = await flow.begin_new("ada")
        with pytest.raises(PasskeyError):
            await flow.end_new(asked, "ada", Authenticator().made(options, **change), "x")
        assert await flow.passkeys.of("ada") == [], change


async def test_a_challenge_is_answered_once_and_by_whom_it_was_made_for(flow: PasskeyFlow) -> None:
    device = await added(flow)
    asked, options = flow.begin_login()
    answer = device.signed(options)
    assert await flow.end_login(asked, answer) == "ada"
    with pytest.raises(PasskeyError, match="answered already"):
        await flow.end_login(asked, answer)
    # A wrong answer spends it as well.
    asked, options = flow.begin_login()
    for wrong in (b"{}", device.signed(options)):
        with pytest.raises(PasskeyError):
            await flow.end_login(asked, wrong)
    asked, options = await flow.begin_new("ada")
    for other in (None, Asked(asked.challenge, "login"), Asked(asked.challenge, "new", "bob")):
        with pytest.raises(PasskeyError, match="begun in another browser"):
            await flow.end_new(other, "ada", Authenticator().made(options), "x")
    with pytest.raises(PasskeyError, match="begun in another browser"):
        await flow.end_login(asked, device.signed(options))


async def test_a_copy_of_a_device_is_noticed_by_its_count(flow: PasskeyFlow) -> None:
    device = await added(flow)
    copy = Authenticator(key=device.key, id=device.id, user=device.user)
    for _ in range(3):
        asked, options = flow.begin_login()
        await flow.end_login(asked, device.signed(options))
    asked, options = flow.begin_login()
    with pytest.raises(PasskeyError):
        await flow.end_login(asked, copy.signed(options))


async def test_a_device_that_does_not_count_may_come_again(flow: PasskeyFlow) -> None:
    device = await added(flow)
    for _ in range(2):
        asked, options = flow.begin_login()
        assert await flow.end_login(asked, device.signed(options, count=0)) == "ada"


NO_ANSWERS = [
    *(b"", b"[]", b"7", b'"x"', b"\xff", b'{"id": 7}', b'{"id": "AA", "response": {}}', b"[" * 100_000),
    *(b'{"id": "\\ud800", "response": {}}', b'{"id": "\\u0000", "response": {"userHandle": "!"}}'),
    b'{"id": "' + b"A" * 100_000 + b'", "response": {}}',
]


async def test_what_is_no_answer_is_refused_in_words(flow: PasskeyFlow) -> None:
    await added(flow)
    for answer in NO_ANSWERS:
        asked, _ = flow.begin_login()
        with pytest.raises(PasskeyError):
            await flow.end_login(asked, answer)
        asked, _ = await flow.begin_new("ada")
        with pytest.raises(PasskeyError):
            await flow.end_new(asked, "ada", answer, "x")


async def test_who_was_revoked_has_no_passkey_any_more(flow: PasskeyFlow, database: Database) -> None:
    device = await added(flow)
    await People(database).revoke("ada")
    await People(database).restore("ada")
    asked, options = flow.begin_login()
    with pytest.raises(PasskeyError, match="not known here"):
        await flow.end_login(asked, device.signed(options))
    await People(database).revoke("ada")
    asked, options = await flow.begin_new("ada")
    with pytest.raises(PasskeyError, match="may not come in"):
        await flow.end_new(asked, "ada", Authenticator().made(options), "x")


async def test_passkeys_are_bounded_named_in_words_and_removed_by_their_person_alone(flow: PasskeyFlow) -> None:
    device = await added(flow)
    (kept,) = await flow.passkeys.of("ada")
    assert not await flow.passkeys.remove("bob", kept.credential_id)
    asked, options = await flow.begin_new("bob")
    with pytest.raises(PasskeyError, match="known here already"):
        await flow.end_new(asked, "bob", Authenticator(key=device.key, id=device.id).made(options), "mine now")
    for number in range(1, MOST_EACH):
        await flow.passkeys.add("ada", bytes([number]), b"k", 0, f"  a\x00\n{'b' * 99}", "a")
    with pytest.raises(PasskeyError, match="Remove one first"):
        await flow.passkeys.add("ada", b"more", b"k", 0, "", "a")
    assert (await flow.passkeys.of("ada"))[1].label == "a " + "b" * 38
    assert await flow.passkeys.remove("ada", kept.credential_id)
    asked, options = flow.begin_login()
    with pytest.raises(PasskeyError, match="not known here"):
        await flow.end_login(asked, device.signed(options))
