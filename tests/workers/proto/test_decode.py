"""Every message, whole, cut short anywhere, with bytes after its end, and broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errcodes import ProtocolViolation
from tests.workers.proto.cases import BROKEN, CASES, ENVELOPES, truncated
from tests.workers.proto.refused import refused
from workers.proto import decode, encode
from workers.proto.messages import Message, PrimaryKeepalive, XLogData

IDS = [name for name, _, _ in CASES]


@pytest.mark.parametrize(("name", "value", "data"), CASES, ids=IDS)
def test_bytes_become_the_message(name: str, value: Message, data: bytes) -> None:
    assert decode.message(data) == value


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


def test_an_unknown_type_is_named_as_postgresql_names_it() -> None:
    with pytest.raises(ProtocolViolation) as caught:
        decode.message(b"Z")
    assert caught.value.primary == 'invalid logical replication message type "Z (90)"'
    with pytest.raises(ProtocolViolation) as caught:
        decode.message(b"\x01")
    assert caught.value.primary == 'invalid logical replication message type "??? (1)"'


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


STREAMED = [case for case in CASES if case[2][:1] in b"IUDTRYMO"]


@pytest.mark.parametrize(("name", "value", "data"), STREAMED, ids=[case[0] for case in STREAMED])
def test_a_streamed_message_has_an_id_behind_its_type(
    name: str, value: Message, data: bytes
) -> None:
    """An Origin has none."""
    raw = encode.streamed(value, 740)
    xid = None if data[:1] == b"O" else 740
    assert decode.streamed(raw) == (xid, value)
    if xid is not None:
        assert raw == data[:1] + b"\0\0\2\xe4" + data[1:]
        with pytest.raises(ProtocolViolation, match="invalid transaction ID"):
            decode.streamed(data[:1] + bytes(4) + data[1:])


@pytest.mark.parametrize("data", [case[2] for case in CASES if case[2][:1] not in b"IUDTRYMO"])
def test_a_part_of_a_transaction_has_no_other_messages(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="out of order"):
        decode.streamed(data)
