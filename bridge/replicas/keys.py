"""Encryption keys of the store: AES-256-GCM with a key for each sprite, derived from the operator's key by HKDF-SHA256.

Each ciphertext is bound to its place by associated data, so it cannot be decrypted elsewhere. Nonces are random
96-bit values; with its own key, a sprite can encrypt 2^32 times before a collision becomes likely.

Keys come from the environment, or from a file that is created at the first start. The first key seals, all unseal.
"""

import base64
import hashlib
import os
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bridge.config import KEY_BYTES, read_keys
from bridge.errors import OperatorError
from bridge.replicas.store import WrongKeyError
from sprite.common import own_secrets
from sprite.common.files import sync

_NONCE_BYTES = 12


class BrokenSealError(Exception):
    """The encrypted bytes were altered, or encrypted with another key or for another place."""


class Key:
    """One of the operator's keys; `id` is derived from it and reveals nothing."""

    def __init__(self, key: bytes) -> None:
        own_secrets.hold(key)
        self._key = key
        self.id = hashlib.sha256(b"sprite store key\0" + key).hexdigest()[:16]

    def seal(self, sprite: str, place: bytes, content: bytes) -> bytes:
        """Encrypt content with this key, bound to this place of this sprite."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + _cipher(self._key, sprite).encrypt(nonce, content, place)

    def unseal(self, sprite: str, place: bytes, sealed: bytes) -> bytes:
        """Decrypt content. Raise BrokenSealError if it was altered or belongs elsewhere."""
        try:
            return _cipher(self._key, sprite).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError) as error:
            raise BrokenSealError from error


@lru_cache(maxsize=1024)
def _cipher(key: bytes, sprite: str) -> AESGCM:
    return AESGCM(HKDF(SHA256(), KEY_BYTES, None, b"sprite store rows\0" + sprite.encode()).derive(key))


def key_of_secret(secret: str) -> bytes:
    """Derive a key from the bridges' shared secret, if no key was configured; it does not reveal the secret."""
    return HKDF(SHA256(), KEY_BYTES, None, b"sprite store key of a shared secret").derive(secret.encode())


class Keyring(Protocol):
    """Find the operator's encryption keys."""

    def current(self) -> Key:
        """Return the key for new data."""

    def of(self, key_id: str) -> Key:
        """Return the key with this id. Raise WrongKeyError if it is missing."""


class FixedKeys:
    """Hold encryption keys from the environment."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = [Key(key) for key in keys]

    def current(self) -> Key:
        """See Keyring."""
        return self._keys[0]

    def of(self, key_id: str) -> Key:
        """See Keyring."""
        return _found(self._keys, key_id, "BRIDGE_STORE_KEY")


class KeyFile:
    """A file of keys, the one in use first, readable only by its owner.

    `makes`: create a missing file with a new key when it is first needed.
    """

    def __init__(self, path: Path, *, makes: bool = False) -> None:
        self._path = path
        self._makes = makes
        self._keys: list[Key] = []

    def current(self) -> Key:
        """See Keyring."""
        self._load()
        return self._keys[0]

    def of(self, key_id: str) -> Key:
        """See Keyring."""
        self._load()
        return _found(self._keys, key_id, str(self._path))

    def _load(self) -> None:
        if self._keys:
            return
        if self._makes and not self._path.exists():
            self._make()
        try:
            if self._path.stat().st_mode & 0o077:
                raise OperatorError(f"{self._path} can be read by others: chmod 600 {self._path}")
            keys = read_keys(self._path.read_text(encoding="ascii"))
        except FileNotFoundError:
            raise OperatorError(
                f"{self._path} is missing, and the store is encrypted with the key in it. Restore it from your "
                "copy, or set BRIDGE_STORE_KEY to the key. Without the key the store cannot be read."
            ) from None
        except OSError as error:
            raise OperatorError(f"{self._path} cannot be read ({error.strerror}).") from error
        except ValueError:
            keys = ()
        if not keys:
            raise OperatorError(f"{self._path} contains no valid key. Restore it from your copy.")
        self._keys = [Key(key) for key in keys]

    def _make(self) -> None:
        """Write a new key atomically and durably. If two processes do it at once, the first one wins."""
        key = base64.b64encode(secrets.token_bytes(KEY_BYTES))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".store.key.", dir=self._path.parent)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(key + b"\n")
                    stream.flush()
                    os.fsync(descriptor)
                with suppress(FileExistsError):
                    os.link(name, self._path)
            finally:
                Path(name).unlink(missing_ok=True)
            sync(self._path.parent)
        except OSError as error:
            raise OperatorError(f"{self._path} cannot be written ({error.strerror}).") from error


def _found(keys: Sequence[Key], key_id: str, where: str) -> Key:
    for key in keys:
        if key.id == key_id:
            return key
    raise WrongKeyError(
        f"The store is encrypted with a key (id {key_id}) that is not in {where}. Add that key beside the "
        "one in use. Nothing was changed."
    )
