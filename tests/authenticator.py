"""A passkey device in software: it makes keys and signs as WebAuthn requires, or wrongly if a test wants that."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Authenticator:
    """One key; `count` is its signature counter. Each answer is JSON, as from a browser's `toJSON()`."""

    rp_id: str = "localhost"
    origin: str = "http://localhost:8080"
    flags: int = PRESENT | VERIFIED
    count: int = 0
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    id: bytes = field(default_factory=lambda: os.urandom(16))
    user: bytes = b""

    def made(self, options: bytes, **change: Any) -> bytes:
        """Return the answer to a registration request."""
        asked = json.loads(options)
        self.user = base64.urlsafe_b64decode(asked["user"]["id"] + "==")
        numbers = self.key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (numbers.x, numbers.y))
        public = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        credential = bytes(16) + struct.pack(">H", len(self.id)) + self.id + public
        data = self._data(ATTESTED, change) + credential
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        response = {"clientDataJSON": b64(self._client("webauthn.create", asked, change)), "attestationObject": ""}
        response["attestationObject"] = b64(change.get("attestation", attestation))
        return self._answer(response)

    def signed(self, options: bytes, **change: Any) -> bytes:
        """Return the answer to a login request."""
        asked = json.loads(options)
        self.count += 1
        data = self._data(0, change)
        client = self._client("webauthn.get", asked, change)
        key: ec.EllipticCurvePrivateKey = change.get("key", self.key)
        signature = key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        response = {"clientDataJSON": b64(client), "authenticatorData": b64(data), "signature": b64(signature)}
        if (user := change.get("user", self.user)) is not None:
            response["userHandle"] = b64(user)
        return self._answer(response)

    def _data(self, flags: int, change: dict[str, Any]) -> bytes:
        rp_id = hashlib.sha256(change.get("rp_id", self.rp_id).encode()).digest()
        return rp_id + struct.pack(">BI", change.get("flags", self.flags) | flags, change.get("count", self.count))

    def _client(self, kind: str, asked: dict[str, Any], change: dict[str, Any]) -> bytes:
        challenge = change.get("challenge", asked["challenge"])
        origin = change.get("origin", self.origin)
        return json.dumps({"type": change.get("kind", kind), "challenge": challenge, "origin": origin}).encode()

    def _answer(self, response: dict[str, str]) -> bytes:
        named = {"id": b64(self.id), "rawId": b64(self.id), "type": "public-key", "clientExtensionResults": {}}
        return json.dumps({**named, "response": response}).encode()
