"""Errors of framing name the place, the expectation, and never a value."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.errcodes import PROTOCOL_VIOLATION, ProtocolViolation
from tests.workers.columnar.records import record
from workers.columnar import frame_errors
from workers.columnar.frame_errors import check

PREPARED = record(b"b" + (bytes(7) + b"\1") * 3 + bytes(4) + b"secret\0")
BUF = np.frombuffer(record(b"B" + bytes(20)) + record(b"?secret") + PREPARED, np.uint8)


def test_no_error_is_no_error() -> None:
    check(BUF, np.array([0, 0]))


@pytest.mark.parametrize(
    ("code", "at", "primary"),
    [
        (frame_errors.CUT_OFF, 3, "insufficient data left in message"),
        (frame_errors.OUT_OF_ORDER, 3, "message sent out of order"),
        (frame_errors.WRONG_COMMIT, 3, "incorrect commit LSN"),
        (frame_errors.UNFINISHED, 3, "ends without a commit message"),
        (frame_errors.MALFORMED, 0, "final_lsn not set in begin message"),
        (frame_errors.MALFORMED, 25, "invalid logical replication message type"),
        (frame_errors.MALFORMED, 36, "message sent out of order"),
    ],
)
def test_each_code_has_its_words_and_the_place(code: int, at: int, primary: str) -> None:
    with pytest.raises(ProtocolViolation, match=primary) as caught:
        check(BUF, np.array([code, at]))
    assert caught.value.code == PROTOCOL_VIOLATION
    assert str(caught.value.detail).endswith(f"at byte {at} of the spool.")
    assert "secret" not in f"{caught.value.primary} {caught.value.detail}"
