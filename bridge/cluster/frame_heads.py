"""Where a WebSocket's frames begin and end in the bytes of one direction, by their heads alone (RFC 6455, 5.2)."""

from __future__ import annotations

from typing import Final

_FINAL, _MASKED = 0x80, 0x80
_OPCODE, _LENGTH = 0x0F, 0x7F
_CONTINUATION, _CLOSE, _CONTROL = 0x0, 0x8, 0x8
_MASK_BYTES: Final = 4
#: The length says that so many more bytes of the head have it.
_LONGER: Final = {126: 2, 127: 8}
#: A close frame's payload may have so many bytes, its code's two among them.
_MAX_CLOSE_BYTES = 125


class FrameHeads:
    """Feed it everything that is sent in one direction, in order."""

    __slots__ = ("_head", "_left", "has_closed", "message_bytes")

    def __init__(self) -> None:
        #: A head that has not come whole.
        self._head = b""
        #: Bytes of the frame under way that have not come.
        self._left = 0
        #: Whether a close frame has begun.
        self.has_closed = False
        #: The size of the message under way, or of the last one, as far as its frames say.
        self.message_bytes = 0

    @property
    def is_between(self) -> bool:
        """Whether a frame may follow."""
        return not self._left and not self._head

    def follow(self, data: bytes) -> int:
        """How many of these bytes end a frame and everything before it; 0 where none ends in them."""
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
        """Where the payload of the frame that begins here begins, and `_left` its length; 0 for half a head."""
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
    """A close as a server sends it; what is too long of an ASCII `reason` is left out."""
    payload = (code.to_bytes(2, "big") + reason.encode("ascii"))[:_MAX_CLOSE_BYTES]
    return bytes((_FINAL | _CLOSE, len(payload))) + payload
