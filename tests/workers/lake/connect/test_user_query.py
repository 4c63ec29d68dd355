"""A user's own statements."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from tests.fix_lake import Lake
from tests.workers.lake.api.test_session_catalogs import descriptors
from workers.lake.api.session_catalogs import close_catalogs_of
from workers.lake.connect.user_query import run_query


@pytest.mark.spark
def test_a_users_own_session_does_not(lake_server: Lake) -> None:
    sharing = run_query(lake_server.url, "SET spark.sql.artifact.isolation.enabled")
    assert sharing.to_pylist()[0]["value"] == "true"


@pytest.mark.spark
def test_a_statement_has_a_cache_of_its_own_and_leaves_no_descriptor(lake_server: Lake) -> None:
    """The catalog behind the cache is closed, and the next statement is up to date."""
    table = "lake.queries.counted"
    close = partial(close_catalogs_of, lake_server.url)

    def query(sql: str) -> list[dict[str, Any]]:
        return run_query(lake_server.url, sql, close).to_pylist()

    assert query("SET `spark.sql.catalog.lake.cache-enabled`")[0]["value"] == "true"
    query("CREATE NAMESPACE IF NOT EXISTS lake.queries")
    query(f"CREATE TABLE {table} (n INT) USING iceberg")
    before = descriptors(lake_server)
    for n in range(20):
        query(f"INSERT INTO {table} VALUES ({n})")
        assert query(f"SELECT count(*) AS n FROM {table}") == [{"n": n + 1}]
    query(f"DROP TABLE {table}")
    assert descriptors(lake_server) <= before + 2


@pytest.mark.spark
def test_an_error_is_in_spark_s_words(lake_server: Lake) -> None:
    with pytest.raises(ReplicationError) as error:
        run_query(lake_server.url, "SELECT nothing FROM nowhere")
    assert error.value.code == "42P01"
    assert "TABLE_OR_VIEW_NOT_FOUND" in error.value.primary
    assert "at org.apache" not in error.value.report()
