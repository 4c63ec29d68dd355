"""A lake table's position."""

from __future__ import annotations

from catalog.pg_lsn import LSN
from workers.lake.table import LakeIdent, LakeTable, Stamp

OWN = Stamp("pg_1", LSN(10), "e", LSN(5))
OF_A_SOURCE = Stamp("pg_2", LSN(20), "f", LSN(6), "one")


def test_each_source_has_its_position_and_a_table_of_one_owner_its_own() -> None:
    table = LakeTable(LakeIdent("s", "t"), (), "me", 1, OWN, {"one": OF_A_SOURCE})
    assert table.position() == OWN
    assert table.position("one") == OF_A_SOURCE
    assert table.position("two") is None


def test_a_name_is_shown_as_it_is() -> None:
    assert str(LakeIdent("a.b", "c d")) == "a.b.c d"
