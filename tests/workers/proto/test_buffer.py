"""Fields of a message, one by one; an error names the field and the byte, and no value."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from tests.workers.proto.refused import refused
from workers.proto.buffer import MessageReader


def test_fields_are_read_one_after_the_other() -> None:
    reader = MessageReader(
        b"\xff" + b"\xff\xfe" + b"\xff\xff\xff\xfd" * 2 + b"\xff" * 7 + b"\xfc" + b"\0" * 7 + b"\5"
        b"\0\2" + "é\0".encode() + b"\0\0\0\3a\0b" + b"O" + b"\0"
    )
    assert reader.byte("a") == 255
    assert reader.int16("b") == -2
    assert (reader.int32("c"), reader.uint32("d")) == (-3, 2**32 - 3)
    assert (reader.int64("e"), reader.lsn("f")) == (-4, LSN(5))
    assert reader.count(2, "g") == 2
    assert reader.string("h") == "é"
    assert reader.bytes("i") == b"a\0b"
    assert reader.one_of("KO", "j", "error") == "O"
    reader.flags()
    reader.end()


@pytest.mark.parametrize(
    "read",
    [
        lambda reader: reader.byte("field"),
        lambda reader: reader.int16("field"),
        lambda reader: reader.int32("field"),
        lambda reader: reader.uint32("field"),
        lambda reader: reader.int64("field"),
        lambda reader: reader.uint64("field"),
    ],
)
def test_a_field_beyond_the_end_is_refused_at_its_byte(
    read: Callable[[MessageReader], int],
) -> None:
    reader = MessageReader(b"x", "test message")
    reader.byte("first")
    with pytest.raises(ProtocolViolation) as caught:
        read(reader)
    assert str(caught.value.detail).startswith("At byte 1 of the test message the field was")


@pytest.mark.parametrize(
    ("data", "primary", "detail"),
    [
        (
            b"B" + bytes(7),
            "insufficient data left in message",
            "At byte 1 of the begin message the final_lsn was expected (length 8); bytes left: 7.",
        ),
        (
            b"B" + bytes(20),
            "final_lsn not set in begin message",
            "At byte 1 of the begin message the final_lsn was expected (not 0/0).",
        ),
        (
            b"C\5",
            "unrecognized flags 5 in commit message",
            "At byte 1 of the commit message the byte of flags was expected (0).",
        ),
        (
            b"T\xff\xff\xff\xff\0",
            "negative relation count in truncate message",
            "At byte 1 of the truncate message the relation count was expected (0 or more).",
        ),
        (
            b"D\0\0\x40\1N\0\0",
            "expected action 'O' or 'K'",
            'At byte 5 of the delete message the action was expected ("O" or "K").',
        ),
        (
            b"Y\0\0\x40\1app",
            "invalid string in message",
            "At byte 5 of the type message the schema name was expected (with a NUL at its end).",
        ),
        (
            b"Y\0\0\x40\1\0\xff\0",
            "invalid string in message",
            "At byte 6 of the type message the type name was expected (in UTF-8).",
        ),
        (
            b"I\0\0\x40\1N\0\1t\0\0\0\x09seven",
            "insufficient data left in message",
            "At byte 9 of the insert message the length of a value was expected (0 or more); "
            "bytes left behind it: 5.",
        ),
    ],
    ids=lambda part: part[:30] if isinstance(part, str) else None,
)
def test_an_error_says_what_was_expected_at_which_byte(
    data: bytes, primary: str, detail: str
) -> None:
    found = refused(data)
    assert (found.primary, found.detail) == (primary, detail)


@pytest.mark.parametrize("value", [b"sk4h", b"tk4hZ", b"t\xff\xff\xff\xff"])
def test_an_error_never_says_what_may_be_of_a_value(value: bytes) -> None:
    """A length gone wrong, and the reader goes on inside of the value."""
    row = b"\0\2t\0\0\0\0" + value
    for data in (b"I\0\0\x40\1N" + row, b"U\0\0\x40\1K\0\1t\0\0\0\0" + value):
        said = refused(data).report()
        assert "k4h" not in said
        assert not re.search(r"\b(115|116|1798596698|4294967295|-1)\b", said), said
