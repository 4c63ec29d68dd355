"""A position in the publisher's write-ahead log: one type, one parse, one format.

PostgreSQL's ``pg_lsn``. An LSN is "last byte + 1" wherever the protocol reports progress,
and the *start* of a commit record in ``final_lsn`` and ``commit_lsn``; the two meanings are never
mixed (see ``docs/reliability.md``).
"""

from __future__ import annotations

import re
from typing import Final

from catalog.errcodes import InvalidTextRepresentation

_TEXT: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class LSN(int):
    """An unsigned 64-bit WAL position; compares and hashes as an integer."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> LSN:
        """Read ``X/X``; raises 22P02 with PostgreSQL's wording for any other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidTextRepresentation(f'invalid input syntax for type pg_lsn: "{text}"')
        high, low = match.groups()
        return cls((int(high, 16) << 32) | int(low, 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


InvalidXLogRecPtr: Final = LSN(0)
"""0/0: "no position"; PostgreSQL's name for it."""

MAX_LSN: Final = LSN(2**64 - 1)
"""The highest position."""
