"""Columns that the lake generates, on both lakes: right after each way of writing a row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake import contract
from tests.workers.lake.contract import PUBLISHED, Make, append, full, merge, probe, stamp
from workers.lake.effects import Counts
from workers.lake.table import LakeColumn, LakeIdent

GENERATED = (("twice", "id * 2"), ("whole", "concat(v, coalesce(big, '-'), `local note`)"))
NOTED = {"generated": GENERATED, "defaults": (("local note", "'n'"),)}
BIG = "x" * 10


class Table(contract.Table):
    """As the contract's, with two columns that are generated; one of them reads a local one."""

    def __init__(self, dest: Any, ident: LakeIdent) -> None:
        self.dest, self.ident, self.attempt = dest, ident, 0
        columns = contract.COLUMNS
        more = dest.generated_columns(ident, columns, GENERATED)
        dest.create_table(ident, (*columns, *more), owner="me", relid=7, stamp=stamp(10))

    def computed(self) -> list[tuple[Any, ...]]:
        """(id, v, big, twice, whole); the twin's default is the text of its expression."""
        rows = super().rows()
        return [(*row[:3], row[4], row[5] and row[5].replace("'", "")) for row in rows]


@pytest.fixture
def generating(make: Make, lake_ident: LakeIdent) -> Table:
    return Table(make(), lake_ident)


def test_they_have_the_types_of_their_expressions(make: Make, lake_ident: LakeIdent) -> None:
    dest = make()
    found = dest.generated_columns(lake_ident, contract.COLUMNS, GENERATED)
    assert found == (LakeColumn("twice", pa.int64()), LakeColumn("whole", pa.string()))
    again = dest.generated_columns(lake_ident, (*contract.COLUMNS, *found), GENERATED)
    assert again == found
    assert dest.generated_columns(lake_ident, contract.COLUMNS, ()) == ()


def test_one_over_a_column_that_is_not_there(generating: Table) -> None:
    generated_columns = (("twice", "ID * 2"),)
    with pytest.raises(ReplicationError) as refused:
        generating.dest.generated_columns(generating.ident, contract.COLUMNS, generated_columns)
    assert refused.value.code == "42703"


def test_rows_that_are_appended(generating: Table) -> None:
    segment = append(generating.dest, [(1, "a", BIG), (2, "b", None), (3, None, BIG)], **NOTED)
    generating.batch([segment], 20)
    assert generating.computed() == [
        (1, "a", BIG, 2, f"a{BIG}n"),
        (2, "b", None, 4, "b-n"),
        (3, None, BIG, 6, None),
    ]


def test_an_update_computes_them_anew(generating: Table) -> None:
    """With another key, with a value that did not travel, and with a column of the lake's own."""
    dest = generating.dest
    generating.batch([append(dest, [(n, "a", BIG) for n in (1, 2, 3, 4)], **NOTED)], 20)
    changes = [
        (0, 1, 10, "b", None, True),
        (0, 2, 2, "c", "y", False),
        (1, 3, None, None, None, False),
    ]
    assert generating.batch([merge(dest, changes, unchanged=True, **NOTED)], 30) == Counts(merged=3)
    assert generating.computed() == [
        (2, "c", "y", 4, "cyn"),
        (4, "a", BIG, 8, f"a{BIG}n"),
        (10, "b", BIG, 20, f"b{BIG}n"),
    ]


def test_an_update_of_a_whole_row(generating: Table) -> None:
    generating.batch([append(generating.dest, [(1, "a", None)] * 2, **NOTED)], 20)

    def resolve(found: list[Any]) -> Any:
        [(_, f, p)] = found
        return [(f, p, 0, 5, "b")], [(7, "c", None)]

    changed = full(generating.dest, [(1, "a", 1)], resolve, **NOTED)
    generating.batch([changed], 30)
    assert generating.computed() == [
        (1, "a", None, 2, "a-n"),
        (5, "b", None, 10, "b-n"),
        (7, "c", None, 14, "c-n"),
    ]


def test_rows_whose_keys_are_looked_for_first(generating: Table) -> None:
    dest = generating.dest
    generating.batch([append(dest, [(1, "a", None)], **NOTED)], 20)

    def resolve(found: list[int]) -> Any:
        assert found == [1]
        return merge(dest, [(0, 1, 3, "b", None, False)], unchanged=False, **NOTED)

    generating.batch([probe(dest, [1, 2], resolve, **NOTED)], 30)
    assert generating.computed() == [(3, "b", None, 6, "b-n")]


def test_copied_rows_that_take_the_place_of_others(generating: Table) -> None:
    """Those they do not meet are left alone, and so is what the lake's own column holds."""
    dest, ident = generating.dest, generating.ident
    wrong = (("twice", "id * 3"), GENERATED[1])
    noted = {**NOTED, "generated": wrong}
    generating.batch([append(dest, [(1, "old", None), (2, "old", None)], **noted)], 20)
    branch = generating.branch()
    copied = append(dest, [(2, "new", BIG), (3, "new", None)], **{"generated": GENERATED})
    dest.write(ident, branch, [copied], stamp(30))
    dest.overwrite_existing(ident, branch, PUBLISHED, ["id"], GENERATED)
    dest.write(ident, branch, [], stamp(40))
    dest.publish(ident, branch, stamp(40))
    assert generating.computed() == [
        (1, "old", None, 3, "old-n"),
        (2, "new", BIG, 4, f"new{BIG}n"),
        (3, "new", None, 6, None),
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        *("nosuch(id)", "id + map(1, 2)", "histogram_numeric(id, 2)", "json_tuple(v, 'a')"),
        "assert_true(id) AND id",
    ],
)
def test_what_spark_does_not_compute_is_refused_before_anything_is_written(
    iceberg: Make, lake_ident: LakeIdent, text: str
) -> None:
    table = Table(iceberg(), lake_ident)
    segment = append(table.dest, [(1, "a", None)], generated=(("twice", text),))
    branch = table.branch()
    with pytest.raises(ReplicationError) as refused:
        table.dest.write(lake_ident, branch, [segment], stamp(20))
    assert refused.value.code == "42P17"
    assert '"twice"' in refused.value.report()


@pytest.mark.spark
def test_a_parameter_may_be_called_as_a_source_calls_a_column(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """``c1`` is v to a MERGE; in each way of writing it is the array's element here."""
    table = Table(iceberg(), lake_ident)
    dest = table.dest
    text = "concat_ws('', transform(array('<', '>'), c1 -> c1 || v))"
    given: Any = {"generated": (("whole", text),)}
    table.batch([append(dest, [(1, "a", None), (2, "a", None)], **given)], 20)
    table.batch([merge(dest, [(0, 1, 1, "b", None, False)], **given)], 30)
    branch = table.branch()
    copied = append(dest, [(2, "c", None)], **given)
    dest.write(lake_ident, branch, [copied], stamp(40))
    dest.overwrite_existing(lake_ident, branch, PUBLISHED, ["id"], given["generated"])
    dest.write(lake_ident, branch, [], stamp(50))
    dest.publish(lake_ident, branch, stamp(50))
    assert [row[5] for row in table.rows()] == ["<b>b", "<c>c"]


@pytest.mark.spark
def test_a_name_that_was_overlooked_is_no_old_value(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a MERGE it would be the target's."""
    from workers.lake import generated_columns

    table = Table(iceberg(), lake_ident)
    monkeypatch.setattr(generated_columns, "_places", lambda column, tree: iter(()))
    changes = [(0, 1, 1, "b", None, False)]
    segment = merge(table.dest, changes, generated=(("twice", "id * 2 + 0"),))
    with pytest.raises(ReplicationError) as refused:
        table.dest.write(lake_ident, table.branch(), [segment], stamp(20))
    assert refused.value.code == "42P17"


@pytest.mark.spark
def test_a_value_that_cannot_be_computed_is_an_error_of_the_data(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """So its transaction is found, as any that does not fit; the row is not told."""
    table = Table(iceberg(), lake_ident)
    rows = [(1, "secret", None), (2**62, "b", None)]
    for generated_columns in ((("twice", "id * 2"),), (("twice", "CAST(v AS BIGINT)"),)):
        segment = append(table.dest, rows, generated=generated_columns)
        with pytest.raises(ReplicationError) as refused:
            table.dest.write(lake_ident, table.branch(), [segment], stamp(20))
        assert refused.value.code.startswith("22"), refused.value.report()
        assert "secret" not in refused.value.report()
