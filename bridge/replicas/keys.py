"""Encryption keys of the store: AES-256-GCM with a key for each sprite, derived from the operator's key by HKDF-SHA256.

Each ciphertext is bound to its place by associated data, so it cannot be decrypted elsewhere. Nonces are random
96-bit values; with its own key, a sprite can encrypt 2^32 times before a collision becomes likely. The first of the
operator's keys seals, all unseal.
"""

import base64
import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path

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


class Keyring:
    """The operator's encryption keys. `load` is called when one is first needed; `source` names their place."""

    def __init__(self, load: Callable[[], Sequence[bytes]], source: str) -> None:
        self._load = load
        self._source = source

    @cached_property
    def _keys(self) -> list[Key]:
        return [Key(key) for key in self._load()]

    def current(self) -> Key:
        """Return the key for new data."""
        return self._keys[0]

    def of(self, key_id: str) -> Key:
        """Return the key with this id. Raise WrongKeyError if it is missing."""
        for key in self._keys:
            if key.id == key_id:
                return key
        raise WrongKeyError(
            f"The store is encrypted with a key (id {key_id}) that is not in {self._source}. Add that key beside the "
            "one in use. Nothing was changed."
        )


def fixed_keys(keys: Sequence[bytes]) -> Keyring:
    """Return the keyring of keys from the environment."""
    return Keyring(lambda: keys, "BRIDGE_STORE_KEY")


def key_file(path: Path, *, makes: bool = False) -> Keyring:
    """Return the keyring of a file that only its owner can read; `makes`: a missing file is created with a new key."""
    return Keyring(partial(_read, path, makes=makes), str(path))


def _read(path: Path, *, makes: bool) -> Sequence[bytes]:
    if makes and not path.exists():
        _make(path)
    try:
        if path.stat().st_mode & 0o077:
            raise OperatorError(f"{path} can be read by others: chmod 600 {path}")
        keys = read_keys(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        raise OperatorError(
            f"{path} is missing, and the store is encrypted with the key in it. Restore it from your "
            "copy, or set BRIDGE_STORE_KEY to the key. Without the key the store cannot be read."
        ) from None
    except OSError as error:
        raise OperatorError(f"{path} cannot be read ({error.strerror}).") from error
    except ValueError:
        keys = ()
    if not keys:
        raise OperatorError(f"{path} contains no valid key. Restore it from your copy.")
    return keys


def _make(path: Path) -> None:
    """Write a new key atomically and durably. If two processes do it at once, the first one wins."""
    key = base64.b64encode(secrets.token_bytes(KEY_BYTES))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".store.key.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(key + b"\n")
                stream.flush()
                os.fsync(descriptor)
            with suppress(FileExistsError):
                os.link(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
        sync(path.parent)
    except OSError as error:
        raise OperatorError(f"{path} cannot be written ({error.strerror}).") from error
