"""Personal access tokens: scopes, storage and revocation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.auth.people import People
from bridge.auth.tokens import DEFAULT_SCOPES, SCOPES, Holder, PeopleError
from bridge.db.database import token_sha256
from bridge.db.open import open_database
from tests.postgres import dumped


@pytest.fixture
async def people(database_at: Path | str) -> AsyncIterator[People]:
    async with open_database(database_at) as database:
        people = People(database)
        await people.add("ada")
        yield people


async def holder(people: People, token: str) -> Holder:
    found = await people.tokens.holder(token)
    assert found is not None
    return found


async def test_token_opens_its_scopes_and_full_opens_all(people: People) -> None:
    for scope in SCOPES:
        token, made = await people.tokens.make("ada", None, [scope])
        assert made.scopes == [scope]
        found = await holder(people, token)
        assert (found.person, found.label) == ("ada", made.label)
        assert [each for each in SCOPES if found.may(each)] == [scope]
    full, _ = await people.tokens.make("ada", "laptop", None)
    found = await holder(people, full)
    assert all(found.may(scope) for scope in SCOPES)
    assert "ask" not in DEFAULT_SCOPES


async def test_malformed_token_has_no_holder(people: People) -> None:
    token, _ = await people.tokens.make("ada", None, ["observe"])
    for wrong in (
        "",
        "bridge-person-",
        token[:-1],
        token + "x",
        token.upper(),
        "bridge-person-" + "x" * 10**6,
        "\udc80",
    ):
        assert await people.tokens.holder(wrong) is None


async def test_tokens_get_distinguishable_names(people: People) -> None:
    for _ in range(3):
        await people.tokens.make("ada", None, ["observe"])
    await people.tokens.make("ada", "My phone", ["ask"])
    assert [token.label for token in await people.tokens.of("ada")] == [
        "full",
        "token",
        "token-2",
        "token-3",
        "My phone",
    ]
    with pytest.raises(PeopleError, match="called 'My phone' already"):
        await people.tokens.make("ada", "My phone", ["ask"])
    for label in ("", " x", "a/b", "x" * 41, "a\n", "ä"):
        with pytest.raises(PeopleError):
            await people.tokens.make("ada", label, ["ask"])


async def test_unknown_scope_is_refused_with_valid_list(people: People) -> None:
    for scopes in ([], ["memory"], ["ask", "everything"], [""]):
        with pytest.raises(PeopleError, match="memory:read, observe, ask, actions"):
            await people.tokens.make("ada", None, scopes)


async def test_revoked_token_opens_nothing_others_stay_valid(people: People) -> None:
    one, _ = await people.tokens.make("ada", "one", ["observe"])
    other, _ = await people.tokens.make("ada", "other", ["observe"])
    assert await people.tokens.revoke("ada", "one") == token_sha256(one)
    assert await people.tokens.holder(one) is None
    assert await people.tokens.holder(other) is not None
    with pytest.raises(PeopleError, match="no token called 'one'"):
        await people.tokens.revoke("ada", "one")


async def test_revoked_person_has_and_gets_no_tokens(people: People) -> None:
    token, _ = await people.tokens.make("ada", None, ["observe"])
    await people.revoke("ada")
    assert await people.tokens.holder(token) is None
    with pytest.raises(PeopleError, match="users restore ada"):
        await people.tokens.make("ada", None, ["observe"])
    _, full = await people.restore("ada")
    assert await people.tokens.holder(token) is None
    assert (await holder(people, full)).scopes is None


async def test_local_person_has_tokens_before_first_start(people: People) -> None:
    token, _ = await people.tokens.make("local", None, ["observe"])
    assert (await holder(people, token)).person == "local"
    with pytest.raises(PeopleError, match="no person called 'bob'"):
        await people.tokens.make("bob", None, ["observe"])


def written(where: Path | str) -> bytes:
    """Return the entire contents of a database."""
    if isinstance(where, str):
        return dumped(where)
    return b"".join(path.read_bytes() for path in where.parent.iterdir())


async def test_token_use_is_recorded_but_token_is_not(people: People, database_at: Path | str) -> None:
    token, made = await people.tokens.make("ada", None, ["observe"])
    assert made.used_at is None
    await people.tokens.used(await holder(people, token))
    used = {each.label: each.used_at for each in await people.tokens.of("ada")}
    assert used["full"] is None
    assert used[made.label] is not None
    secret = token.removeprefix("bridge-person-").encode()
    assert secret not in written(database_at)
