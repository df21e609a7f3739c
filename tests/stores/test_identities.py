"""Provider identities map to people by issuer and subject alone, and a taken name is never reassigned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bridge.auth.people import Identities, People, groups_in, role_in, wanted_name
from bridge.auth.sealed_cookie import Spent
from bridge.config import OidcSettings
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.providers.provider import NAME

ISSUER = "https://id.example.org"


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as database:
        await People(database).prepare()
        yield database


async def test_taken_name_is_never_given_to_claimant(database: Database) -> None:
    people, identities = People(database), Identities(database)
    await people.add("ada")
    assert await identities.known(ISSUER, "u-1", "ada") == ("ada-2", True)
    assert await identities.known(ISSUER, "u-1", "somebody-else") == ("ada-2", False)
    # The same subject at another provider is another person.
    assert await identities.known("https://other.example.org", "u-1", "ada") == ("ada-3", True)
    assert await identities.known(ISSUER, "u-2", "local") == ("local-2", True)


async def test_revoked_person_stays_out_without_second_name(database: Database) -> None:
    people, identities = People(database), Identities(database)
    known = await identities.known(ISSUER, "u-1", "ada")
    assert known is not None
    await people.revoke(known[0])
    assert await identities.known(ISSUER, "u-1", "ada") is None
    assert await identities.known(ISSUER, "u-1", "eve") is None
    assert [person.name for person in await people.everyone()] == ["local", "ada"]
    await people.restore("ada")
    assert await identities.known(ISSUER, "u-1", "ada") == ("ada", False)


async def test_concurrent_first_logins_create_one_person(database: Database) -> None:
    identities = Identities(database)
    found = await asyncio.gather(*(identities.known(ISSUER, "u-1", "ada") for _ in range(8)))
    assert sorted(known for known in found if known) == [("ada", False)] * 7 + [("ada", True)]


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "Ada.Lovelace"}, "ada-lovelace"),
        ({"preferred_username": "ada@example.org"}, "ada"),
        ({"email": "Grace_Hopper+x@example.org"}, "grace-hopper-x"),
        ({"preferred_username": "Zoë Müller"}, "zoe-muller"),
        ({"preferred_username": "007"}, "p-007"),
        ({"preferred_username": "../../etc"}, "etc"),
        ({"preferred_username": "local", "email": "lo@example.org"}, "lo"),
        ({"preferred_username": "李", "email": "li@example.org"}, "li"),
        ({"preferred_username": "a" * 10_000}, "a" * 30),
        # An identity that is not verified maps to no person.
        ({"email": "ada@example.org", "email_verified": False}, "person"),
        ({"preferred_username": ["ada"], "email": 7}, "person"),
        ({"preferred_username": "\x00\ud800"}, "person"),
        ({}, "person"),
    ],
)
def test_new_name_derives_from_provider_claims(claims: dict[str, Any], name: str) -> None:
    assert wanted_name(claims) == name
    assert NAME.fullmatch(name)


@pytest.mark.parametrize(
    ("said", "people", "operators", "role"),
    [
        (["staff"], "", "", "unchanged"),
        ([], "", "", "unchanged"),
        (["staff"], "staff", "", "unchanged"),
        (["guests"], "staff", "", None),
        (None, "staff", "", None),
        ({"staff": 1}, "staff", "", None),
        ("staff", "staff", "", "unchanged"),
        (["staff"], "staff", "admins", "person"),
        # Operators may be admitted by that claim.
        (["admins"], "staff", "admins", "operator"),
        (["Admins", 7, None], "", "admins", "person"),
    ],
)
def test_groups_determine_admission_and_role(said: object, people: str, operators: str, role: str | None) -> None:
    settings = OidcSettings(
        ISSUER, "sprite", people=frozenset({people} - {""}), operators=frozenset({operators} - {""})
    )
    assert role_in(groups_in({"groups": said}, "groups"), settings) == role


@pytest.mark.parametrize(
    ("claim", "groups"),
    [
        # As Keycloak sends it.
        ("realm_access.roles", {"staff", "admins"}),
        ("resource_access.sprite.roles", {"editor"}),
        # So does a name that contains dots, or whose dots would lead elsewhere.
        ("https://example.org/groups", {"named"}),
        ("dotted.name", {"its own"}),
        ("realm_access", set()),
        ("realm_access.roles.staff", set()),
        ("realm_access..roles", set()),
        ("groups.0", set()),
        ("nothing.at.all", set()),
        (".", set()),
        ("." * 5000, set()),
    ],
)
def test_groups_claim_is_found_by_dotted_path(claim: str, groups: set[str]) -> None:
    claims = {
        "realm_access": {"roles": ["staff", "admins", 7]},
        "resource_access": {"sprite": {"roles": "editor"}},
        "https://example.org/groups": ["named"],
        "dotted.name": ["its own"],
        "dotted": {"name": ["another"]},
        "groups": ["flat"],
    }
    assert groups_in(claims, claim) == groups


async def test_challenge_is_accepted_once(database: Database) -> None:
    spent = Spent(database)
    assert await spent.spend("one")
    assert not await spent.spend("one")
    assert sum(await asyncio.gather(*(Spent(database).spend("two") for _ in range(8)))) == 1
