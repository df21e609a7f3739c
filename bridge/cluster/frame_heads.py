"""Track where a WebSocket's frames start and end in one direction, by their heads alone (RFC 6455, 5.2)."""

from __future__ import annotations

from typing import Final

_FINAL, _MASKED = 0x80, 0x80
_OPCODE, _LENGTH = 0x0F, 0x7F
_CONTINUATION, _CLOSE, _CONTROL = 0x0, 0x8, 0x8
_MASK_BYTES: Final = 4
#: Length codes, with the number of further bytes that hold the actual length.
_LONGER: Final = {126: 2, 127: 8}
#: Largest payload of a close frame, including the two bytes of its code.
_MAX_CLOSE_BYTES = 125


class FrameHeads:
    """Frame tracker of one direction. Feed it all bytes in order."""

    __slots__ = ("_head", "_left", "has_closed", "message_bytes")

    def __init__(self) -> None:
        #: An incomplete frame head.
        self._head = b""
        #: Bytes missing from the current frame.
        self._left = 0
        #: Whether a close frame has started.
        self.has_closed = False
        #: Size of the current message, or of the last one, from its frames' heads.
        self.message_bytes = 0

    @property
    def is_between(self) -> bool:
        """Return whether the position is between two frames."""
        return not self._left and not self._head

    def follow(self, data: bytes) -> int:
        """Return the number of these bytes up to the last end of a frame; 0 if no frame ends in them."""
        before = len(self._head)
        if before:
            data, self._head = self._head + data, b""
        size = len(data)
        if self._left > size:
            self._left -= size
            return 0
        at = ended = self._left
        while at < size:
            begin = self._begin(data, at, size)
            if not begin:
                self._head = data[at:]
                self._left = 0
                return max(ended - before, 0)
            at = begin + self._left
            if at <= size:
                ended = at
        self._left = at - size
        return max(ended - before, 0)

    def _begin(self, data: bytes, at: int, size: int) -> int:
        """Return the start of the payload of the frame at `at` and store its length in `_left`; 0 for half a head."""
        begin = at + 2
        if begin > size:
            return 0
        length = data[at + 1] & _LENGTH
        if length in _LONGER:
            begin += _LONGER[length]
            if begin > size:
                return 0
            length = int.from_bytes(data[at + 2 : begin], "big")
        if data[at + 1] & _MASKED:
            begin += _MASK_BYTES
            if begin > size:
                return 0
        opcode = data[at] & _OPCODE
        if opcode == _CLOSE:
            self.has_closed = True
        elif opcode < _CONTROL:
            self.message_bytes = length + (self.message_bytes if opcode == _CONTINUATION else 0)
        self._left = length
        return begin


def close_frame(code: int, reason: str) -> bytes:
    """Return a close frame as a server sends it, with the ASCII `reason` cut to the limit."""
    payload = (code.to_bytes(2, "big") + reason.encode("ascii"))[:_MAX_CLOSE_BYTES]
    return bytes((_FINAL | _CLOSE, len(payload))) + payload
