"""Times and memory sizes, as PostgreSQL's settings have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errcodes import InvalidParameterValue
from config.guc import Settings, stored_settings
from config.quantities import (
    format_duration,
    format_memory,
    parse_duration,
    parse_memory,
    pretty_size,
    stored_spool_max_size,
)


@pytest.mark.parametrize(
    ("text", "base", "seconds"),
    [
        ("5s", "ms", 5.0),
        ("1ms", "ms", 0.001),
        (" 2 min ", "ms", 120.0),
        ("1.5h", "s", 5400.0),
        ("1d", "s", 86400.0),
        (5000, "ms", 5.0),
        (10, "s", 10.0),
        ("60", "s", 60.0),
        ("1500us", "ms", 0.002),
        ("0", "ms", 0.0),
    ],
)
def test_duration(text: str | int, base: str, seconds: float) -> None:
    assert parse_duration(text, base) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MB", 2**26), (64, 2**16), ("2GB", 2**31), ("1024B", 1024), ("1TB", 2**40)],
)
def test_memory(text: str | int, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (10239, "10239 bytes"),
        (10240, "10 kB"),
        (2**20, "1024 kB"),
        (10 * 2**20, "10 MB"),
        (16 * 2**30 + 2**25, "16 GB"),
        (2**50, "1024 TB"),
    ],
)
def test_a_size_as_pg_size_pretty_prints_it(size: int, text: str) -> None:
    assert pretty_size(size) == text


@pytest.mark.parametrize("text", ["", "s", "-1s", "5 apples", "1e3s", "0x10", "5S"])
def test_bad_duration(text: str) -> None:
    with pytest.raises(InvalidParameterValue, match="invalid value for parameter") as caught:
        parse_duration(text)
    assert str(caught.value.hint).endswith(
        'units for this parameter are "us", "ms", "s", "min", "h", and "d".'
    )


@pytest.mark.parametrize(("base", "example"), [("s", "5s"), ("ms", "5s"), ("kB", "64MB")])
def test_text_that_is_no_quantity_has_a_remedy(base: str, example: str) -> None:
    parse = parse_memory if base == "kB" else parse_duration
    with pytest.raises(InvalidParameterValue) as caught:
        parse("soon", base, "a_setting")
    assert str(caught.value.hint).startswith(f'Write a number with a unit, such as "{example}".')


def test_unknown_unit_names_the_known_ones() -> None:
    with pytest.raises(InvalidParameterValue) as caught:
        parse_memory("5mb", name="spool_memory")
    assert caught.value.primary == 'invalid value for parameter "spool_memory": "5mb"'
    assert caught.value.hint == (
        'Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".'
    )


@given(st.integers(0, 2**31 - 1))
def test_show_is_read_back(value: int) -> None:
    assert parse_duration(format_duration(value / 1000)) == value / 1000
    assert parse_memory(format_memory(value * 1024)) == value * 1024


@pytest.mark.parametrize("settings", [{}, {"spool_max_size": "2GB"}, {"spool_max_size": 4096}])
def test_the_size_of_the_spool_is_read_without_the_model(settings: dict[str, str | int]) -> None:
    stored = {"settings": settings}
    assert stored_spool_max_size(stored) == stored_settings(stored).spool_max_size
    assert stored_spool_max_size({}) == Settings().spool_max_size
