"""Messages become the bytes that PostgreSQL sends, and the bytes that it reads."""

from __future__ import annotations

import pytest

from catalog.pg_lsn import LSN
from tests.workers.proto.cases import CASES
from workers.proto import encode
from workers.proto.messages import Message

IDS = [name for name, _, _ in CASES]


@pytest.mark.parametrize(("name", "value", "data"), CASES, ids=IDS)
def test_the_message_becomes_the_bytes(name: str, value: Message, data: bytes) -> None:
    assert encode.message(value) == data


def test_the_standby_status_update_is_laid_out_as_the_manual_says() -> None:
    data = encode.standby_status_update(LSN(1), LSN(2), LSN(3), 4, True)
    assert data == b"r" + b"".join(value.to_bytes(8, "big") for value in (1, 2, 3, 4)) + b"\1"
