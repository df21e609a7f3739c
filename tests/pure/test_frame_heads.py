"""Where WebSocket frames begin and end, however their bytes come."""

from __future__ import annotations

import itertools
import random
import struct

import pytest

from bridge.cluster.frame_heads import FrameHeads, close_frame


def frame(length: int, *, opcode: int = 1, is_final: bool = True, mask: bytes = b"") -> bytes:
    marked = 0x80 if mask else 0
    if length < 126:
        size = bytes((marked | length,))
    elif length < 2**16:
        size = bytes((marked | 126,)) + struct.pack(">H", length)
    else:
        size = bytes((marked | 127,)) + struct.pack(">Q", length)
    # Its payload looks like closes.
    payload = (b"\x88\x02\x03\xe8" * (length // 4 + 1))[:length]
    return bytes(((0x80 if is_final else 0) | opcode,)) + size + mask + payload


FRAMES = [
    frame(0),
    frame(1),
    frame(2, mask=b"\x88\x00\x88\x00"),
    frame(125, opcode=9),
    frame(126, is_final=False),
    frame(127, opcode=0, mask=b"abcd"),
    frame(65535, opcode=2),
    frame(65536, mask=b"\0\0\0\0"),
    frame(0, opcode=10, mask=b"\x80\x80\x80\x80"),
]


def ends(frames: list[bytes]) -> list[int]:
    return list(itertools.accumulate(map(len, frames)))


@pytest.mark.parametrize("seed", range(40))
def test_frames_end_where_they_end_whatever_pieces_they_come_in(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - it throws dice, and keeps no secret
    frames = dice.choices(FRAMES, k=12)
    data, places = b"".join(frames), set(ends(frames))
    longest = dice.choice([1, 3, 200, 100_000])
    heads, at = FrameHeads(), 0
    # One byte at a time would be long for the largest of them.
    while at < len(data):
        size = dice.randint(1, longest) if longest > 3 or len(data) - at < 4000 else dice.choice([1, 3, 1000])
        piece = data[at : at + size]
        within = [place for place in places if at < place <= at + len(piece)]
        assert heads.follow(piece) == (max(within) - at if within else 0)
        at += len(piece)
        assert heads.is_between == (at in places)
    assert not heads.has_closed


def test_a_head_may_come_byte_by_byte() -> None:
    for one in FRAMES:
        heads = FrameHeads()
        assert heads.is_between
        for place in range(min(len(one), 300)):
            ended = heads.follow(one[place : place + 1])
            assert (ended, heads.is_between) == ((1, True) if place == len(one) - 1 else (0, False))


def test_a_message_is_as_big_as_its_frames_say_before_they_have_come() -> None:
    heads = FrameHeads()
    heads.follow(frame(100, is_final=False))
    heads.follow(frame(50, opcode=9, mask=b"abcd"))
    heads.follow(frame(70_000, opcode=0, is_final=False)[:10])
    assert heads.message_bytes == 70_100
    heads.follow(frame(70_000)[10:])
    heads.follow(frame(2, opcode=0))
    assert heads.message_bytes == 70_102
    heads.follow(frame(3))
    assert heads.message_bytes == 3
    heads.follow(b"\x82\xff" + b"\xff" * 8 + b"mask")
    assert heads.message_bytes == 2**64 - 1
    assert not heads.is_between


def test_a_close_is_seen_and_none_is_seen_in_what_a_message_says() -> None:
    heads = FrameHeads()
    heads.follow(frame(500))
    assert not heads.has_closed
    close = close_frame(1001, "The bridge stops.")
    assert close == b"\x88\x13\x03\xe9The bridge stops."
    assert heads.follow(close[:1]) == 0
    assert not heads.has_closed
    assert heads.follow(close[1:]) == len(close) - 1
    assert (heads.has_closed, heads.is_between) == (True, True)


def test_a_close_is_never_longer_than_a_control_frame_may_be() -> None:
    close = close_frame(1011, "x" * 500)
    assert len(close) == 2 + 125
    assert FrameHeads().follow(close) == len(close)
