"""Roles and the audit log of operator actions: complete and redacted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.admin.operator_actions import CLI, Acts, Audit, told
from bridge.auth.people import People
from bridge.auth.tokens import PeopleError
from bridge.db.database import Database
from bridge.db.open import open_database
from sprite.common import own_secrets
from tests.postgres import dumped


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as database:
        await People(database).prepare()
        yield database


@pytest.fixture
def acts(database: Database) -> Acts:
    return Acts(People(database, local_operates=True), Audit(database))


async def lines(acts: Acts) -> list[tuple[str, str]]:
    return [(entry.actor, told(entry)) for entry in await acts.audit.since()]


async def test_act_on_person_logs_actor_action_and_target(acts: Acts) -> None:
    await acts.add(CLI, "ada")
    await acts.link("ada", "ada")
    await acts.change_role(CLI, "ada", "operator")
    await acts.make_token("ada", "ada", "phone", ["ask"])
    await acts.revoke_token(CLI, "ada", "phone")
    await acts.revoke(CLI, "ada")
    await acts.restore(CLI, "ada")
    assert await lines(acts) == [
        ("cli", "users add ada"),
        ("ada", "users link ada"),
        ("cli", "users role ada (role operator)"),
        ("ada", "users token ada (opens ask, token phone)"),
        ("cli", "users revoke-token ada (token phone)"),
        ("cli", "users revoke ada"),
        ("cli", "users restore ada"),
    ]


async def test_own_secret_is_in_no_line(acts: Acts) -> None:
    own_secrets.hold("the-operators-own-token")
    await acts.audit.note(CLI, "export", "of the-operators-own-token", into="x the-operators-own-token")
    assert "own-token" not in str(await lines(acts))
    assert len(await lines(acts)) == 1


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


async def test_newest_lines_since_time_are_ordered(acts: Acts) -> None:
    for number in range(5):
        await acts.audit.note(CLI, "deploy", f"s{number}", long="x" * 5000, lone="\x00")
    found = await acts.audit.since(most=2)
    assert [entry.subject for entry in found] == ["s3", "s4"]
    assert len(found[0].detail["long"]) < 1000
    assert await acts.audit.since(found[-1].at + 60) == []


async def test_concurrent_lines_are_all_kept(acts: Acts) -> None:
    await asyncio.gather(*(acts.audit.note(f"op-{number}", "deploy", "ada") for number in range(12)))
    found = await acts.audit.since()
    assert [entry.id for entry in found] == list(range(1, 13))


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
    with pytest.raises(PeopleError, match="the person who starts the bridge"):
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
