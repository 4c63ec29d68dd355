"""Text to values: exactly what PostgreSQL printed, or unrepresentable."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workers.columnar.text_values import Unrepresentable, typed

NAIVE = pa.timestamp("us")
ZONED = pa.timestamp("us", "UTC")
MONEY = pa.decimal128(12, 2)
TEXTS = pa.list_(pa.string())


def read(texts: list[str | None], type_: pa.DataType, **how: bool) -> list[Any]:
    """Typed, as Python; the same for both string types, sliced or not."""
    values = typed(pa.array(texts, pa.string()), type_, **how)
    values.validate(full=True)
    assert values.type == type_
    assert len(values) == len(texts)
    for strings in (
        pa.array(texts, pa.large_string()),
        pa.array(["x", None, *texts, "x"], pa.string()).slice(2, len(texts)),
    ):
        other = typed(strings, type_, **how)
        other.validate(full=True)
        assert repr(other.to_pylist()) == repr(values.to_pylist())
    found: list[Any] = values.to_pylist()
    return found


GOOD: list[tuple[pa.DataType, str, Any]] = [
    (pa.bool_(), "t", True),
    (pa.bool_(), "f", False),
    (pa.int8(), "-128", -128),
    (pa.int16(), "-32768", -32768),
    (pa.int32(), "2147483647", 2**31 - 1),
    (pa.int64(), "-9223372036854775808", -(2**63)),
    (pa.float64(), "0.1", 0.1),
    (pa.float64(), "5e-324", 5e-324),
    (pa.float64(), "1.7976931348623157e+308", 1.7976931348623157e308),
    (pa.float64(), "Infinity", math.inf),
    (pa.float64(), "-Infinity", -math.inf),
    (pa.float64(), "-0", -0.0),
    (pa.float32(), "3.4028235e+38", 3.4028234663852886e38),
    (pa.float32(), "1e-45", 1.401298464324817e-45),
    (MONEY, "1234567890.12", Decimal("1234567890.12")),
    (MONEY, "-0.50", Decimal("-0.50")),
    (MONEY, "7", Decimal("7.00")),
    (MONEY, "7.5", Decimal("7.50")),
    (MONEY, "7.500", Decimal("7.50")),
    (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
    (pa.decimal128(38, 17), "-0.12345678901234567", Decimal("-0.12345678901234567")),
    (pa.decimal128(38, 37), "9." + "9" * 37 + "0" * 9, Decimal("9." + "9" * 37)),
    (pa.decimal128(38, 38), "0." + "9" * 38, Decimal("0." + "9" * 38)),
    (pa.string(), "", ""),
    (pa.string(), "Größe 𝄞 'x' \\", "Größe 𝄞 'x' \\"),
    (pa.large_string(), "abc", "abc"),
    (pa.binary(), "\\x", b""),
    (pa.binary(), "\\x00ffAb", b"\x00\xff\xab"),
    (pa.binary(), "a\\\\b\\000\\377", b"a\\b\x00\xff"),
    (pa.large_binary(), "\\xdead", b"\xde\xad"),
    (pa.date32(), "0001-01-01", dt.date(1, 1, 1)),
    (pa.date32(), "2024-02-29", dt.date(2024, 2, 29)),
    (pa.date32(), "9999-12-31", dt.date(9999, 12, 31)),
    (NAIVE, "0001-01-01 00:00:00", dt.datetime(1, 1, 1)),
    (NAIVE, "1969-12-31 23:59:59.999999", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (NAIVE, "9999-12-31 23:59:59.999999", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    (NAIVE, "2024-01-01 12:00:00.5", dt.datetime(2024, 1, 1, 12, 0, 0, 500000)),
    (TEXTS, "{}", []),
    (TEXTS, "{a,NULL,b}", ["a", None, "b"]),
    (TEXTS, '{"NULL",NULL,null}', ["NULL", None, "null"]),
    (TEXTS, '{"a,b","{x}","","c d"}', ["a,b", "{x}", "", "c d"]),
    (TEXTS, '{"say \\"hi\\"","back\\\\slash"}', ['say "hi"', "back\\slash"]),
    (TEXTS, '{"\\"",plain,NULL,"NULL"}', ['"', "plain", None, "NULL"]),
    (TEXTS, '{"multi\nline"}', ["multi\nline"]),
    (pa.list_(pa.int32()), "{1,-2,NULL}", [1, -2, None]),
    (pa.list_(pa.bool_()), "{t,f}", [True, False]),
    (pa.list_(pa.float64()), "{1.5,-Infinity}", [1.5, -math.inf]),
    (pa.list_(MONEY), "{1.50,NULL}", [Decimal("1.50"), None]),
    (pa.list_(pa.date32()), "{2024-02-29}", [dt.date(2024, 2, 29)]),
    (pa.list_(NAIVE), '{"2024-01-01 00:00:00.25"}', [dt.datetime(2024, 1, 1, 0, 0, 0, 250000)]),
    (pa.list_(pa.binary()), '{"\\\\xdead",NULL}', [b"\xde\xad", None]),
    (pa.large_list(pa.large_string()), "{a}", ["a"]),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "text", "value"), GOOD, ids=[f"{t} {x!r}" for t, x, _ in GOOD])
def test_a_value_is_read_exactly(type_: pa.DataType, text: str, value: Any) -> None:
    assert repr(read([text], type_)) == repr([value])
    assert repr(read([None, text, None, text], type_)) == repr([None, value, None, value])
    assert repr(read([text, None], type_, null_unrepresentable=True)) == repr([value, None])


ZONES = [
    ("2024-01-01 00:00:00+00", dt.datetime(2024, 1, 1)),
    ("2024-01-01 00:00:00.5+05:30", dt.datetime(2023, 12, 31, 18, 30, 0, 500000)),
    ("1890-01-01 00:00:00-03:30:10", dt.datetime(1890, 1, 1, 3, 30, 10)),
    ("1890-01-01 00:00:00.25+00:19:32", dt.datetime(1889, 12, 31, 23, 40, 28, 250000)),
    ("9999-12-31 23:59:59.999999+00", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("2024-06-01 12:00:00-11", dt.datetime(2024, 6, 1, 23)),
]


@pytest.mark.parametrize(("text", "value"), ZONES)
def test_an_instant_is_read_in_any_zone(text: str, value: dt.datetime) -> None:
    expected = [None, value.replace(tzinfo=dt.UTC)]
    assert read([None, text], ZONED) == expected


def test_a_column_without_a_zone_has_the_instant_in_utc() -> None:
    texts = [text for text, _ in ZONES if text.endswith("+00")]
    values = [value for text, value in ZONES if text.endswith("+00")]
    assert read([None, *texts], NAIVE) == [None, *values]
    with pytest.raises(Unrepresentable):
        read([*texts, "infinity"], NAIVE)


def test_zones_may_be_mixed() -> None:
    texts = [text for text, _ in ZONES]
    assert read([*texts, None], ZONED) == [
        *(value.replace(tzinfo=dt.UTC) for _, value in ZONES),
        None,
    ]


BAD: list[tuple[pa.DataType, str]] = [
    (pa.bool_(), "x"),
    (pa.bool_(), "2"),
    (pa.int16(), "32768"),
    (pa.int32(), "1.0"),
    (pa.int32(), ""),
    (pa.int64(), "9223372036854775808"),
    (pa.float64(), "1e400"),
    (pa.float64(), "-1e400"),
    (pa.float64(), "1e-400"),
    (pa.float64(), "abc"),
    (pa.float32(), "3.5e38"),
    (pa.float32(), "1e-46"),
    (MONEY, "NaN"),
    (MONEY, "Infinity"),
    (MONEY, "-Infinity"),
    (MONEY, "1.005"),
    (MONEY, "0.001"),
    (MONEY, "12345678901.00"),
    (pa.decimal128(38, 0), "9" * 39),
    (pa.decimal128(38, 0), "1" + "0" * 39),
    (pa.decimal128(38, 0), "9" * 60),
    (pa.decimal128(38, 17), "30974951566042245741856.333190399"),
    (pa.binary(), "\\x0"),
    (pa.binary(), "\\xzz"),
    (pa.binary(), "\\x00 ff"),
    (pa.binary(), "a\\9"),
    (pa.date32(), "infinity"),
    (pa.date32(), "-infinity"),
    (pa.date32(), "0044-03-15 BC"),
    (pa.date32(), "10000-01-01"),
    (pa.date32(), "0000-01-01"),
    (pa.date32(), "2023-02-29"),
    (NAIVE, "infinity"),
    (NAIVE, "-infinity"),
    (NAIVE, "0044-03-15 00:00:00 BC"),
    (NAIVE, "294276-12-31 23:59:59"),
    (NAIVE, "2024-01-01 00:00:00+01"),
    (NAIVE, "2024-01-01 00:00:00.1234567"),
    (ZONED, "infinity"),
    (ZONED, "2024-01-01 00:00:00"),
    (ZONED, "0044-03-15 00:00:00+00 BC"),
    (ZONED, "10000-01-01 00:00:00+00"),
    (ZONED, "0001-01-01 00:00:00+05"),
    (ZONED, "9999-12-31 23:00:00-05"),
    (TEXTS, "{{a,b},{c,d}}"),
    (TEXTS, '{{"a"}}'),
    (TEXTS, "[0:1]={a,b}"),
    (TEXTS, "{a"),
    (TEXTS, "a}"),
    (TEXTS, ""),
    (TEXTS, "{a,}"),
    (TEXTS, "{,a}"),
    (TEXTS, '{"a}'),
    (TEXTS, '{a"b"}'),
    (TEXTS, '{"a"b}'),
    (TEXTS, "{ a}"),
    (TEXTS, '{"\\"a}'),
    (TEXTS, '{"a\\"",{b}}'),
    (TEXTS, '{"a\\"",}'),
    (pa.list_(pa.int32()), "{1,x}"),
    (pa.list_(MONEY), "{1.00,NaN}"),
    (pa.list_(pa.date32()), "{infinity}"),
]


@pytest.mark.parametrize(("type_", "text"), BAD, ids=[f"{t} {x!r}" for t, x in BAD])
def test_what_a_type_cannot_hold_is_found_and_named_by_its_row(
    type_: pa.DataType, text: str
) -> None:
    good = next((each for form, each, _ in GOOD if form == type_), ZONES[0][0])
    for texts, index in (
        ([text], 0),
        ([None, good, text], 2),
        ([good, good, None, good, text, good, text], 4),
    ):
        with pytest.raises(Unrepresentable) as caught:
            typed(pa.array(texts, pa.string()), type_)
        assert caught.value.index == index
    nulls = read([good, text, good, text, None], type_, null_unrepresentable=True)
    assert [value is None for value in nulls] == [False, True, False, True, True]


def test_many_unrepresentable_values_become_null_quickly() -> None:
    texts = ["NaN", "1.50", "1.505"] * 100_000
    values = typed(pa.array(texts), MONEY, null_unrepresentable=True)
    assert values.null_count == 200_000
    days = typed(
        pa.array(["infinity", "2024-01-01"] * 100_000), pa.date32(), null_unrepresentable=True
    )
    assert days.null_count == 100_000


FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)
BEFORE = ["-infinity", "0044-03-15{} BC", "12000-03-15{} BC"]
AFTER = ["infinity", "10000-01-01{}", "294276-12-31{}"]
MOMENTS = [
    (pa.date32(), ""),
    (NAIVE, " 00:00:00"),
    (ZONED, " 00:00:00+00"),
    (NAIVE, " 00:00:00+00"),
]


@pytest.mark.parametrize(("type_", "time"), MOMENTS, ids=str)
def test_a_moment_outside_of_the_type_is_the_first_or_the_last_one(
    type_: pa.DataType, time: str
) -> None:
    first: dt.date = FIRST
    last: dt.date = LAST
    if type_ == ZONED:
        first, last = (each.replace(tzinfo=dt.UTC) for each in (FIRST, LAST))
    if type_ == pa.date32():
        first, last = FIRST.date(), LAST.date()
    texts = [each.format(time) for each in (*BEFORE, "2024-02-29{}", *AFTER)]
    found = read([*texts, None], type_, clamp=True)
    assert found == [first] * 3 + read([texts[3]], type_) + [last] * 3 + [None]
    listed = pa.list_(type_)
    array = "{" + ",".join(f'"{text}"' for text in texts) + ",NULL}"
    assert read([array, None, "{}"], listed, clamp=True) == [found, None, []]


def test_an_instant_in_another_zone_is_the_first_or_the_last_one() -> None:
    found = read(["0001-01-01 00:00:00+05", "9999-12-31 23:00:00-05"], ZONED, clamp=True)
    assert [each.replace(tzinfo=None) for each in found] == [FIRST, LAST]


@pytest.mark.parametrize(
    ("type_", "text"),
    [(MONEY, "NaN"), (pa.date32(), "2023-02-29"), (pa.list_(NAIVE), "{{infinity}}")],
    ids=str,
)
def test_what_is_no_moment_is_not_clamped(type_: pa.DataType, text: str) -> None:
    with pytest.raises(Unrepresentable) as caught:
        typed(pa.array([None, text]), type_, clamp=True)
    assert caught.value.index == 1
    assert read([None, text], type_, clamp=True, null_unrepresentable=True) == [None, None]


def test_text_that_is_not_utf8_is_unrepresentable() -> None:
    data = [b"good", b"\xff\xfe", b"fine"]
    offsets = np.cumsum([0, *map(len, data)]).astype(np.int32)
    strings = pa.StringArray.from_buffers(
        3, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(data))
    )
    for type_ in (pa.string(), pa.large_string()):
        with pytest.raises(Unrepresentable) as caught:
            typed(strings, type_)
        assert caught.value.index == 1
        values = typed(strings, type_, null_unrepresentable=True)
        assert values.to_pylist() == ["good", None, "fine"]
    others: list[Any] = [pa.int32(), MONEY, NAIVE, pa.binary(), TEXTS, pa.bool_(), pa.float64()]
    for other in others:
        assert typed(strings, other, null_unrepresentable=True)[1].as_py() is None


def test_an_error_holds_no_value() -> None:
    with pytest.raises(Unrepresentable) as caught:
        typed(pa.array(["secret"]), pa.int32())
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_an_unknown_type_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError):
        typed(pa.array(["x"]), pa.struct([("a", pa.int32())]))


@pytest.mark.parametrize("type_", [form for form, _, _ in GOOD], ids=str)
def test_no_rows_and_only_nulls(type_: pa.DataType) -> None:
    assert read([], type_) == []
    assert read([None, None], type_) == [None, None]


def array_out(elements: list[str | None]) -> str:
    """PostgreSQL's ``array_out`` for one dimension."""
    shown = []
    for element in elements:
        if element is None:
            shown.append("NULL")
        elif (
            element == ""
            or element.upper() == "NULL"
            or any(character in '{}",\\' or character in " \t\n\r\v\f" for character in element)
        ):
            escaped = element.replace("\\", "\\\\").replace('"', '\\"')
            shown.append(f'"{escaped}"')
        else:
            shown.append(element)
    return "{" + ",".join(shown) + "}"


CHARACTERS = st.text(
    st.one_of(st.sampled_from('{},"\\ \tNULnul\nä𝄞'), st.characters(codec="utf-8")).filter(
        lambda character: character != "\0"
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=120)
@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), CHARACTERS), max_size=5))))
@example([["a"], None, ['"'], [], [None]])
def test_arrays_of_text_come_back_as_they_were(arrays: list[list[str | None] | None]) -> None:
    texts = [None if array is None else array_out(array) for array in arrays]
    assert read(texts, TEXTS) == arrays


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=20))), st.booleans())
def test_bytes_come_back_as_they_were(values: list[bytes | None], escape: bool) -> None:
    def shown(value: bytes) -> str:
        if not escape:
            return "\\x" + value.hex()
        return "".join(
            "\\\\" if byte == 0x5C else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
            for byte in value
        )

    texts = [None if value is None else shown(value) for value in values]
    if not escape or not any(value and value.startswith(b"\\x") for value in values):
        assert read(texts, pa.binary()) == values


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(st.none(), st.floats())))
def test_floats_come_back_as_they_were(values: list[float | None]) -> None:
    def shown(value: float) -> str:
        words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return words.get(repr(value), repr(value))

    texts = [None if value is None else shown(value) for value in values]
    assert repr(read(texts, pa.float64())) == repr(values)


@settings(deadline=None, max_examples=120)
@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,44})(\.[0-9]{1,44})?", fullmatch=True),
    st.integers(1, 38),
    st.data(),
)
def test_a_decimal_is_exact_or_unrepresentable(
    text: str, precision: int, data: st.DataObject
) -> None:
    scale = data.draw(st.integers(0, precision))
    whole, _, fraction = text.lstrip("-").partition(".")
    fits = len(whole.lstrip("0")) <= precision - scale and len(fraction.rstrip("0")) <= scale
    found = read([text, "0"], pa.decimal128(precision, scale), null_unrepresentable=True)
    assert found == [Decimal(text) if fits else None, 0]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 12, 31)),
            st.integers(-15 * 3600, 15 * 3600),
        )
    )
)
def test_instants_come_back_as_they_were(values: list[tuple[dt.datetime, int]]) -> None:
    def shown(local: dt.datetime, offset: int) -> str:
        hours, rest = divmod(abs(offset), 3600)
        minutes, seconds = divmod(rest, 60)
        zone = f"{'-' if offset < 0 else '+'}{hours:02}"
        zone += f":{minutes:02}" if minutes or seconds else ""
        zone += f":{seconds:02}" if seconds else ""
        fraction = f".{local.microsecond:06}".rstrip("0").rstrip(".") if local.microsecond else ""
        return local.replace(microsecond=0).isoformat(" ") + fraction + zone

    texts = [shown(local, offset) for local, offset in values]
    expected = [
        (local - dt.timedelta(seconds=offset)).replace(tzinfo=dt.UTC) for local, offset in values
    ]
    assert read(list(texts), ZONED) == expected
