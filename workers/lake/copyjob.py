"""A table copied by Spark tasks onto a branch: one commit for all ranges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import pyarrow as pa
from pyspark import cloudpickle

from workers import copy_task
from workers.columnar import values
from workers.columnar.kernel import DIGEST
from workers.lake.branch_writer import BranchWriter
from workers.lake.destination import CopyPlan
from workers.lake.outcomes import read_outcomes
from workers.lake.snapshots import OPERATION, stamp_properties, write_options
from workers.lake.typemap import schema_ddl

_LOCAL: Final = re.compile(r"local\[([0-9]+)\]")

for _module in (copy_task, values):
    # Executors need not have this package: the task's code travels with the plan.
    cloudpickle.register_pickle_by_value(_module)


def run_copy(writer: BranchWriter, plan: CopyPlan, progress: Callable[[int, int], None]) -> int:
    """Copy every range and append the rows in one commit; returns how many rows there were."""
    session = writer.session
    total = len(plan.statements)
    tasks = number_of_tasks(session, plan)
    task = copy_task.CopyTask(
        plan.conninfo,
        plan.passfile,
        plan.snapshot,
        plan.statements,
        tasks,
        copy_task.CopyReader(
            [(column.name, column.type) for column in plan.columns],
            plan.on_unrepresentable == "null",
            plan.relation,
        ),
        plan.nodes,
        DIGEST,
    )
    schema = pa.schema([(f"c{n}", column.type) for n, column in enumerate(plan.columns)])
    numbered = session.spark.range(0, tasks, 1, tasks)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return task(batches)

    rows = numbered.mapInArrow(run, schema_ddl(schema))
    names = [column.name for column in plan.columns]
    operation = writer.operation_name()
    told = -1

    def tell(done_tasks: int) -> None:
        nonlocal told
        done = total * min(done_tasks, tasks) // tasks
        if done != told:
            told = done
            progress(done, total)

    tell(0)
    properties = {OPERATION: operation}
    if plan.stamp is not None:
        properties |= stamp_properties(plan.stamp, writer.sources(plan.stamp))
    with session.watched(tell):
        session.append(
            writer.projected(rows, names, plan),
            writer.target(),
            write_options(properties),
            f'copying to lake table "{writer.ident}"',
        )
    tell(tasks)
    return read_outcomes(session, {writer.ident: [operation]})[operation].added


class Configured(Protocol):
    """What is needed of a ``LakeSession``."""

    def conf(self, key: str) -> str | None:
        """A configuration value of the server."""


def number_of_tasks(session: Configured, plan: CopyPlan) -> int:
    """One task per range, unless Spark could run more of them at a time than there may be.

    Then as many as there may be, and each takes several ranges, one after the other.
    """
    total = len(plan.statements)
    if plan.workers is None or plan.workers >= total:
        return total
    local = _LOCAL.fullmatch(session.conf("spark.master") or "")
    if local is not None and int(local[1]) <= plan.workers:
        return total
    return plan.workers
