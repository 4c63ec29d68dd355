"""Spark is asked about generation expressions once for the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.workers.lake.two_columns import COLUMNS
from workers.lake.iceberg import checked_generated
from workers.lake.iceberg.checked_generated import CheckedGenerated
from workers.lake.iceberg.known_columns import KnownColumns
from workers.lake.segment import Generated
from workers.lake.table import LakeColumn, LakeIdent

IDENT = LakeIdent("public", "t")
TWICE: Generated = (("g", "id * 2"),)


class Tables:
    """Has the columns of a table."""

    def __init__(self) -> None:
        self.now: tuple[LakeColumn, ...] = COLUMNS

    def columns(self, _: LakeIdent) -> tuple[LakeColumn, ...]:
        return self.now


class Sessions:
    """In the place of Spark's sessions."""

    def get(self) -> None:
        """No session."""


def test_the_same_columns_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def types(
        _session: object, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
    ) -> tuple[LakeColumn, ...]:
        asked.append((ident, [column.name for column in columns], generated))
        return (LakeColumn("g", pa.int64()),)

    monkeypatch.setattr(checked_generated, "generated_types", types)
    tables = Tables()
    known = KnownColumns(cast("Any", tables))
    checked = CheckedGenerated(cast("Any", Sessions()), known)
    checked.check(IDENT, ())
    assert asked == []
    checked.check(IDENT, TWICE)
    checked.check(IDENT, TWICE)
    assert len(asked) == 1
    tables.now = (*COLUMNS, LakeColumn("w", pa.int32()))
    known.forget(IDENT)
    checked.check(IDENT, TWICE)
    assert [names[-1] for _, names, _ in asked] == [COLUMNS[-1].name, "w"]
    assert checked.types(IDENT, COLUMNS, ()) == ()
    assert len(asked) == 2
