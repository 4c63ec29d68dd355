"""Random workloads under random faults, of the store and the catalog as well; seeds of ``make
chaos LAKE=s3 WRITER=drawn``. And that a file which nobody knows is found in the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.chaos.lake_faults import LAKE_KINDS
from tests.chaos.left_behind import needless_branches, orphan_files
from tests.chaos.plan import DRAWN, S3, Choices, Plan, plan_of
from tests.chaos.run import PUBLISHER_CONF, Run
from tests.crash.family import Family
from tests.twin import NativeTwin

pytestmark = pytest.mark.lake

SEEDS = (4, 7)
CHOICES = Choices(ddl=False, lake=S3, writer=DRAWN)


def _plan(seed: int) -> Plan:
    return plan_of(seed, CHOICES, transactions=100)


@pytest.fixture(scope="module")
def chaos_publisher() -> Iterator[EmbeddedPublisher]:
    """A publisher that faults may restart."""
    with EmbeddedPublisher(18, conf=PUBLISHER_CONF) as server:
        yield server


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_comes_once(
    seed: int,
    family_on_s3: Family,
    chaos_publisher: EmbeddedPublisher,
    twin: NativeTwin,
    tmp_path: Path,
) -> None:
    plan = _plan(seed)
    outcome = Run(plan, family_on_s3, chaos_publisher, twin, tmp_path / "run").play()
    assert outcome.good, str(outcome)
    assert {fault.kind for fault in outcome.hit} & set(LAKE_KINDS)


def test_the_seeds_have_two_writers() -> None:
    assert len({_plan(seed).writer for seed in SEEDS}) > 1


def test_what_nobody_knows_is_found(family_on_s3: Family) -> None:
    stack = family_on_s3.stack
    assert stack
    rows = pa.table({"id": [1, 2, 3]})
    with stack.open_catalog() as catalog:
        catalog.create_namespace("left")
        table = catalog.create_table(("left", "t"), rows.schema)
        table.append(rows)
        table.overwrite(rows)
    look = stack, family_on_s3.pgsub.data_dir, ["left"]
    assert orphan_files(*look) == []
    assert needless_branches(stack, ["left"]) == []
    stray = f"{table.location().removeprefix('s3://')}/data/stray.parquet"
    with stack.store.system(stack.keys).open_output_stream(stray) as file:
        file.write(b"rows of a killed batch")
    assert orphan_files(*look) == [stray]
    family_on_s3.forget_tables("left")
    assert orphan_files(*look) == []
