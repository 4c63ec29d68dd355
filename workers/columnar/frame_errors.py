"""The errors of framing: a code from a kernel becomes PostgreSQL's error for broken messages.

A kernel reports a code and the offset of the record. ``check`` turns both into a
``ProtocolViolation`` that carries the offset, and never a value. ``workers.proto.decode`` reads a
broken message again, to name the expected field and the byte.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from catalog.errcodes import ProtocolViolation
from workers.columnar.tuples import Bytes
from workers.proto import decode

# The errors that the kernels report: (code, offset of the record).
MALFORMED: Final = 1
CUT_OFF: Final = 2
OUT_OF_ORDER: Final = 3
WRONG_COMMIT: Final = 4
UNFINISHED: Final = 5
_ERRORS: Final = {
    CUT_OFF: ("insufficient data left in message", "The record of a message was cut off."),
    OUT_OF_ORDER: (
        "logical replication message sent out of order",
        "Outside of a transaction a begin message was expected; inside, any other.",
    ),
    WRONG_COMMIT: (
        "incorrect commit LSN in commit message",
        "At byte 2 of the commit message the final_lsn of the begin message was expected.",
    ),
    UNFINISHED: (
        "transaction ends without a commit message",
        "Behind the last message a commit message was expected.",
    ),
}
"""Primary and DETAIL of the errors, except malformed messages."""

_STRICTER: Final = {
    ord("B"): (
        "invalid final_lsn in begin message",
        "At byte 1 of the begin message the final_lsn was expected (below 80000000/0).",
    ),
    ord("C"): (
        "invalid end_lsn in commit message",
        "At byte 10 of the commit message the end_lsn was expected (behind the commit_lsn).",
    ),
}
"""Primary and DETAIL of fields that only framing refuses.

Messages that are whole, and that no batch has, are out of order: those of prepared transactions.
"""


def check(buf: Bytes, state: npt.NDArray[np.int64]) -> None:
    """Raise the error that a kernel reported, if any."""
    code, offset = int(state[0]), int(state[1])
    if not code:
        return
    primary, detail = _malformed(buf, offset) if code == MALFORMED else _ERRORS[code]
    place = f"The message lies at byte {offset} of the spool."
    raise ProtocolViolation(primary, detail=f"{detail} {place}")


def _malformed(buf: Bytes, offset: int) -> tuple[str, str]:
    """Read the message of the record at ``offset`` again; return primary and DETAIL."""
    length = int.from_bytes(buf[offset : offset + 4].tobytes(), "little")
    raw = buf[offset + 4 : offset + 4 + length].tobytes()
    try:
        decode.message(raw)
    except ProtocolViolation as error:
        return error.primary, str(error.detail)
    return _STRICTER.get(raw[0], _ERRORS[OUT_OF_ORDER])
