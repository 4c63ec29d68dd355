"""A run without the name of an excluded column is the fault of its first transaction."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.pg_subscription import TableOptions
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.changes.by_table import Run, frame_batch
from workers.changes.failed_transaction import FailedTransaction
from workers.changes.guarded_runs import check_run
from workers.changes.relation_map import LogicalRepRelMap
from workers.proto.messages import Insert, Relation

OPTIONS = TableOptions(excluded=("ssn",))


def run_of(message: Relation) -> Run:
    values = row(*"123"[: len(message.columns)])
    framed = frame_batch(batch([], [message, Insert(1, values)]), LogicalRepRelMap())
    (run,) = framed.runs({("public", "a"): np.ones(2, np.bool_)})["public", "a"]
    return run


def test_a_run_has_every_excluded_column(world: Subscribed) -> None:
    rel = world.rel("a")
    check_run(rel, run_of(relation(1, "a", "id", "ssn", "v")), OPTIONS)
    check_run(rel, run_of(relation(1, "a", "id", "v")), TableOptions())
    check_run(rel, Run(None, None, truncate=True), OPTIONS)
    with pytest.raises(FailedTransaction) as caught:
        check_run(rel, run_of(relation(1, "a", "id", "social", "v")), OPTIONS)
    assert (caught.value.txn, caught.value.error.code) == (1, "55000")
    assert caught.value.error.tables == (rel,)
