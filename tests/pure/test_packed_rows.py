"""Packed rows: round trips, and rejection of malformed or excessive input."""

from __future__ import annotations

import base64
import zlib

import pytest

from sprite.backup.replica_files import LONGEST_ROW, MESSAGE_BYTES, digest, in_messages, item
from sprite.protocol.replication import MOST_ROW_BYTES, Packer, Shipped, ShippedRow, Unpacker, whole_row


def test_rows_round_trip_and_repeats_are_compact() -> None:
    packer, unpacker = Packer(), Unpacker()
    rows = [ShippedRow("log/journal.jsonl", n, {"text": f"{n} says: naïve\0 {'x' * n}"}, n) for n in range(200)]
    messages = [Shipped("l", 200, rows), Shipped("l", 201, []), Shipped("l", 202, rows[150:])]
    packed = [packer.pack(message) for message in messages]
    assert [unpacker.unpack(message) for message in packed] == messages
    first, _, again = packed
    assert first.packed is not None
    assert again.packed is not None
    assert len(again.packed) < len(first.packed) / 2
    with pytest.raises(ValueError, match="cannot be read"):
        Unpacker().unpack(again)


@pytest.mark.parametrize(
    "data",
    [
        b"no stream",
        zlib.compress(b"no rows"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b"[[1,{},3]]"),
        zlib.compress(b" " * (MOST_ROW_BYTES + 1)),
    ],
)
def test_malformed_row_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="rows of a message"):
        Unpacker().unpack(Shipped("l", 1, [], packed=base64.b64encode(data).decode()))


def test_invalid_base64_is_refused() -> None:
    with pytest.raises(ValueError, match=r"padding|base64|characters"):
        Unpacker().unpack(Shipped("l", 1, [], packed="a"))


def test_long_row_is_chunked_and_messages_fit() -> None:
    long = {"text": "äöü" * LONGEST_ROW, "blob": b"\0\1"}
    items = [item(n, "log/observations.jsonl", n, row) for n, row in enumerate(({"a": 1}, long, None, {"b": 2.5}))]
    chunks: dict[str, bytes] = {}
    rows = []
    for held, sent in in_messages(items):
        assert sum(map(len, sent)) * 4 / 3 + sum(each.size for each in held) <= MESSAGE_BYTES
        chunks |= {digest(each): each for each in sent}
        rows += [None if each.row.row is None else whole_row(each.row.row, chunks.__getitem__) for each in held]
    assert rows == [{"a": 1}, {"text": "äöü" * LONGEST_ROW, "blob": {"base64": "AAE="}}, None, {"b": 2.5}]
    with pytest.raises(ValueError, match="long row"):
        whole_row({"chunks": ["x"]}, lambda _: b"{")


@pytest.mark.parametrize("names", [["x"] * 15_000, 3, [3], {}, None])
def test_row_repeating_one_chunk_uses_no_memory(names: object) -> None:
    given: list[str] = []

    def chunk(name: str) -> bytes:
        given.append(name)
        return b" " * 2**20

    with pytest.raises(ValueError, match="long row"):
        whole_row({"chunks": names}, chunk, most=2**23)
    assert len(given) <= 9
