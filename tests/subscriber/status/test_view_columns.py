"""Each column has a type, and the rows of a view have its columns."""

from __future__ import annotations

import pytest

from catalog.pg_stat_subscription_stats import ConflictType
from catalog.store_sqlite import CatalogStore
from subscriber.status import view_columns
from subscriber.status.views import VIEWS
from tests.subscriber.status.scraped import busy

TYPES = {"oid", "int4", "int8", "bool", "timestamptz", "text[]", "text"}


@pytest.mark.parametrize("name", list(VIEWS))
def test_the_rows_of_a_view_have_its_columns(store: CatalogStore, name: str) -> None:
    view = VIEWS[name]
    assert set(view.types.values()) <= TYPES
    for row in view.rows(store, busy(store)):
        assert set(row) == set(view.columns)


def test_counters_are_numbers_and_the_reset_is_a_time() -> None:
    types = dict(view_columns.PG_STAT_SUBSCRIPTION_STATS)
    assert list(types)[2:4] == ["apply_error_count", "sync_error_count"]
    assert {types[kind.column] for kind in ConflictType} == {"int8"}
    assert types["stats_reset"] == "timestamptz"
