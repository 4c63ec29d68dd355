import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.compare import Compared
from tests.chaos.faults import CHANGED
from tests.chaos.outcome import Outcome
from tests.chaos.plan import make_plan
from tests.chaos.workload import Workload


def test_a_seed_stays_what_it_was() -> None:
    """What is drawn since comes behind what was drawn before."""
    assert str(make_plan(32, ddl=False)) == (
        "after 19: stall connections for 4.3 s; after 30: slow machine for 4.3 s;"
        " after 54: kill fork server; after 63: slow storage for 4.7 s;"
        " after 86: freeze lake server for 5.6 s;"
        " after 97: error at a place tablesync.branch_created; track_commit_timestamp = on;"
        " binary = true; streamed: immediately; two_phase = true"
    )
    assert str(make_plan(22, ddl=False)) == (
        "after 18: disk full for 4.1 s; after 39: cut connections; after 42: crash publisher;"
        " after 48: kill apply worker; after 87: kill Spark's Python daemons;"
        " after 141: delay at a place apply.before_ready for 1.7 s; two_phase = true"
    )


@pytest.mark.parametrize("faults", [True, False])
def test_a_quarter_of_the_seeds_draws_each_option(faults: bool) -> None:
    plans = [make_plan(seed, faults=faults) for seed in range(400)]
    for option in ("lineage", "binary", "permanent", "two_phase"):
        assert 70 < sum(getattr(plan, option) for plan in plans) < 130, option
    written = [plan.spark_after for plan in plans if plan.spark_after is not None]
    assert 70 < len(written) < 130
    assert 30 < written.count(0) < 70, "half of them from the start"
    assert {(plan.binary, plan.permanent) for plan in plans} == {
        (binary, permanent) for binary in (True, False) for permanent in (True, False)
    }
    streamed = Counter(plan.streamed for plan in plans)
    assert {each: count > 60 for each, count in streamed.items()} == dict.fromkeys(
        (None, "when large", "immediately"), True
    )
    assert not [plan.seed for plan in plans if plan.two_phase and plan.late_after is not None]


def test_half_of_the_seeds_change_tables() -> None:
    plans = [make_plan(seed) for seed in range(400)]
    changes = [plan.ddl for plan in plans if plan.ddl is not None]
    assert 170 < len(changes) < 230
    assert {(each.captured, each.drops) for each in changes} == {
        (captured, drops) for captured in (True, False) for drops in (True, False)
    }
    assert not [plan for plan in plans if plan.two_phase and plan.ddl and plan.ddl.refreshes]
    assert 20 < sum(each.refreshes for each in changes) < 80
    assert {make_plan(seed, ddl=True).ddl is None for seed in range(20)} == {False}
    places = {fault.place for plan in plans if plan.ddl for fault in plan.faults if fault.place}
    assert places >= set(CHANGED)


def test_a_seed_without_changed_tables_is_as_before() -> None:
    for seed in range(20):
        plain, changing = make_plan(seed, ddl=False), make_plan(seed, ddl=True)
        assert set(plain.faults) <= set(changing.faults)
        assert replace(changing, faults=plain.faults, ddl=None) == plain


def test_prepared_transactions_end_while_others_go_on() -> None:
    workload = Workload(3, "s3", prepares=True)
    open: set[str] = set()
    most = 0
    for step in itertools.islice(workload.steps(), 2000):
        words, _, gid = step.sql.partition(" '")
        if words == "PREPARE TRANSACTION":
            open.add(gid)
        elif words in ("COMMIT PREPARED", "ROLLBACK PREPARED"):
            open.remove(gid)
        most = max(most, len(open))
    assert most > 1
    assert {gid.strip("'") for gid in workload.prepared} == {gid.strip("'") for gid in open}


@pytest.mark.parametrize(
    ("native", "told"), [(True, ": right"), (False, ": right (no native subscriber beside it)")]
)
def test_an_outcome_says_what_it_was_compared_with(native: bool, told: str) -> None:
    plan = make_plan(2, faults=False, ddl=False)
    outcome = Outcome(plan, 1.0, 150, Compared(5, native, (), ()), None, Path("seed-2"))
    assert outcome.good
    assert str(outcome).endswith(f"5 rows, 0 faults{told}")
