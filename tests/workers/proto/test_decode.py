"""Every message, whole, cut short anywhere, with bytes after its end, and broken."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errcodes import ProtocolViolation
from tests.workers.proto.cases import BROKEN, CASES, ENVELOPES, truncated
from workers.proto import decode, encode
from workers.proto.messages import LogicalRepMsgType, Message, PrimaryKeepalive, XLogData

IDS = [name for name, _, _ in CASES]


@pytest.mark.parametrize(("name", "value", "data"), CASES, ids=IDS)
def test_bytes_become_the_message(name: str, value: Message, data: bytes) -> None:
    assert decode.message(data) == value


def refused(data: bytes) -> ProtocolViolation:
    """The error, which says at which byte what was expected."""
    with pytest.raises(ProtocolViolation) as caught:
        decode.message(data)
    assert caught.value.code == "08P01"
    said = re.match(
        r"At byte (\d+) of the [a-z ]+ the .+ was expected.*\.$", str(caught.value.detail)
    )
    assert said is not None, caught.value.detail
    assert int(said[1]) <= len(data)
    return caught.value


@pytest.mark.parametrize(("name", "value", "data"), CASES, ids=IDS)
def test_a_message_cut_short_anywhere_is_a_protocol_violation(
    name: str, value: Message, data: bytes
) -> None:
    for short in truncated(data):
        refused(short)


@pytest.mark.parametrize(("name", "value", "data"), CASES, ids=IDS)
def test_bytes_after_a_message_are_a_protocol_violation(
    name: str, value: Message, data: bytes
) -> None:
    detail = refused(data + b"\0").detail
    assert f"At byte {len(data)} of the " in str(detail)
    assert str(detail).endswith(" the end was expected; bytes left: 1.")


@pytest.mark.parametrize(("name", "data"), BROKEN, ids=[name for name, _ in BROKEN])
def test_what_is_not_the_protocol_is_refused(name: str, data: bytes) -> None:
    refused(data)


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


def test_an_unknown_type_is_named_as_postgresql_names_it() -> None:
    with pytest.raises(ProtocolViolation) as caught:
        decode.message(b"Z")
    assert caught.value.primary == 'invalid logical replication message type "Z (90)"'
    with pytest.raises(ProtocolViolation) as caught:
        decode.message(b"\x01")
    assert caught.value.primary == 'invalid logical replication message type "??? (1)"'


def test_every_message_type_has_a_reader_and_a_case() -> None:
    assert set(decode.READERS) == set(LogicalRepMsgType)
    assert {data[0] for _, _, data in CASES} == set(LogicalRepMsgType)


@pytest.mark.parametrize(
    ("name", "value", "data"), ENVELOPES, ids=[name for name, _, _ in ENVELOPES]
)
def test_envelopes_go_both_ways_and_may_not_be_cut(
    name: str, value: XLogData | PrimaryKeepalive, data: bytes
) -> None:
    assert decode.copy_data(data) == value
    assert encode.copy_data(value) == data
    header = 25 if isinstance(value, XLogData) else len(data)
    for short in truncated(data[:header]):
        with pytest.raises(ProtocolViolation):
            decode.copy_data(short)


def test_a_keepalive_may_not_go_on() -> None:
    with pytest.raises(ProtocolViolation):
        decode.copy_data(ENVELOPES[1][2] + b"\0")


def test_an_unknown_envelope_is_ignored_and_an_empty_one_is_not() -> None:
    assert decode.copy_data(b"x123") is None
    with pytest.raises(ProtocolViolation):
        decode.copy_data(b"")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_a_protocol_violation(data: bytes) -> None:
    try:
        value = decode.message(data)
    except ProtocolViolation:
        return
    assert decode.message(encode.message(value)) == value
