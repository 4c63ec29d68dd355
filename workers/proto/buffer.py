"""Reading a message field by field: ``pq_getmsg…`` of PostgreSQL's ``pqformat.c``.

Every read is checked against what is left; running out is 08P01 with what was expected, never an
``IndexError``. Integers are big-endian, strings end in NUL and are UTF-8.
"""

from __future__ import annotations

import struct
from typing import Final

from catalog.errcodes import ProtocolViolation

_INT16: Final = struct.Struct("!h")
_INT32: Final = struct.Struct("!i")
_UINT32: Final = struct.Struct("!I")
_INT64: Final = struct.Struct("!q")
_UINT64: Final = struct.Struct("!Q")


class MessageReader:
    """A cursor over one message's bytes."""

    __slots__ = ("_data", "_position", "what")

    def __init__(self, data: bytes, what: str = "message") -> None:
        self._data = data
        self._position = 0
        self.what = what

    def _take(self, count: int, field: str) -> bytes:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise ProtocolViolation(
                "insufficient data left in message",
                detail=f"A {self.what} needs {count} bytes for {field} at byte "
                f"{self._position}; {len(self._data) - self._position} are left.",
            )
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def byte(self, field: str) -> int:
        """``pq_getmsgbyte``: 0 to 255."""
        return self._take(1, field)[0]

    def int16(self, field: str) -> int:
        """A signed 16-bit integer."""
        value: int = _INT16.unpack(self._take(2, field))[0]
        return value

    def int32(self, field: str) -> int:
        """A signed 32-bit integer."""
        value: int = _INT32.unpack(self._take(4, field))[0]
        return value

    def uint32(self, field: str) -> int:
        """An unsigned 32-bit integer: an oid or a transaction id."""
        value: int = _UINT32.unpack(self._take(4, field))[0]
        return value

    def int64(self, field: str) -> int:
        """A signed 64-bit integer: a time in microseconds since 2000-01-01."""
        value: int = _INT64.unpack(self._take(8, field))[0]
        return value

    def uint64(self, field: str) -> int:
        """An unsigned 64-bit integer: an LSN."""
        value: int = _UINT64.unpack(self._take(8, field))[0]
        return value

    def string(self, field: str) -> str:
        """``pq_getmsgstring``: up to the NUL, as UTF-8."""
        end = self._data.find(b"\0", self._position)
        if end < 0:
            raise ProtocolViolation(
                "invalid string in message", detail=f"{field} of a {self.what} has no end."
            )
        raw = self._data[self._position : end]
        self._position = end + 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ProtocolViolation(
                "invalid string in message", detail=f"{field} of a {self.what} is not UTF-8."
            ) from None

    def bytes(self, count: int, field: str) -> bytes:
        """``pq_getmsgbytes``."""
        return self._take(count, field)

    def flags(self, field: str) -> None:
        """A flags byte that must be zero."""
        if value := self.byte(field):
            raise ProtocolViolation(f"unrecognized flags {value} in {self.what} message")

    def end(self) -> None:
        """``pq_getmsgend``: nothing may be left."""
        if self._position != len(self._data):
            raise ProtocolViolation(
                "invalid message format",
                detail=f"{len(self._data) - self._position} bytes are left after a {self.what}.",
            )
