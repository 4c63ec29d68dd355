"""Positions: one parse, one format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errcodes import InvalidTextRepresentation
from catalog.pg_lsn import LSN, InvalidXLogRecPtr


@given(st.integers(0, 2**64 - 1))
def test_text_and_back(position: int) -> None:
    assert LSN.parse(str(LSN(position))) == position


def test_the_text_is_postgresql_s() -> None:
    assert str(LSN(0x1A2B3C4D5E)) == "1A/2B3C4D5E"
    assert f"{LSN(255)}" == repr(LSN(255)) == "0/FF"
    assert LSN.parse("0/ff") == LSN(255)
    assert str(InvalidXLogRecPtr) == "0/0"


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "0/G", "123456789/0", "0/123456789", "0/0 "])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidTextRepresentation, match="invalid input syntax for type pg_lsn"):
        LSN.parse(text)


def test_positions_are_ordered_as_numbers() -> None:
    assert LSN.parse("1/0") > LSN.parse("0/FFFFFFFF")
