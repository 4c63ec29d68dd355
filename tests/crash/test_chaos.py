"""Random workloads under random faults; and that the comparison would find what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.chaos.outcome import Outcome
from tests.chaos.plan import Plan, make_plan
from tests.chaos.run import PUBLISHER_CONF, Run
from tests.crash.family import Family
from tests.twin import NativeTwin

SEEDS = (973, 252, 923)
TRANSACTIONS = 100
"""Two thirds of what ``make chaos`` plays: setting up and comparing takes its time as well."""

CERTAIN = ("crash publisher", "disk full", "slow machine")
UNDISTURBED = (
    1003,
    *(pytest.param(seed, marks=pytest.mark.crash) for seed in (1001, 1002)),  # make test-full
)
ALTERED = (1, 4)
"""Seeds that change tables, by looking and told by triggers."""

Play = Callable[[Plan], Outcome]


@pytest.fixture(scope="module")
def chaos_publisher() -> Iterator[EmbeddedPublisher]:
    """A publisher that faults may restart."""
    with EmbeddedPublisher(18, conf=PUBLISHER_CONF) as server:
        yield server


@pytest.fixture
def play(
    family: Family, chaos_publisher: EmbeddedPublisher, twin: NativeTwin, tmp_path: Path
) -> Play:
    """Plays a plan beside the native subscriber."""
    return lambda plan: Run(plan, family, chaos_publisher, twin, tmp_path / "run").play()


def test_the_seeds_have_a_fault_of_each_sort() -> None:
    """Whoever adds a kind of fault changes what every seed does, and chooses others here."""
    planned = {fault.kind for seed in SEEDS for fault in _plan(seed).faults}
    assert planned >= {"kill lake server", "kill fork server", "crash publisher", "disk full"}
    assert planned >= {"slow storage", "slow machine", "kill apply worker", "cut connections"}
    assert any(_plan(seed).lineage for seed in SEEDS)
    assert {0, None} < {_plan(seed).spark_after for seed in SEEDS}, "and one in the middle"


@pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.crash) for seed in SEEDS[1:])]
)
def test_s_p_10_every_row_comes_once(seed: int, play: Play) -> None:
    plan = _plan(seed)
    outcome = play(plan)
    assert outcome.good, str(outcome)
    certain = [fault for fault in plan.faults if fault.kind in CERTAIN]
    assert set(outcome.hit) >= set(certain), "these always find somebody"


@pytest.mark.parametrize("seed", UNDISTURBED)
def test_s_p_10_rows_are_a_native_subscriber_s(seed: int, play: Play) -> None:
    """Where nothing dies the twin has to be right too; hundreds by ``make chaos FAULTS=no``."""
    outcome = play(_plan(seed, faults=False))
    assert outcome.good, str(outcome)
    assert outcome.compared is not None
    assert outcome.compared.native, "the native subscriber stands still, so nothing was compared"
    assert not outcome.compared.native_wrong


@pytest.mark.crash
@pytest.mark.parametrize("seed", ALTERED)
def test_changed_tables_are_the_publisher_s(seed: int, play: Play) -> None:
    """Columns and names change meanwhile; hundreds by ``make chaos DDL=yes``."""
    outcome = play(make_plan(seed, TRANSACTIONS, ddl=True))
    assert outcome.good, str(outcome)
    assert outcome.alterations > 10


def test_the_changed_tables_are_told_and_looked_for() -> None:
    changes = [make_plan(seed, ddl=True).ddl for seed in ALTERED]
    assert {each.captured for each in changes if each} == {True, False}


def test_what_is_wrong_is_found(
    family: Family, chaos_publisher: EmbeddedPublisher, tmp_path: Path
) -> None:
    plan = make_plan(7, transactions=40, faults=False, ddl=False)
    run = Run(plan, family, chaos_publisher, None, tmp_path / "run", meddle=_lose_double_change)
    outcome = run.play()
    assert outcome.compared is not None, str(outcome)
    assert not outcome.compared.native
    found = {
        each.table.rpartition(".")[2]: (each.missing.total(), each.extra.total())
        for each in outcome.compared.wrong
    }
    assert found == {"acc": (1, 0), "log": (0, 1), "typ": (1, 1)}
    assert (tmp_path / "run" / "events.jsonl").exists(), "it is kept for whoever looks into it"


def _plan(seed: int, *, faults: bool = True) -> Plan:
    return make_plan(seed, TRANSACTIONS, faults=faults, ddl=False)


def _lose_double_change(run: Run) -> None:
    """One row in each of three tables."""
    for table in ("acc", "typ"):
        run.pub.run(f"INSERT INTO {run.schema}.{table} (id) VALUES (1000)")
    run.settle()
    for statement in (
        "DELETE FROM lake.{s}.acc WHERE id = 1000",
        "INSERT INTO lake.{s}.log SELECT * FROM lake.{s}.log LIMIT 1",
        "UPDATE lake.{s}.typ SET o = true WHERE id = 1000",
    ):
        run.family.pgsub.command("sql", statement.format(s=run.schema))
