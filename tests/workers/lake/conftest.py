"""Both lakes, for the contract tests."""

from __future__ import annotations

import pytest

from tests.workers.lake.contract import Make, Table
from workers.lake.destination import LakeIdent


@pytest.fixture(params=["memory_lake", pytest.param("iceberg", marks=pytest.mark.spark)])
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def table(make: Make, lake_ident: LakeIdent) -> Table:
    return Table(make(), lake_ident)
