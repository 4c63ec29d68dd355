"""A user's own statements."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from tests.fix_lake import Lake
from workers.lake.connect.user_query import run_query


@pytest.mark.spark
def test_a_users_own_session_does_not(lake_server: Lake) -> None:
    sharing = run_query(lake_server.url, "SET spark.sql.artifact.isolation.enabled")
    assert sharing.to_pylist()[0]["value"] == "true"


@pytest.mark.spark
def test_an_error_is_in_spark_s_words(lake_server: Lake) -> None:
    with pytest.raises(ReplicationError) as error:
        run_query(lake_server.url, "SELECT nothing FROM nowhere")
    assert error.value.code == "42P01"
    assert "TABLE_OR_VIEW_NOT_FOUND" in error.value.primary
    assert "at org.apache" not in error.value.report()
