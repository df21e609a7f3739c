"""Validation of ID tokens. Each hostile token is signed like a provider's, and has a single defect."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from bridge.auth.oidc_provider import MAX_TOKEN_CHARACTERS, IdTokenError, UnknownKeyError, verified

NOW = 1_800_000_000.0
ISSUER, CLIENT, NONCE = "https://id.example.org", "sprite", "n-once"
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
OTHER = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
KEYS = KeySet.import_key_set({"keys": [KEY.as_dict(private=False)]})
TIMES = {"iat": int(NOW), "exp": int(NOW) + 600}
GOOD: dict[str, Any] = {"iss": ISSUER, "aud": CLIENT, "sub": "u-1", "nonce": NONCE, **TIMES}


def signed(claims: dict[str, Any], key: Any = KEY, alg: str = "RS256", **header: str) -> str:
    return jwt.encode({"alg": alg, "kid": "one", **header}, claims, key, algorithms=[alg])


def raw(header: dict[str, Any], claims: object, signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def believed(token: str, **said: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"issuer": ISSUER, "client_id": CLIENT, "nonce": NONCE, "now": NOW, **said}
    return verified(token, KEYS, **asked)


def test_token_of_provider_for_this_login_is_accepted() -> None:
    assert believed(signed(GOOD)) == GOOD
    # Clocks differ a little, and a token may have several audiences if it names the authorized one.
    assert believed(signed({**GOOD, "exp": int(NOW) - 30}))["sub"] == "u-1"
    assert believed(signed({**GOOD, "aud": [CLIENT, "other"], "azp": CLIENT}))["sub"] == "u-1"


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://evil.example.org"},
        {"iss": ISSUER + "/"},
        {"iss": [ISSUER]},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": [CLIENT, "other"], "azp": "other"},
        {"aud": {CLIENT: 1}},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": int(NOW) - 61},
        {"exp": "tomorrow"},
        {"exp": True},
        {"iat": int(NOW) + 61},
        {"nbf": int(NOW) + 61},
        {"sub": ""},
        {"sub": 7},
        {"sub": ["u-1"]},
        {"sub": "x" * 256},
        {"sub": "u\x00"},
        {"sub": "u\n1"},
        {"at_hash": "AAAA"},
        {"amr": "pwd"},
        {"auth_time": "now"},
    ],
    ids=repr,
)
def test_token_with_wrong_claim_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(IdTokenError):
        believed(signed({**GOOD, **change}), access_token="an access token")


@pytest.mark.parametrize("missing", ["iss", "aud", "sub", "exp", "iat", "nonce"])
def test_token_without_required_claim_is_refused(missing: str) -> None:
    with pytest.raises(IdTokenError):
        believed(signed({name: value for name, value in GOOD.items() if name != missing}))


def test_number_of_any_size_is_parsed_safely() -> None:
    assert believed(signed({**GOOD, "exp": 10**40}))["sub"] == "u-1"
    with pytest.raises(IdTokenError):
        believed(signed({**GOOD, "exp": float("nan")}))


def test_token_with_foreign_signature_is_refused() -> None:
    header, claims, signature = signed(GOOD).split(".")
    forged = raw({}, {**GOOD, "sub": "u-2"}).split(".")[1]
    by_public_key = raw({"alg": "HS256", "kid": "one"}, GOOD).rpartition(".")[0]
    mac = hmac.digest(KEY.as_pem(private=False), by_public_key.encode(), "sha256")
    for token in (
        raw({"alg": "none"}, GOOD),
        raw({"alg": "none", "kid": "one"}, GOOD),
        raw({"alg": "None", "kid": "one"}, GOOD, b"x"),
        signed(GOOD, OTHER),
        f"{header}.{forged}.{signature}",
        f"{header}.{claims}.",
        # The public key is not secret: used as an HMAC secret, anybody could sign with it.
        f"{by_public_key}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}",
        raw({"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": False}, GOOD, b"x"),
        raw({"alg": "RS256", "kid": "one", "jwk": OTHER.as_dict(private=False)}, GOOD, b"x"),
    ):
        with pytest.raises(IdTokenError):
            believed(token)


def test_unknown_key_is_reported_distinctly() -> None:
    with pytest.raises(UnknownKeyError):
        believed(signed(GOOD, OTHER, kid="two"))


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "x" * (MAX_TOKEN_CHARACTERS + 1),
        "\udc80.a.b",
        "ä.ö.ü",
        raw({"alg": "RS256", "kid": ["one"]}, GOOD, b"x"),
        raw({"alg": ["RS256"]}, GOOD, b"x"),
        raw([], GOOD, b"x"),  # type: ignore[arg-type]
        base64.urlsafe_b64encode(b"[" * 20_000).decode() + ".e30.eA",
        "e30." + base64.urlsafe_b64encode(b"[" * 20_000).decode() + ".eA",
    ],
    ids=lambda token: token[:12],
)
def test_malformed_token_is_refused_in_words(token: str) -> None:
    with pytest.raises(IdTokenError):
        believed(token)


def test_signed_non_object_is_refused_in_words() -> None:
    lone = json.dumps({**GOOD, "sub": "\ud800"}).encode()
    for payload in (lone, b"[]", b"7", b"", b"[" * 15_000, b'{"sub":' * 3_000):
        with pytest.raises(IdTokenError):
            believed(jws.serialize_compact({"alg": "RS256", "kid": "one"}, payload, KEY, algorithms=["RS256"]))


def test_other_key_types_are_accepted() -> None:
    key = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
    keys = KeySet.import_key_set({"keys": [KEY.as_dict(private=False), key.as_dict(private=False)]})
    token = signed(GOOD, key, alg="ES256", kid="ec")
    assert verified(token, keys, issuer=ISSUER, client_id=CLIENT, nonce=NONCE, now=NOW) == GOOD
