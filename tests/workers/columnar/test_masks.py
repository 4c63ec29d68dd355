"""Hashes of values: those of hashlib, for every length, type of array and key."""

from __future__ import annotations

import hashlib
import hmac

import pyarrow as pa
import pytest

from workers.columnar.masks import Mask

VALUES = [None if n % 7 == 3 else "aé中😀"[n % 4] * n for n in range(200)]
"""Texts of 0 to 796 bytes: every place of a block's end, and NULLs between."""


def expected(key: bytes | None, value: str | None) -> str | None:
    if value is None:
        return None
    if key is None:
        return hashlib.sha256(value.encode()).hexdigest()
    return hmac.new(key, value.encode(), "sha256").hexdigest()


@pytest.mark.parametrize("type", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize(
    "key", [None, b"k", b"x" * 64, b"y" * 65, b"z" * 200], ids=lambda key: f"{len(key or b'')}"
)
def test_the_hashes_are_those_of_hashlib(type: pa.DataType, key: bytes | None) -> None:
    values = pa.array(VALUES, type)
    hashed = Mask(key).hashed(values)
    hashed.validate(full=True)
    assert hashed.type == type
    assert hashed.to_pylist() == [expected(key, value) for value in VALUES]


def test_a_part_of_an_array_and_none() -> None:
    mask = Mask(b"key")
    part = pa.array(VALUES).slice(10, 20)
    assert mask.hashed(part).to_pylist() == [expected(b"key", each) for each in VALUES[10:30]]
    for empty in (pa.array([], pa.string()), part.slice(0, 0), pa.nulls(3, pa.string())):
        assert mask.hashed(empty).to_pylist() == [None] * len(empty)


def test_nothing_tells_the_key() -> None:
    mask = Mask(b"planted-key")
    assert repr(mask) == "Mask(keyed)"
    assert repr(Mask()) == "Mask()"
    assert not [each for each in vars(mask).values() if b"planted-key" in repr(each).encode()]
