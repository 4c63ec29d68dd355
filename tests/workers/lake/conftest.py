"""All lakes, for the contract tests, and a table of two columns in the real one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.fix_lake import Lake
from tests.ports import free_port
from tests.workers.lake.contract import Make, Table
from tests.workers.lake.two_columns import COLUMNS, stamp
from workers.lake.api.gateway import Gateway, gateway_of
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.sessions import Sessions
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.table import LakeIdent


@pytest.fixture
def through_spark(iceberg: Make) -> Make:
    """Destinations of a Spark server without a gateway."""
    return partial(iceberg, direct=False)


@pytest.fixture
def spark_writer(iceberg: Make) -> Make:
    """Destinations on the gateway that leave all rows to Spark."""
    return partial(iceberg, writer="spark")


@pytest.fixture
def commit_service(iceberg: Make) -> Make:
    """Destinations with a commit service beside a Spark server that does what is large."""
    return partial(iceberg, beside=True)


@pytest.fixture(
    params=[
        "memory_lake",
        pytest.param("iceberg", marks=pytest.mark.spark),
        pytest.param("through_spark", marks=pytest.mark.spark),
        pytest.param("spark_writer", marks=[pytest.mark.spark, pytest.mark.long]),
        pytest.param("commit_service", marks=[pytest.mark.spark, pytest.mark.long]),
    ]
)
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def table(make: Make, lake_ident: LakeIdent) -> Table:
    return Table(make(), lake_ident)


@pytest.fixture
def dest(iceberg: Make, lake_ident: LakeIdent) -> Any:
    made = iceberg()
    made.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    return made


@pytest.fixture
def lake_gateway(lake_server: Lake) -> Iterator[Gateway]:
    """Connections to the gateway of the lake server."""
    made = gateway_of(lake_server.url)
    assert made is not None
    yield made
    made.close()


@pytest.fixture
def sessions(iceberg: Make) -> Sessions:
    """The Spark sessions of a destination."""
    destination: Any = iceberg()
    found: Sessions = destination._sessions
    return found


@pytest.fixture
def sql_tables(sessions: Sessions) -> SqlTableApi:
    return SqlTableApi(sessions)


@pytest.fixture
def gateway_tables(
    lake_gateway: Gateway, sql_tables: SqlTableApi, sessions: Sessions
) -> GatewayTableApi:
    return GatewayTableApi(lake_gateway, sql_tables, sessions)


@pytest.fixture
def closed_port() -> int:
    return free_port()


@pytest.fixture
def left_sockets() -> Iterator[None]:
    """py4j leaves a socket that could not be connected to the garbage collector; collect it."""
    yield
    gc.collect()
