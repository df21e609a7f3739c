"""Roles and the audit log of operator actions: complete, redacted and tamper-evident."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.admin.audit import CLI, Audit, AuditLog, told
from bridge.admin.operator_actions import Acts
from bridge.auth.passkey_store import PasskeyError, Passkeys
from bridge.auth.people import Identities, Known, People
from bridge.auth.tokens import PeopleError
from bridge.db.open import Database, open_database
from bridge.providers.provider import HostError
from bridge.replicas.store import StoreError
from sprite.common import own_secrets
from tests.postgres import dumped


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as database:
        await People(database).prepare()
        yield database


@pytest.fixture
def acts(database: Database) -> Acts:
    return Acts(People(database, local_operates=True), Identities(database), Passkeys(database), Audit(database))


async def lines(acts: Acts) -> list[tuple[str, str]]:
    return [(entry.actor, told(entry)) for entry in (await acts.audit.since()).entries]


async def test_act_on_person_logs_actor_action_and_target(acts: Acts) -> None:
    await acts.add(CLI, "ada")
    await acts.link("ada", "ada")
    await acts.change_role(CLI, "ada", "operator")
    await acts.link_identity(CLI, "ada", "https://id.example.org", "u-1")
    await acts.make_token("ada", "ada", "phone", ["ask"])
    await acts.revoke_token(CLI, "ada", "phone")
    await acts.revoke(CLI, "ada")
    await acts.restore(CLI, "ada")
    assert await lines(acts) == [
        ("cli", "users add ada"),
        ("ada", "users link ada"),
        ("cli", "users role ada (role operator)"),
        ("cli", "users link-identity ada (before nobody, identity u-1)"),
        ("ada", "users token ada (opens ask, token phone)"),
        ("cli", "users revoke-token ada (token phone)"),
        ("cli", "users revoke ada"),
        ("cli", "users restore ada"),
    ]


async def test_own_secret_is_in_no_line(acts: Acts) -> None:
    own_secrets.hold("the-operators-own-token")
    with pytest.raises(StoreError):
        async with acts.audit.act(CLI, "export", "of the-operators-own-token", into="x the-operators-own-token"):
            raise StoreError("no the-operators-own-token")
    assert "own-token" not in str(await lines(acts))
    assert len(await lines(acts)) == 2


async def test_removed_identity_or_passkey_ends_persons_sessions(acts: Acts, database: Database) -> None:
    people, identities, passkeys = People(database), Identities(database), Passkeys(database)
    await acts.add(CLI, "ada")
    await acts.add(CLI, "bob")
    for issuer, subject in (
        ("https://one.example", "u-1"),
        ("https://two.example", "u-1"),
        ("https://two.example", "x"),
    ):
        await identities.link(issuer, subject, "ada", moves=False)
    for number, label in ((b"\x01", "phone"), (b"\x02", "key"), (b"\x03", "key")):
        await passkeys.add("ada", number * 32, b"public", 0, label, "")
    ways = await acts.ways_in("ada")
    assert [each.subject for each in ways.identities] == ["u-1", "u-1", "x"]
    assert sorted((each.id, each.label) for each in ways.passkeys) == [
        ("01" * 6, "phone"),
        ("02" * 6, "key"),
        ("03" * 6, "key"),
    ]
    before = await lines(acts)
    wrong: tuple[tuple[str, str | None, str], ...] = (
        ("u-9", None, "is not 'u-9' at a provider"),
        ("u-1", None, "at more than one provider"),
        ("u-1", "https://three.example", "is not 'u-1'"),
    )
    for subject, provider, words in wrong:
        with pytest.raises(PeopleError, match=words):
            await acts.unlink_identity(CLI, "ada", subject, provider)
    with pytest.raises(PeopleError, match="is not 'u-1'"):
        await acts.unlink_identity(CLI, "bob", "u-1", "https://one.example")
    with pytest.raises(PeopleError, match="nobody called"):
        await acts.unlink_identity(CLI, "eve", "u-1", None)
    for name, words in (("key", "more than one passkey"), ("", "no passkey"), ("0", "no passkey"), ("05" * 6, "no p")):
        with pytest.raises(PasskeyError, match=words):
            await acts.remove_passkey(CLI, "ada", name)
    session, other = await people.new_session("ada"), await people.new_session("bob")
    link = await acts.link(CLI, "ada")
    assert session is not None
    assert other is not None
    assert await people.of_session(session.id) == "ada", "a refused removal ends no session"

    assert await acts.unlink_identity(CLI, "ada", "x", None) == "https://two.example"
    assert await people.of_session(session.id) is None
    assert await people.of_session(other.id) == "bob"
    assert await people.found_link(link) == "unknown"
    assert await acts.unlink_identity("ada", "ada", "u-1", "https://one.example") == "https://one.example"
    session = await people.new_session("ada")
    assert session is not None
    assert await acts.remove_passkey(CLI, "ada", "03" * 6) == "key"
    assert await people.of_session(session.id) is None
    assert await acts.remove_passkey(CLI, "ada", "key") == "key"
    ways = await acts.ways_in("ada")
    assert [(each.issuer, each.subject) for each in ways.identities] == [("https://two.example", "u-1")]
    assert [each.label for each in ways.passkeys] == ["phone"]
    known = await identities.known("https://two.example", "x", "ada")
    assert known == Known("ada-2", is_new=True)
    assert (await lines(acts))[len(before) + 1 :] == [
        ("cli", "users unlink-identity ada (identity x)"),
        ("ada", "users unlink-identity ada (identity u-1)"),
        ("cli", "users remove-passkey ada (passkey key)"),
        ("cli", "users remove-passkey ada (passkey key)"),
    ]
    # This holds also for a revoked person.
    await acts.revoke(CLI, "ada")
    assert await acts.unlink_identity(CLI, "ada", "u-1", None) == "https://two.example"


async def test_refused_act_changes_nothing(acts: Acts) -> None:
    with pytest.raises(PeopleError):
        await acts.add(CLI, "Not a name")
    with pytest.raises(PeopleError):
        await acts.revoke(CLI, "nobody")
    await acts.add(CLI, "ada")
    assert not await acts.change_role(CLI, "ada", "person")
    assert await lines(acts) == [("cli", "users add ada")]


async def test_issued_secrets_are_not_logged(acts: Acts, database_at: Path | str) -> None:
    handed = [
        *await acts.add(CLI, "ada"),
        await acts.link(CLI, "ada"),
        (await acts.make_token(CLI, "ada", None, None))[0],
    ]
    if isinstance(database_at, str):
        stored = dumped(database_at)
    else:
        stored = b"".join(path.read_bytes() for path in database_at.parent.iterdir())
    assert b"users token" in stored
    assert not [secret for secret in handed if secret.encode() in stored]


async def spoil(database: Database, statement: str) -> None:
    await database.write(lambda tx: tx.execute(statement))


async def test_changed_or_removed_line_is_detected(acts: Acts, database: Database) -> None:
    for name in ("ada", "bob", "cyd", "dan", "eli", "fay"):
        await acts.add(CLI, name)
    assert (await acts.audit.since()).broken_at is None
    # The first fault is reported: each is inserted before the earlier ones.
    for statement, broken_at in (
        ("UPDATE audit SET at = at - 60 WHERE id = 6", 6),
        ("DELETE FROM audit WHERE id = 4", 5),
        ("UPDATE audit SET subject = 'eve' WHERE id = 3", 3),
        ("DELETE FROM audit WHERE id = 1", 2),
    ):
        await spoil(database, statement)
        assert (await acts.audit.since()).broken_at == broken_at


async def test_newest_lines_since_time_are_ordered(acts: Acts) -> None:
    for number in range(5):
        await acts.audit.note(CLI, "deploy", f"s{number}", long="x" * 5000, lone="\x00")
    found: AuditLog = await acts.audit.since(most=2)
    assert [entry.subject for entry in found.entries] == ["s3", "s4"]
    assert found.broken_at is None
    assert len(found.entries[0].detail["long"]) < 1000
    assert (await acts.audit.since(found.entries[-1].at + 60)).entries == []


async def test_long_act_is_logged_at_start_and_end(acts: Acts) -> None:
    async with acts.audit.act("ada", "deploy", "bob"):
        assert await lines(acts) == [("ada", "deploy bob")]
    with pytest.raises(HostError):
        async with acts.audit.act(CLI, "export", "bob", of="the machine"):
            raise HostError("There is no such VM.")
    with pytest.raises(ConnectionResetError):
        async with acts.audit.act(CLI, "export", "bob"):
            raise ConnectionResetError from StoreError("The store is damaged.")
    with pytest.raises(RuntimeError):
        async with acts.audit.act(CLI, "deploy", "cyd"):
            raise RuntimeError("what is not for people")
    begun = asyncio.Event()

    async def endless() -> None:
        async with acts.audit.act(CLI, "restore", "cyd"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(endless())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (await lines(acts))[1:] == [
        ("ada", "deploy bob (outcome done)"),
        ("cli", "export bob (of the machine)"),
        ("cli", "export bob (outcome failed: There is no such VM.)"),
        ("cli", "export bob"),
        ("cli", "export bob (outcome failed: The store is damaged.)"),
        ("cli", "deploy cyd"),
        ("cli", "deploy cyd (outcome failed: RuntimeError, see the bridge's log)"),
        ("cli", "restore cyd"),
        ("cli", "restore cyd (outcome cut off)"),
    ]


async def test_outcome_is_logged_after_caller_is_cancelled(acts: Acts) -> None:
    over = asyncio.Event()

    async def export() -> None:
        async with acts.audit.act(CLI, "export", "bob"):
            over.set()

    exporting = asyncio.create_task(export())
    await over.wait()
    exporting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exporting
    assert [told(each).endswith("(outcome done)") for each in (await acts.audit.since()).entries] == [False, True]


async def test_settings_are_logged_when_changed(acts: Acts) -> None:
    for host in ("127.0.0.1", "127.0.0.1", "0.0.0.0", "127.0.0.1", "127.0.0.1"):  # noqa: S104 - only told
        await acts.audit.note_settings({"host": host, "daily_usd": None})
    entries = (await acts.audit.since()).entries
    assert [entry.detail["host"] for entry in entries] == ["127.0.0.1", "0.0.0.0", "127.0.0.1"]  # noqa: S104


async def test_concurrent_lines_form_one_chain(acts: Acts) -> None:
    await asyncio.gather(*(acts.audit.note(f"op-{number}", "deploy", "ada") for number in range(12)))
    found = await acts.audit.since()
    assert ([entry.id for entry in found.entries], found.broken_at) == (list(range(1, 13)), None)


# --- roles ---


async def test_operator_role_needs_grant_or_local_start(database: Database) -> None:
    """Only the person who starts the bridge on this machine is an operator without a grant."""
    here, elsewhere = People(database, local_operates=True), People(database)
    await here.add("ada")
    assert [await here.role(name) for name in ("local", "ada", "nobody")] == ["operator", "person", None]
    assert await elsewhere.role("local") == "person"
    assert await here.change_role("ada", "operator")
    assert await elsewhere.role("ada") == "operator"
    assert {person.name: person.role for person in await elsewhere.everyone()} == {"local": "person", "ada": "operator"}
    with pytest.raises(PeopleError, match="whoever starts the bridge"):
        await here.change_role("local", "person")


async def test_revoked_operator_returns_without_role(database: Database) -> None:
    people = People(database)
    await people.add("ada")
    await people.change_role("ada", "operator")
    await people.revoke("ada")
    assert await people.role("ada") is None
    with pytest.raises(PeopleError, match="revoked"):
        await people.change_role("ada", "operator")
    await people.restore("ada")
    assert await people.role("ada") == "person"


async def test_session_is_issued_to_admitted_people_only(database: Database) -> None:
    people = People(database)
    await people.add("ada")
    session = await people.new_session("ada")
    assert session is not None
    assert await people.of_session(session.id) == "ada"
    await people.revoke("ada")
    assert await people.of_session(session.id) is None
    assert await people.new_session("ada") is None
    assert await people.new_session("nobody") is None
