"""What the commit service and the user's Spark server must both see."""

from __future__ import annotations

from typing import Any, cast

import pytest

from catalog.errcodes import TwoCatalogs
from workers.lake.api.one_catalog import expect_commit, expect_table
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.snapshots import FENCE, History
from workers.lake.metadata.table_state import TableState
from workers.lake.table import MAIN, LakeIdent

IDENT = LakeIdent("s", "t")


class Server:
    """It shows the table with ``main`` at a snapshot, or no table."""

    def __init__(self, main: int | None) -> None:
        self._main = main

    def describe(self, ident: LakeIdent) -> TableState | None:
        assert ident == IDENT
        return None if self._main is None else TableState((), History({MAIN: self._main}, {}), {})


def server(main: int | None) -> TableApi:
    return cast("TableApi", Server(main))


def test_the_same_snapshot_is_the_same_table() -> None:
    expect_table(IDENT, server(7), server(7))


@pytest.mark.parametrize(("here", "there"), [(7, 8), (7, None), (None, 7), (None, None)])
def test_anything_else_is_two_catalogs(here: int | None, there: int | None) -> None:
    with pytest.raises(TwoCatalogs, match="do not have the same catalog") as error:
        expect_table(IDENT, server(here), server(there))
    assert "lake.catalog" in (error.value.hint or "")


def test_a_commit_has_to_be_seen_as_a_whole() -> None:
    metadata: dict[str, Any] = {
        "snapshots": [
            {"snapshot-id": 1, "summary": {"operation": "append", FENCE: "of another worker"}},
            {"snapshot-id": 2, "summary": {"operation": "append", FENCE: "ours", "more": "x"}},
            {"snapshot-id": 3, "summary": {"operation": "append"}},
        ]
    }
    expect_commit(IDENT, metadata, {FENCE: "ours"})
    for unseen in ({FENCE: "unseen"}, {FENCE: "ours", "more": "y"}):
        with pytest.raises(TwoCatalogs):
            expect_commit(IDENT, metadata, unseen)
    with pytest.raises(TwoCatalogs):
        expect_commit(IDENT, {}, {FENCE: "ours"})
