"""Any segment in binary form does what it does as text, whatever its columns are in the lake."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ProtocolViolation
from tests.workers.columnar.binary.sent_values import binary, numeric, row
from tests.workers.columnar.records import TABLE, layout, rows, segment
from workers.columnar.column_reader import Changes, Layout, UnrepresentableValue, in_form
from workers.columnar.fold.after_lookup import Probed
from workers.columnar.fold.by_key import Keyed, fold_keyed
from workers.columnar.fold.whole_rows import Full, full_images
from workers.proto.messages import Delete, Insert, Message, Update

Cell = tuple[str, bytes] | None
"""A value as text and in binary form."""

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of the publisher's, the lake's types it may meet, and values."""

    oid: int
    lake: Sequence[pa.DataType]
    values: st.SearchStrategy[Cell]


def cells(few: Sequence[Any], more: st.SearchStrategy[Any], form: Callable[[Any], Cell]) -> Any:
    """Few values that meet each other, now and then one that does not."""
    return st.one_of(st.sampled_from(few), st.sampled_from(few), more).map(form)


def packed(format: str) -> Callable[[int], Cell]:
    return lambda number: (str(number), struct.pack(format, number))


def text(value: str) -> Cell:
    return value, value.encode()


def of_numeric(number: Decimal) -> Cell:
    if number.is_zero():
        number = abs(number)  # PostgreSQL has no -0
    return (f"{number:f}" if number.is_finite() else str(number)), numeric(number)


def of_date(day: date) -> Cell:
    return day.isoformat(), struct.pack(">i", (day - EPOCH.date()).days)


def of_instant(at: datetime) -> Cell:
    micros = (at - EPOCH) // timedelta(microseconds=1)
    fraction = f".{at.microsecond:06}".rstrip("0").rstrip(".")
    return f"{at.replace(microsecond=0, tzinfo=None)}{fraction}+00", struct.pack(">q", micros)


def of_float(number: float) -> Cell:
    return repr(number), struct.pack(">d", number)


INFINITE_DATES: Final = st.sampled_from(
    [("infinity", struct.pack(">i", 0x7FFFFFFF)), ("-infinity", struct.pack(">i", -0x80000000))]
)
STRING, LONG, MONEY, DOUBLE = pa.string(), pa.int64(), pa.decimal128(9, 2), pa.float64()
KINDS: Final = {
    "int4": Kind(
        23,
        [pa.int32(), LONG, pa.int16(), MONEY, DOUBLE, STRING],
        cells([0, 1, -1], st.integers(-(2**31), 2**31 - 1), packed(">i")),
    ),
    "int8": Kind(
        20,
        [LONG, pa.int32(), DOUBLE, STRING],
        cells([1, 2**53, 2**53 + 1], st.integers(-(2**63), 2**63 - 1), packed(">q")),
    ),
    "text": Kind(
        25,
        [STRING, pa.large_string(), pa.int32(), MONEY, DOUBLE, pa.bool_()],
        cells(
            ["1", "01", "1.0", "t", ""],
            st.text(st.characters(codec="utf-8", exclude_characters="\0")),
            text,
        ),
    ),
    "numeric": Kind(
        1700,
        [MONEY, pa.decimal128(38, 10), DOUBLE, STRING],
        cells(
            [Decimal(number) for number in ("1.5", "1.50", "0", "0.00", "-1e2", "NaN")],
            st.decimals(-(10**8), 10**8, places=3),
            of_numeric,
        ),
    ),
    "bool": Kind(16, [pa.bool_(), STRING], st.sampled_from([("t", b"\1"), ("f", b"\0")])),
    "date": Kind(
        1082,
        [pa.date32(), STRING],
        st.one_of(cells([date(1, 1, 1), date(2026, 11, 24)], st.dates(), of_date), INFINITE_DATES),
    ),
    "timestamptz": Kind(
        1184,
        [pa.timestamp("us", "UTC"), STRING],
        cells([EPOCH], st.datetimes(timezones=st.just(UTC)), of_instant),
    ),
    "uuid": Kind(
        2950,
        [STRING],
        st.sampled_from([uuid.UUID(int=1), uuid.UUID(int=2)]).map(lambda u: (str(u), u.bytes)),
    ),
    "float8": Kind(
        701, [DOUBLE, pa.float32()], cells([0.0, -0.0, float("nan"), 0.5], st.floats(), of_float)
    ),
}

Row = Sequence[Any]
"""Cells, ``...`` for what is unchanged."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Changes (letter, how the old row is sent, old row, new row) and where they go."""

    kinds: Sequence[Kind]
    form: Layout
    changes: Sequence[tuple[str, str | None, Row, Row]]

    def as_text(self) -> Changes:
        return in_form(segment(*self._messages(0)), None)

    def as_binary(self) -> Changes:
        return binary(segment(*self._messages(1)), *(kind.oid for kind in self.kinds))

    def _messages(self, which: int) -> list[Message]:
        def sent(cells: Row) -> Any:
            return row(*(cell[which] if isinstance(cell, tuple) else cell for cell in cells))

        found: list[Message] = []
        for letter, how, old, new in self.changes:
            if letter == "I":
                found.append(Insert(TABLE, sent(new)))
            elif letter == "U":
                found.append(Update(TABLE, how, sent(old) if how else None, sent(new)))
            else:
                assert how is not None
                found.append(Delete(TABLE, how, sent(old)))
        return found


@st.composite
def segments(draw: st.DrawFn, whole: bool) -> Segment:
    """Any changes, by key (of one or two columns) or by whole row."""
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=3))
    kinds = [KINDS[name] for name in names]
    key = () if whole else draw(st.sampled_from([(0,), (1, 0)]))
    pools: list[list[Any]] = [draw(st.lists(k.values, min_size=1, max_size=4)) for k in kinds]
    for at in set(range(len(kinds))) - set(key):
        pools[at].append(None)
    types = [draw(st.sampled_from(kind.lake)) for kind in kinds]
    changes = []
    for _ in range(draw(st.integers(1, 10))):
        old, new = ([draw(st.sampled_from(pool)) for pool in pools] for _ in range(2))
        letter = draw(st.sampled_from("IUUUD"))
        how = "O" if whole else draw(st.sampled_from("OKK")) if letter == "D" else None
        if letter == "U":
            how = "O" if whole else draw(st.sampled_from(["O", "K", None]))
            for at in range(len(kinds)):
                if (how or at not in key) and not draw(st.integers(0, 2)):
                    new[at] = ...
        if how == "K":
            old = [cell if at in key else None for at, cell in enumerate(old)]
        changes.append((letter, how, old, new))
    return Segment(
        kinds, layout(*types, key=key, null_unrepresentable=draw(st.booleans())), changes
    )


def outcome(read: Callable[[], Any]) -> Any:
    """What is read, or the error of a change: of a value that does not fit, or of no key."""
    try:
        return read()
    except UnrepresentableValue as error:
        return error.code, error.column, error.change
    except ProtocolViolation as error:
        return error.code, error.detail


def of_keyed(folded: Keyed) -> list[Any]:
    return [
        (folded.conflict, folded.missing_updates, folded.missing_deletes, folded.unchanged),
        outcome(lambda: rows(folded.merge_batches(chunk_rows=3))),
        outcome(lambda: rows(folded.append_batches(chunk_rows=3))),
    ]


def of_probed(probed: Probed) -> list[Any]:
    """Where the table has the first key."""
    keys = [probed.key_of.tolist(), rows(probed.key_batches(chunk_rows=3))]
    return [*keys, *of_keyed(probed.resolve([0], overwrite=True))]


def of_full(full: Full) -> list[Any]:
    """Where the table has one of each row."""
    images = rows(full.image_batches(chunk_rows=3))
    full.resolve([image["image"] for image in images])
    files = pa.array(["f"] * len(images), pa.string())
    places = pa.array(range(len(images)), pa.int64())
    return [
        images,
        (full.missing_updates, full.missing_deletes),
        outcome(lambda: rows(full.position_batches(files, places, chunk_rows=3))),
        outcome(lambda: rows(full.append_batches(chunk_rows=3))),
    ]


def by_key(changes: Changes, form: Layout) -> list[Any]:
    return [
        outcome(lambda: of_keyed(fold_keyed(changes, form))),
        outcome(lambda: of_probed(Probed(changes, form))),
    ]


def by_row(changes: Changes, form: Layout) -> list[Any]:
    return [outcome(lambda: of_full(full_images(changes, form)))]


@pytest.mark.parametrize("ask", [by_key, by_row])
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_014_a_segment_does_the_same_in_either_form(
    ask: Callable[[Changes, Layout], list[Any]], data: st.DataObject
) -> None:
    """Compared in words, which tell -0 from 0 and say nan."""
    made = data.draw(segments(whole=ask is by_row))
    in_binary, as_text = ask(made.as_binary(), made.form), ask(made.as_text(), made.form)
    assert repr(in_binary) == repr(as_text)
