"""A table copied by Spark tasks onto a branch: one task per range, one commit for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark import cloudpickle

from workers import copy_task
from workers.columnar import values
from workers.lake.branch_writer import BranchWriter
from workers.lake.destination import CopyPlan
from workers.lake.snapshots import OPERATION, read_outcomes, write_options
from workers.lake.typemap import schema_ddl

for _module in (copy_task, values):
    # Executors need not have this package: the task's code travels with the plan.
    cloudpickle.register_pickle_by_value(_module)


def run_copy(writer: BranchWriter, plan: CopyPlan, progress: Callable[[int, int], None]) -> int:
    """Copy every range and append the rows in one commit; returns how many rows there were."""
    session = writer.session
    total = len(plan.statements)
    task = copy_task.CopyTask(
        plan.conninfo,
        plan.passfile,
        plan.snapshot,
        plan.statements,
        copy_task.CopyReader(
            [(column.name, column.type) for column in plan.columns],
            plan.on_unrepresentable == "null",
            plan.relation,
        ),
    )
    schema = pa.schema([(f"c{n}", column.type) for n, column in enumerate(plan.columns)])
    ranges = session.spark.range(0, total, 1, total)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return task(batches)

    rows = ranges.mapInArrow(run, schema_ddl(schema))
    names = [column.name for column in plan.columns]
    operation = writer.operation_name()
    told = -1

    def tell(done: int) -> None:
        nonlocal told
        if done != told:
            told = done
            progress(done, total)

    tell(0)
    with session.watched(lambda done: tell(min(done, total))):
        session.append(
            writer.projected(rows, names, dict(plan.defaults)),
            writer.target(),
            write_options({OPERATION: operation}),
            f'copying to lake table "{writer.ident}"',
        )
    tell(total)
    return read_outcomes(session, writer.ident, [operation])[operation].added
