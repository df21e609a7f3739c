"""JSON decoded one level at a time: the same values as a strict parser, or a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from bridge.proxy.content import encoded, is_list, is_object, items, members, scalar, string_bytes
from bridge.proxy.errors import RefusedError

NAMES = st.sampled_from(["model", "max_tokens", "messages", "é", ""]) | st.text()
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | NAMES
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=20
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=8)


def whole(raw: Raw) -> Any:
    """Return the value, decoded level by level."""
    if is_object(raw):
        return {name: whole(value) for name, value in members(raw).items()}
    if is_list(raw):
        return [whole(value) for value in items(raw)]
    return scalar(raw)


@given(value=OBJECTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 1, "\t"]))
def test_levels_round_trip(value: dict[str, Any], *, ascii_only: bool, indent: int | str | None) -> None:
    found = members(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode())
    assert {name: whole(raw) for name, raw in found.items()} == value
    assert list(found) == list(value)
    assert json.loads(encoded(found)) == value


@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ntrue01 Ee.-u/', max_size=60).map(str.encode))
@example(b'{"a":1,}')
@example(b'{"a" 1}')
@example(b"{,}")
@example(b'{"a":1 "b":2}')
@example(b'{"a":/* " */1}')
@example(b"{'model':'a'}")
@example(b'{"a":1}{"model":"b"}')
@example(b'\xef\xbb\xbf{"a":1}')
@example(b'{"a":NaN}')
@example(b'{"a":[Infinity]}')
@example(b'{"a":{"b":01}}')
@example(b'{"a":"\x00"}')
@example(b'{"a":1}\x00')
def test_accepted_bytes_parse_equally_in_strict_parsers(data: bytes) -> None:
    try:
        found = members(data)
        data.decode()
    except (RefusedError, UnicodeDecodeError):
        return
    strict = json.loads(data, object_pairs_hook=lambda pairs: pairs)
    assert [name for name, _ in strict] == list(found)
    assert json.loads(encoded(found)) == json.loads(data)


@given(OBJECTS, st.data())
def test_truncated_objects_are_refused(value: dict[str, Any], data: st.DataObject) -> None:
    written = json.dumps(value).encode()
    with pytest.raises(RefusedError):
        members(written[: data.draw(st.integers(0, len(written) - 1))])


@pytest.mark.parametrize(
    "data",
    [
        b'{"model":"a","x":{"model":"c"},"model":"b"}',
        b'{"model":"a","\\u006dodel":"b"}',
        b'{"\\/":1,"/":2}',
        b'{"\xc3\xa9":1,"\\u00e9":1}',
        b'{"":1,"":1}',
        b"{" + b"".join(b'"%d":1,' % number for number in range(100_000)) + b'"99999":1}',
    ],
    ids=lambda data: str(data[:50]),
)
def test_repeated_names_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match="twice"):
        members(data)


def test_repeated_names_on_different_levels_are_accepted() -> None:
    found = members(b'{"messages":[{"model":"deep"}],"model":"top","m":{"model":1}}')
    assert scalar(found["model"]) == "top"


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b'"a"', b"1", b'{"\xff":1}', b'{"\\ud800":1}', b'{"a":"\\ud800"}']
)
def test_non_object_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        members(data)


@pytest.mark.parametrize("data", [b'{"a":' * 100_000, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
def test_deep_nesting_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        members(data)


@pytest.mark.parametrize("written", [b'"%b"' % (b"a" * 20_000), b"1" * 20_000, b"1" * 5000, b'"\xff"', b"1e999"])
def test_unreadable_scalars_are_refused(written: bytes) -> None:
    raw = members(b'{"a":%b}' % written)["a"]
    with pytest.raises(RefusedError):
        scalar(raw)


def test_string_length_is_as_written() -> None:
    found = members(b'{"a" : "x\\u0061" , "b":"", "c":1, "d":["x"]}')
    assert {name: string_bytes(raw) for name, raw in found.items()} == {"a": 7, "b": 0, "c": 0, "d": 0}
