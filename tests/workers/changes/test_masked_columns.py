"""Types and masks of hashed columns, and the text by which a key is recognised."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import DatatypeMismatch, InvalidParameterValue
from catalog.pg_subscription import TableOptions
from workers.changes.columns_of_copy import PublishedColumn, plan_columns
from workers.changes.masked_columns import (
    check_lake_types,
    column_type,
    masks_of,
    told_masks,
)
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.lake.column_changes import AddColumn, DropColumn, RenameColumn
from workers.lake.table import LakeColumn, LakeIdent
from workers.publisher.remote_table import ColumnType

INT4 = ColumnType(23, -1, "pg_catalog", "int4", "b")
ENV = "PGSUB_TEST_MASK_KEY"
OPTIONS = TableOptions(
    masks=(("h", "sha256", ""), ("k", "keyed-hash", ENV), ("n", "null", "")), excluded=("x",)
)
IDENT = LakeIdent("public", "a")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV, "secret")


def test_the_rules_by_kind() -> None:
    assert OPTIONS.left_out == ("x", "n")
    assert OPTIONS.hashed == {"h": "", "k": ENV}
    assert set(OPTIONS.guarded) == set(OPTIONS.rules) == {"h", "k", "n", "x"}
    assert masks_of(OPTIONS).keys() == {"h", "k"}
    types = {name: column_type(name, INT4, OPTIONS) for name in "hkn"}
    assert types == {"h": pa.string(), "k": pa.string(), "n": pa.int32()}


def test_a_key_is_recognised_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = told_masks(OPTIONS)
    assert told["h"] == "sha256"
    assert told["k"].startswith("keyed-hash ")
    assert "secret" not in told["k"]
    monkeypatch.setenv(ENV, "another")
    assert told_masks(OPTIONS)["k"] != told["k"]
    monkeypatch.setenv(ENV, "")
    for use in (told_masks, masks_of):
        with pytest.raises(InvalidParameterValue, match="is not set"):
            use(OPTIONS)


def test_the_lake_column_is_text() -> None:
    check_lake_types(OPTIONS, {"h": pa.string(), "k": pa.large_string()}, IDENT)
    check_lake_types(OPTIONS, {"h": pa.string()}, IDENT)  # dropped on the publisher
    with pytest.raises(DatatypeMismatch):
        check_lake_types(OPTIONS, {"h": pa.string(), "k": pa.int32()}, IDENT)


LAKE = (LakeColumn("id", pa.int32(), field_id=1), LakeColumn("h", pa.int32(), field_id=2))
MEMORY = RememberedColumns(
    *("e", 1, 2, {1: 5}),
    (RememberedColumn(1, "id", 23, -1, 23, 1), RememberedColumn(2, "h", 23, -1, 23, 2)),
)


def test_a_copy_makes_a_masked_column_text_and_back() -> None:
    number = PublishedColumn(1, "id", 23, -1, pa.int32())
    hashed = PublishedColumn(2, "h", 23, -1, pa.string(), ruled=True)
    plan = plan_columns([number, hashed], 1, LAKE, MEMORY, OPTIONS)
    assert plan.now == (AddColumn("h__next", pa.string()),)
    later = (*LAKE, LakeColumn("h__next", pa.string(), field_id=3))
    assert plan.at_publication(later) == (DropColumn(2), RenameColumn(3, "h"))
    text = (LAKE[0], LakeColumn("h", pa.string(), field_id=2))
    memory = replace(MEMORY, masked={"h": "sha256"})
    assert plan_columns([number, hashed], 1, text, memory, OPTIONS).now == ()
    plain = PublishedColumn(2, "h", 23, -1, pa.int32())
    back = plan_columns([number, plain], 1, text, memory, TableOptions())
    assert back.now == (AddColumn("h__next", pa.int32()),)
