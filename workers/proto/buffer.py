"""Read a message field by field: ``pq_getmsg…`` of PostgreSQL's ``pqformat.c``.

Every read is checked: the DETAIL of 08P01 names the expected field and the byte offset, and never
the bytes found, because they may belong to a row's value. Integers are big-endian, strings end in
NUL and are UTF-8.
"""

from __future__ import annotations

import struct
from typing import Final

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN, InvalidXLogRecPtr

_INT16: Final = struct.Struct("!h")
_INT32: Final = struct.Struct("!i")
_UINT32: Final = struct.Struct("!I")
_INT64: Final = struct.Struct("!q")
_UINT64: Final = struct.Struct("!Q")


class MessageReader:
    """A cursor over the bytes of a message; errors call the message ``what``."""

    __slots__ = ("_data", "_position", "what")

    def __init__(self, data: bytes, what: str = "message") -> None:
        self._data = data
        self._position = 0
        self.what = what

    def _take(self, count: int, field: str) -> bytes:
        position, left = self._position, len(self._data) - self._position
        if count > left:
            raise ProtocolViolation(
                "insufficient data left in message",
                detail=f"{self._where(position, field)} (length {count}); bytes left: {left}.",
            )
        self._position += count
        return self._data[position : self._position]

    def _where(self, position: int, field: str) -> str:
        return f"At byte {position} of the {self.what} the {field} was expected"

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

    def xid(self, field: str) -> int:
        """The id of a streamed transaction; 0 is an error."""
        position = self._position
        xid = self.uint32(field)
        if not xid:
            raise ProtocolViolation(
                "invalid transaction ID in streamed replication transaction",
                detail=f"{self._where(position, field)} (not 0).",
            )
        return xid

    def int64(self, field: str) -> int:
        """A signed 64-bit integer: a time in microseconds since 2000-01-01."""
        value: int = _INT64.unpack(self._take(8, field))[0]
        return value

    def uint64(self, field: str) -> int:
        """An unsigned 64-bit integer: an LSN."""
        value: int = _UINT64.unpack(self._take(8, field))[0]
        return value

    def lsn(self, field: str) -> LSN:
        """A position; 0/0 is an error."""
        position = self._position
        lsn = LSN(self.uint64(field))
        if lsn == InvalidXLogRecPtr:
            raise ProtocolViolation(
                f"{field} not set in {self.what}",
                detail=f"{self._where(position, field)} (not 0/0).",
            )
        return lsn

    def count(self, size: int, field: str) -> int:
        """A count: a signed integer of 2 or 4 bytes."""
        position = self._position
        count = self.int16(field) if size == 2 else self.int32(field)
        if count < 0:
            raise ProtocolViolation(
                f"negative {field} in {self.what}",
                detail=f"{self._where(position, field)} (0 or more).",
            )
        return count

    def one_of(self, letters: str, field: str, primary: str) -> str:
        """A byte out of a set of letters; ``primary`` is the error about any further byte."""
        position = self._position
        found = chr(self.byte(field))
        if found not in letters:
            allowed = " or ".join(f'"{letter}"' for letter in letters)
            raise ProtocolViolation(primary, detail=f"{self._where(position, field)} ({allowed}).")
        return found

    def string(self, field: str) -> str:
        """``pq_getmsgstring``: up to the NUL, as UTF-8."""
        position = self._position
        end = self._data.find(b"\0", position)
        if end < 0:
            raise ProtocolViolation(
                "invalid string in message",
                detail=f"{self._where(position, field)} (with a NUL at its end).",
            )
        self._position = end + 1
        try:
            return self._data[position:end].decode()
        except UnicodeDecodeError:
            raise ProtocolViolation(
                "invalid string in message", detail=f"{self._where(position, field)} (in UTF-8)."
            ) from None

    def bytes(self, field: str) -> bytes:
        """``pq_getmsgbytes``, after a count.

        The error does not contain the count: in a broken message the count may be bytes of a value.
        """
        position = self._position
        count = self.int32(f"length of {field}")
        left = len(self._data) - self._position
        if not 0 <= count <= left:
            where = self._where(position, f"length of {field}")
            raise ProtocolViolation(
                "insufficient data left in message",
                detail=f"{where} (0 or more); bytes left behind it: {left}.",
            )
        return self._take(count, field)

    def flags(self) -> None:
        """A byte of flags; the protocol defines no flags yet, so the byte must be zero."""
        position = self._position
        if value := self.byte("byte of flags"):
            raise ProtocolViolation(
                f"unrecognized flags {value} in {self.what}",
                detail=f"{self._where(position, 'byte of flags')} (0).",
            )

    def end(self) -> None:
        """``pq_getmsgend``: raise 08P01 if bytes are left."""
        if left := len(self._data) - self._position:
            raise ProtocolViolation(
                "invalid message format",
                detail=f"{self._where(self._position, 'end')}; bytes left: {left}.",
            )
