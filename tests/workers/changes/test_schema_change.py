"""What a change of the publisher's columns means: by example, and for every history of a table.

The model is a publisher's table with one row from before all changes. A history is a list of ALTER
TABLEs. The message is as of a moment in the history, the shape is as of that moment or a later one.
Whatever the history, the lake's row must be the publisher's row as of the message, or the change is
not followed. No type comes back to a type that the column had, or to a wider one: that leaves no
trace, and an int4 that was text in between looks like one that was widened to int8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.pg_subscription import TableOptions
from workers.changes.cannot_follow import CannotFollow
from workers.changes.remembered_columns import RememberedColumns
from workers.changes.schema_change import Decision, decide, first_look
from workers.lake.column_changes import (
    AddColumn,
    ColumnChange,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from workers.lake.metadata.changed_schema import changed_schema
from workers.lake.metadata.table_schema import columns_of, schema_json
from workers.lake.table import LakeColumn
from workers.lake.typemap import lake_type
from workers.proto.messages import Relation, RelationColumn
from workers.publisher.remote_table import ColumnType
from workers.publisher.table_shape import ShapeColumn, TableShape

INT4, INT8, TEXT, VARCHAR, NUMERIC = (23, -1), (20, -1), (25, -1), (1043, 14), (1700, 655366)
WIDER_NUMERIC = (1700, 786438)
RELID = 16400
OPTIONS = TableOptions()
NO_FILLS: Mapping[str, pa.Scalar[Any]] = {}


@dataclass(frozen=True)
class Column:
    """A column of the model; ``value`` is the value in the row from before all changes."""

    attnum: int
    name: str
    type: tuple[int, int]
    value: object = None
    missing: bool = False
    types_before: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Table:
    """A state of the model's table."""

    columns: tuple[Column, ...]
    dropped: frozenset[int] = frozenset()
    file: int = 1

    @property
    def natts(self) -> int:
        return max([*(c.attnum for c in self.columns), *self.dropped], default=0)

    def add(self, name: str, type: tuple[int, int] = INT4, default: object = None) -> Table:
        new = Column(self.natts + 1, name, type, default, missing=default is not None)
        return replace(self, columns=(*self.columns, new))

    def add_volatile(self, name: str) -> Table:
        """ADD COLUMN with a volatile default, and DROP DEFAULT: the table is rewritten."""
        return replace(self.add(name, INT4, 99).rewritten(), file=self.file + 1)

    def rewritten(self) -> Table:
        columns = tuple(replace(c, missing=False) for c in self.columns)
        return replace(self, columns=columns, file=self.file + 1)

    def drop(self, at: int) -> Table:
        gone = self.columns[at]
        columns = tuple(c for c in self.columns if c is not gone)
        return replace(self, columns=columns, dropped=self.dropped | {gone.attnum})

    def alter(self, at: int, **changes: Any) -> Table:
        columns = list(self.columns)
        columns[at] = replace(columns[at], **changes)
        return replace(self, columns=tuple(columns))

    def message(self) -> Relation:
        columns = tuple(RelationColumn(False, c.name, *c.type) for c in self.columns)
        return Relation(RELID, "public", "t", "d", columns)

    def shape(self) -> TableShape:
        return TableShape(
            RELID,
            tuple(
                ShapeColumn(
                    *(c.attnum, c.name, *c.type, column_type(c.type)),
                    has_missing=c.missing,
                    stored=str(c.value) if c.missing else None,
                    stored_in=frozenset({RELID} if c.missing else ()),
                )
                for c in self.columns
            ),
            self.dropped,
            {RELID: self.file},
        )


def column_type(type: tuple[int, int]) -> ColumnType:
    return ColumnType(*type, "pg_catalog", "t", "b")


def table(*columns: tuple[str, tuple[int, int]]) -> Table:
    """A table with a value of its own in every column."""
    return Table(tuple(Column(n, name, type, f"{n}.") for n, (name, type) in enumerate(columns, 1)))


@dataclass
class Lake:
    """A lake table with the row, by field id."""

    metadata: dict[str, Any]
    row: dict[int, object] = field(default_factory=dict)

    @classmethod
    def of(cls, before: Table) -> Lake:
        columns = [LakeColumn(c.name, lake_type(column_type(c.type))) for c in before.columns]
        schema = json.loads(schema_json(columns))
        last = len(columns)
        lake = cls({"current-schema-id": 0, "schemas": [schema], "last-column-id": last})
        lake.row = {n: c.value for n, c in enumerate(before.columns, 1)}
        return lake

    @property
    def columns(self) -> tuple[LakeColumn, ...]:
        found = columns_of(self.metadata)
        assert found is not None
        return found

    def change(
        self, changes: Sequence[ColumnChange], fills: Mapping[str, pa.Scalar[Any]] = NO_FILLS
    ) -> None:
        schema = changed_schema(self.metadata, changes)
        self.metadata = {**self.metadata, "schemas": [schema]}
        last = max(each["id"] for each in schema["fields"])
        self.metadata["last-column-id"] = max(last, self.metadata["last-column-id"])
        ids = {each["name"]: each["id"] for each in schema["fields"]}
        self.row |= {ids[name]: value.as_py() for name, value in fills.items()}


def remembered(before: Table, lake: Lake) -> RememberedColumns:
    found = first_look(before.shape(), before.message(), lake.columns, OPTIONS, "e")
    assert found is not None
    return found


def decided(
    before: Table,
    message: Table,
    shape: Table | None = None,
    *,
    drops: bool = False,
    options: TableOptions = OPTIONS,
) -> Decision:
    lake = Lake.of(before)
    return decide(
        remembered(before, lake),
        (shape or message).shape(),
        message.message(),
        lake.columns,
        options,
        drops=drops,
    )


T = table(("id", INT4), ("name", TEXT))


def test_an_added_column() -> None:
    decision = decided(T, T.add("age"))
    assert decision.changes == (AddColumn("age", pa.int32()),)
    assert decision.sentences == ('column "age" added',)


def test_a_renamed_column_keeps_its_field() -> None:
    decision = decided(T, T.alter(1, name="title"))
    said = decision.changes, decision.sentences
    assert said == ((RenameColumn(2, "title"),), ('column "name" renamed to "title"',))


def test_two_columns_that_swap_their_names() -> None:
    decision = decided(T, T.alter(0, name="name").alter(1, name="id"))
    assert decision.changes == (RenameColumn(1, "name"), RenameColumn(2, "id"))


@pytest.mark.parametrize(
    ("drops", "changes", "sentence"),
    [
        (False, (), 'column "name" dropped; kept in the lake'),
        (True, (DropColumn(2),), 'column "name" dropped'),
    ],
)
def test_a_dropped_column(drops: bool, changes: tuple[ColumnChange, ...], sentence: str) -> None:
    decision = decided(T, T.drop(1), drops=drops)
    assert (decision.changes, decision.sentences) == (changes, (sentence,))


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (INT4, INT8, (WidenColumn(1, pa.int64()),)),
        ((700, -1), (701, -1), (WidenColumn(1, pa.float64()),)),
        (NUMERIC, WIDER_NUMERIC, (WidenColumn(1, pa.decimal128(12, 2)),)),
        ((21, -1), INT4, ()),
        (VARCHAR, (1043, 24), ()),
        (VARCHAR, TEXT, ()),
    ],
)
def test_another_type_with_the_same_values(
    old: tuple[int, int], new: tuple[int, int], changes: tuple[ColumnChange, ...]
) -> None:
    decision = decided(table(("a", old)), table(("a", new)))
    assert decision.changes == changes
    assert decision.sentences == ('type of column "a" changed',)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (INT4, TEXT),
        (INT8, INT4),
        (NUMERIC, (1700, -1)),
        ((26, -1), (2205, -1)),  # oid → regclass: no rewrite, and another text
        (WIDER_NUMERIC, NUMERIC),
    ],
)
def test_a_type_that_may_have_other_values(old: tuple[int, int], new: tuple[int, int]) -> None:
    with pytest.raises(CannotFollow):
        decided(table(("a", old)), table(("a", new)))


def test_a_longer_varchar_after_a_rewrite_may_have_other_values() -> None:
    with pytest.raises(CannotFollow, match='type of column "a"'):
        decided(table(("a", VARCHAR)), table(("a", (1043, 24))).rewritten())


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (T.add_volatile("age"), "rewritten"),
        (T.drop(1).add("title", TEXT), "renamed column"),
    ],
)
def test_what_is_not_certain_is_not_followed(now: Table, reason: str) -> None:
    with pytest.raises(CannotFollow, match=reason):
        decided(T, now)


def test_a_stored_default_fills_the_rows_that_are_there() -> None:
    decision = decided(T, T.add("age", INT4, 5))
    assert decision.changes == (AddColumn("age", pa.int32()),)
    assert decision.fills == {"age": pa.scalar(5, pa.int32())}
    assert decision.sentences == (
        'column "age" added; its stored default filled in the rows from before',
    )
    mapped = decided(T, T.add("age", INT4, 5), options=TableOptions(columns=(("age", "years"),)))
    assert mapped.fills == {"years": pa.scalar(5, pa.int32())}


def test_a_later_column_has_a_stored_default_of_its_own() -> None:
    message = T.add("age", INT4, 5)
    assert decided(T, message, message.add("b", INT4, 6)).fills == {"age": pa.scalar(5, pa.int32())}
    with pytest.raises(CannotFollow, match="added and dropped again"):
        decided(T, message.drop(2).add("age", INT4, 6))
    with pytest.raises(CannotFollow, match="rewritten"):
        decided(T, message.rewritten())


def test_a_file_without_the_stored_default_is_not_guessed() -> None:
    now, lake = T.add("age", INT4, 5), Lake.of(T)
    last = replace(now.shape().columns[-1], stored_in=frozenset({16401}))
    shape = replace(now.shape(), columns=(*now.shape().columns[:-1], last))
    with pytest.raises(CannotFollow, match="with a value for the rows"):
        decide(remembered(T, lake), shape, now.message(), lake.columns, OPTIONS)


def test_the_publisher_may_be_ahead_by_added_columns() -> None:
    message = T.add("a")
    decision = decided(T, message, message.add("b").add("c"))
    assert decision.changes == (AddColumn("a", pa.int32()),)
    lake = Lake.of(T)
    lake.change(decision.changes)
    assert decision.remembered(lake.columns).natts == 3


def test_the_publisher_may_not_be_ahead_otherwise() -> None:
    with pytest.raises(CannotFollow, match="once more since"):
        decided(T, T.add("a"), T.add("a").alter(2, name="b"))
    with pytest.raises(CannotFollow, match="added and dropped again"):
        decided(T, T.add("a"), T.add("a").drop(2).add("a"))


def test_a_kept_column_makes_room_for_a_new_one() -> None:
    lake = Lake.of(T)
    dropped = T.drop(1)
    first = decide(remembered(T, lake), dropped.shape(), dropped.message(), lake.columns, OPTIONS)
    after = first.remembered(lake.columns)
    again = dropped.add("name", TEXT)
    decision = decide(after, again.shape(), again.message(), lake.columns, OPTIONS)
    assert decision.changes == (
        RenameColumn(2, "name_dropped_2"),
        AddColumn("name", pa.string()),
    )


def test_a_lake_column_that_was_added_before_is_taken() -> None:
    lake = Lake.of(T)
    before = remembered(T, lake)
    lake.change([AddColumn("age", pa.int32())])
    for now, doubts in (
        (T.add("age"), ()),
        (T.add("age", INT4, 5), ("with a value for the rows",)),
        (T.add_volatile("age"), ("the table was rewritten",)),
    ):
        decision = decide(before, now.shape(), now.message(), lake.columns, OPTIONS)
        assert decision.changes == ()
        assert len(decision.doubts) == len(doubts)
        assert all(told in each for told, each in zip(doubts, decision.doubts, strict=True))
    other = T.add("age", TEXT)
    with pytest.raises(CannotFollow, match="of another type"):
        decide(before, other.shape(), other.message(), lake.columns, OPTIONS)


def test_a_column_that_was_not_published_before() -> None:
    hidden = T.drop(1)
    lake = Lake.of(hidden)
    before = first_look(T.shape(), hidden.message(), lake.columns, OPTIONS, "e")
    assert before is not None
    with pytest.raises(CannotFollow, match="before it was published"):
        decide(before, T.shape(), T.message(), lake.columns, OPTIONS)


@pytest.mark.parametrize(("then", "now"), [("1/7", "1/9"), ("1/7*", "1/7*"), ("", "1/9*")])
def test_a_column_list_may_have_hidden_a_column(then: str, now: str) -> None:
    lake = Lake.of(T)
    before = replace(remembered(T, lake), lists=then)
    added = T.add("age")
    shape = replace(added.shape(), lists=now)
    with pytest.raises(CannotFollow, match="before it was published"):
        decide(before, shape, added.message(), lake.columns, OPTIONS)


def test_columns_that_the_configuration_names_stay() -> None:
    for options in (
        TableOptions(columns=(("name", "label"),)),
        TableOptions(keys=(("name",),)),
        TableOptions(generated=(("upper", "upper(name)"),)),
    ):
        with pytest.raises(CannotFollow, match="configuration"):
            decided(T, T.alter(1, name="title"), options=options)


def laid_out(
    now: Table, *, drops: bool = False, options: TableOptions = OPTIONS, sorts: bool = False
) -> Decision:
    """The decision for ``T`` with partitions by name, or sorted by name."""
    lake = Lake.of(T)
    id, name = lake.columns
    made = replace(name, sorts=True) if sorts else replace(name, partition_fields=("name", "n_3"))
    before = remembered(T, lake)
    return decide(before, now.shape(), now.message(), (id, made), options, drops=drops)


@pytest.mark.parametrize("sorts", [False, True])
def test_a_dropped_column_of_the_layout_is_kept_or_refused(sorts: bool) -> None:
    assert laid_out(T.drop(1), sorts=sorts).changes == ()
    with pytest.raises(CannotFollow, match="are made from it") as caught:
        laid_out(T.drop(1), drops=True, sorts=sorts)
    assert not caught.value.copies
    hint = caught.value.hint("RECOPY")
    assert "on_dropped_column: keep" in hint
    assert hint.endswith("partition_by and sort_by: RECOPY makes it anew.")


def test_a_column_of_the_layout_gets_another_name() -> None:
    """The partition field keeps its name, and the column may come back to it."""
    there = laid_out(T.alter(1, name="title"))
    assert there.changes == (RenameColumn(2, "title"),)


def test_a_column_of_the_layout_gets_no_other_type() -> None:
    with pytest.raises(CannotFollow, match="are made from it") as caught:
        laid_out(T.alter(1, type=INT4))
    assert not caught.value.copies
    assert laid_out(T.alter(1, type=VARCHAR)).changes == ()


@pytest.mark.parametrize("now", [T.add("n_3"), T.alter(0, name="n_3"), T.drop(1).add("name")])
def test_no_column_gets_the_name_of_a_partition_field(now: Table) -> None:
    with pytest.raises(CannotFollow, match="partition field") as caught:
        laid_out(now)
    assert not caught.value.copies
    assert "columns: {COLUMN: {to: NAME}}" in caught.value.hint("RECOPY")


def test_a_mapped_column_passes_a_partition_field() -> None:
    mapped = TableOptions(columns=(("n_3", "number"),))
    assert laid_out(T.add("n_3"), options=mapped).changes == (AddColumn("number", pa.int32()),)


def test_a_first_look_finds_a_table_in_line_or_nothing() -> None:
    lake = Lake.of(T)
    assert first_look(T.shape(), T.add("age").message(), lake.columns, OPTIONS, "e") is None
    assert first_look(T.add("x").shape(), T.add("x").message(), lake.columns, OPTIONS, "e") is None


def _steps() -> st.SearchStrategy[list[tuple[str, int, int, int]]]:
    kinds = ["add", "default", "volatile", "drop", "rename", "retype", "rewrite"]
    step = st.tuples(
        st.sampled_from(kinds), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)
    )
    return st.lists(step, min_size=1, max_size=6)


NAMES, TYPES = ("a", "b", "c", "d"), (INT4, INT8, TEXT)


def take(now: Table, step: tuple[str, int, int, int]) -> Table:
    """The table after a step; unchanged if PostgreSQL would refuse the step."""
    kind, at, name, type = step
    taken = {c.name for c in now.columns}
    if kind in ("add", "default", "volatile") and NAMES[name] not in taken:
        if kind == "volatile":
            return now.add_volatile(NAMES[name])
        default = ("d" if TYPES[type] == TEXT else 7) if kind == "default" else None
        return now.add(NAMES[name], TYPES[type], default)
    if kind == "rewrite":
        return now.rewritten()
    if at >= len(now.columns):
        return now
    if kind == "drop" and len(now.columns) > 1:
        return now.drop(at)
    if kind == "rename" and NAMES[name] not in taken:
        return now.alter(at, name=NAMES[name])
    old = now.columns[at]
    gone = (*old.types_before, *([INT8] if INT4 in old.types_before else []))
    if kind == "retype" and TYPES[type] not in (old.type, *gone):
        same = (old.type, TYPES[type]) == (INT4, INT8)
        value = old.value if same or old.value is None else f"{old.value}cast"
        before = (*old.types_before, old.type)
        return now.alter(at, type=TYPES[type], value=value, types_before=before).rewritten()
    return now


@given(_steps(), st.integers(0, 6), st.booleans())
@example([("retype", 1, 0, 2), ("retype", 1, 0, 1)], 2, False)
def test_every_history_is_followed_rightly_or_not_at_all(
    steps: list[tuple[str, int, int, int]], seen: int, drops: bool
) -> None:
    before = table(("a", INT4), ("b", INT4), ("c", TEXT))
    states = [before]
    for step in steps:
        states.append(take(states[-1], step))
    message = states[min(seen, len(states) - 1)]
    lake = Lake.of(before)
    memory = remembered(before, lake)
    try:
        decision = decide(
            memory, states[-1].shape(), message.message(), lake.columns, OPTIONS, drops=drops
        )
    except CannotFollow:
        return
    lake.change(decision.changes, decision.fills)
    after = decision.remembered(lake.columns)
    assert [each.name for each in after.columns] == [c.name for c in message.columns]
    row = [lake.row.get(each.field_id) for each in after.columns]
    assert row == [c.value for c in message.columns]
    types = {each.field_id: each.type for each in lake.columns}
    for each, column in zip(after.columns, message.columns, strict=True):
        assert types[each.field_id] == lake_type(column_type(column.type))


@given(_steps())
def test_plain_changes_are_followed(steps: list[tuple[str, int, int, int]]) -> None:
    """Without a later change, and without a drop, only values that are not known prevent it."""
    before = now = table(("a", INT4), ("b", INT4), ("c", TEXT))
    for step in steps:
        promotes = step[0] == "retype" and (
            step[1] < len(now.columns)
            and (now.columns[step[1]].type, TYPES[step[3]]) == (INT4, INT8)
        )
        if step[0] == "rename" or promotes:
            now = take(now, step)
    assert now.message() == before.message() or decided(before, now).sentences
