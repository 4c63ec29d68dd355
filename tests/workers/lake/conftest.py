"""All lakes, for the contract tests, and a table of two columns in the real one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.fix_lake import Lake
from tests.workers.lake.contract import Make, Table
from tests.workers.lake.two_columns import COLUMNS, stamp
from workers.lake.api.table_api import Gateway, gateway_of
from workers.lake.table import LakeIdent


@pytest.fixture
def through_spark(iceberg: Make) -> Make:
    """Destinations of a Spark server without a gateway."""
    return partial(iceberg, direct=False)


@pytest.fixture(
    params=[
        "memory_lake",
        pytest.param("iceberg", marks=pytest.mark.spark),
        pytest.param("through_spark", marks=pytest.mark.spark),
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
def own(lake_server: Lake) -> Iterator[Gateway]:
    """Connections to the gateway of the lake server."""
    made = gateway_of(lake_server.url)
    assert made is not None
    yield made
    made.close()
