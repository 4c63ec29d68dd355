"""Catalogs and views beside PostgreSQL's own: which columns they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from subscriber.status import VIEWS
from subscriber.status_tables import COLUMN_TYPES
from tests.fix_publisher import Database

OUR_VIEWS: Final = {"leaked_slots", "last_errors"}
OUR_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "pg_subscription": (
        "subuuid", "subcreate", "sync_slot", "password_env", "sysid", "timeline", "datoid",
        "max_flush_lsn",
    ),
    "pg_subscription_rel": (
        "nspname", "relname", "lake_schema", "lake_table", "relstate", "attempt", "floor",
        "lake_lsn", "copied", "recopy",
    ),
    "pg_stat_progress_copy": ("ranges_done", "ranges_total"),
}  # fmt: skip
"""Behind PostgreSQL's."""

TEXT_HERE: Final = ("name", '"char"', "pg_lsn")
"""Types that no lake has."""

NAMES: Final = {
    "int4": "integer",
    "int8": "bigint",
    "bool": "boolean",
    "timestamptz": "timestamp with time zone",
}
"""As ``format_type`` writes them."""

_COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def test_which_views_are_postgresql_s(database: Database) -> None:
    unknown = {
        view
        for view in VIEWS
        if database.value("SELECT to_regclass(%s) IS NULL", (f"pg_catalog.{view}",))
    }
    assert unknown == OUR_VIEWS


@pytest.mark.parametrize("view", sorted(VIEWS.keys() - OUR_VIEWS))
def test_the_columns_of_a_view_are_those_of_18(database: Database, view: str) -> None:
    """In its order, with its types."""
    native = database.execute(_COLUMNS, (f"pg_catalog.{view}",))
    ours = [(name, COLUMN_TYPES.get(name, "text")) for name in VIEWS[view].columns]
    assert [(name, NAMES.get(type_, type_)) for name, type_ in ours[: len(native)]] == [
        (name, "text" if type_ in TEXT_HERE else type_) for name, type_ in native
    ]
    assert tuple(name for name, _ in ours[len(native) :]) == OUR_COLUMNS.get(view, ())
