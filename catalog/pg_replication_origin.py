"""``pg_replication_origin``: the position up to which a remote stream is applied.

An origin's ``remote_lsn`` is the end LSN of the last transaction that is durable in every table
of the subscription. The publisher is asked to begin there. The LSN in a table's snapshot decides
which transactions the table skips.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from catalog.pg_lsn import LSN, InvalidXLogRecPtr

_TABLE_ORIGIN: Final = re.compile(r"pg_(\d+)_(\d+)")

MAX_REPLICATION_ORIGIN: Final = 65534
"""The highest ``roident``; PostgreSQL keeps ids in 16 bits and reserves 0 and 65535."""


@dataclass(frozen=True, slots=True)
class ReplicationOrigin:
    """An origin and its progress; ``local_lsn`` names the lake commit with the progress.

    ``local_lsn`` is None until the origin advanced for the first time.
    """

    roident: int
    roname: str
    remote_lsn: LSN = InvalidXLogRecPtr
    local_lsn: str | None = None


def origin_name(subid: int, relid: int = 0) -> str:
    """``ReplicationOriginNameForLogicalRep``: ``pg_<subid>``, or ``pg_<subid>_<relid>``."""
    return f"pg_{subid}_{relid}" if relid else f"pg_{subid}"


def table_of_origin(name: str) -> tuple[int, int] | None:
    """(subid, relid) of the origin of a table's synchronisation; None for the remaining origins."""
    found = _TABLE_ORIGIN.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))
