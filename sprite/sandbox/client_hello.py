"""The server name in the first message of a TLS client (RFC 8446, 4.1.2; RFC 6066, 3). No I/O."""

from __future__ import annotations

from typing import Final

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
#: Records over which the message may be spread; clients use one.
_MOST_RECORDS: Final = 8


class UnfinishedError(Exception):
    """More bytes are needed."""


def is_tls(data: bytes) -> bool:
    """Return whether a connection begins as TLS does; `data` has at least one byte."""
    return data[0] == _HANDSHAKE


def server_name(data: bytes) -> str | None:
    """Return the server name in a ClientHello, or None if it has none. Raises UnfinishedError, or ValueError."""
    message, rest = b"", _Reader(data)
    for _ in range(_MOST_RECORDS):
        if rest.take(1)[0] != _HANDSHAKE:
            raise ValueError("no handshake")
        rest.take(2)
        message += rest.block(2)
        if message[:1] != bytes([_CLIENT_HELLO]):
            raise ValueError("no ClientHello")
        end = 4 + int.from_bytes(message[1:4])
        if len(message) >= max(4, end):
            try:
                return _name_in(_Reader(message[4:end]))
            except UnfinishedError as error:
                raise ValueError("a field is longer than the message") from error
    raise ValueError("too many records")


def _name_in(hello: _Reader) -> str | None:
    hello.take(2 + 32)
    for length_bytes in (1, 2, 1):
        # The session, cipher suites and compression methods.
        hello.block(length_bytes)
    extensions = _Reader(hello.block(2) if hello.data else b"")
    while extensions.data:
        kind, content = int.from_bytes(extensions.take(2)), _Reader(extensions.block(2))
        if kind == _SERVER_NAME:
            names = _Reader(content.block(2))
            names.take(1)
            return names.block(2).decode("ascii")
    return None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        if len(self.data) < count:
            raise UnfinishedError
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def block(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes)))
