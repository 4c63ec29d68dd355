"""The kinds of messages, and values that compare by their fields."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from tests.workers.proto.cases import CASES, ENVELOPES
from workers.proto import decode
from workers.proto.messages import LogicalRepMsgType, Message

VALUES = [*CASES, *ENVELOPES]


def test_every_message_type_has_a_reader_and_a_case() -> None:
    assert set(decode.READERS) == set(LogicalRepMsgType)
    assert {data[0] for _, _, data in CASES} == set(LogicalRepMsgType)


@pytest.mark.parametrize(("name", "value", "data"), VALUES, ids=[name for name, _, _ in VALUES])
def test_a_message_equals_a_message_of_the_same_fields_and_cannot_change(
    name: str, value: Message, data: bytes
) -> None:
    names = [field.name for field in fields(value)]
    assert type(value)(*(getattr(value, name) for name in names)) == value
    assert hash(value) == hash(type(value)(*(getattr(value, name) for name in names)))
    with pytest.raises((FrozenInstanceError, TypeError)):  # without a field it has no place for one
        setattr(value, names[0] if names else "field", None)
    assert not hasattr(value, "__dict__")
