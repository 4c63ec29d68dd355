"""A table's part of a batch: its name for people, and what goes to one lake table."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from catalog.pg_lsn import LSN
from workers.lake.effects import Effect
from workers.lake.table import LakeIdent, Stamp
from workers.tables.open_table import OpenTable
from workers.tables.written import Written, by_lake_table


def open_table(name: str, source: str = "") -> OpenTable:
    lake: Any = SimpleNamespace(ident=LakeIdent("public", name))
    return OpenTable(cast("Any", None), lake, LSN(0), LSN(0), "b", source=source)


def test_a_position_names_the_snapshot_once_it_is_known() -> None:
    stamp = Stamp("pg_1", LSN(0x64), "e", LSN(0))
    effect = cast("Effect", None)
    written = Written(open_table("a"), cast("Any", None), stamp, effect)
    assert written.position == "LSN 0/64 of public.a"
    assert replace(written, snapshot_id=7).position == "snapshot 7 of public.a"


def test_sources_of_one_lake_table_go_together() -> None:
    tables = [open_table("a", "s1"), open_table("b"), open_table("a", "s2")]
    assert by_lake_table(tables, lambda table: table) == {
        LakeIdent("public", "a"): [tables[0], tables[2]],
        LakeIdent("public", "b"): [tables[1]],
    }
