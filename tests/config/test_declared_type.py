"""Types that a user may declare for a lake column."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from config.declared_type import DeclaredType, declared_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", DeclaredType("string")),
        (" Timestamp ", DeclaredType("timestamp")),
        ("binary", DeclaredType("binary")),
        ("decimal(38,9)", DeclaredType("decimal", 38, 9)),
        ("DECIMAL ( 5 , 5 )", DeclaredType("decimal", 5, 5)),
        ("decimal(1,0)", DeclaredType("decimal", 1, 0)),
    ],
)
def test_a_type(text: str, expected: DeclaredType) -> None:
    assert declared_type(text) == expected
    assert declared_type(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("text", "42704"),
        ("decimal", "42704"),
        ("decimal(5)", "42704"),
        ("string(5,1)", "42704"),
        ("uuid(1,1)", "42704"),
        ("", "42704"),
        ("uuid", "0A000"),
        ("variant", "0A000"),
        ("decimal(39,0)", "22023"),
        ("decimal(0,0)", "22023"),
        ("decimal(5,6)", "22023"),
    ],
)
def test_another_word_is_refused_with_what_is_possible(text: str, sqlstate: str) -> None:
    with pytest.raises(ReplicationError) as caught:
        declared_type(text)
    assert caught.value.code == sqlstate
    assert caught.value.hint
