"""Apply segments through Spark: a MERGE of the rows that change, then an append of the new ones.

A MERGE only ever updates or deletes matched rows. New rows are appended by a second commit, because
a MERGE with a NOT MATCHED clause shuffles the whole table. Spark returns no counts for a MERGE;
``merge_results`` finds the snapshot by the MERGE's name and reads the counts there.

Trace: segment [update 1, delete 9, append 4]. The MERGE is one commit. The new row comes back to
the caller as ``NewRows``: where this process writes the table's files, the file writer appends it.
Elsewhere the caller asks this writer again, and the append is the second commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.connect import functions as F  # noqa: N812 - its usual name
from pyspark.sql.connect.plan import SQL, SubqueryAlias
from sqlglot import exp

from workers.lake.connect.errors import LakeFailure
from workers.lake.connect.session import LakeSession
from workers.lake.copy_plan import CopyPlan
from workers.lake.effects import Counts, Merge
from workers.lake.interfaces.segment_writer import (
    Barrier,
    Commit,
    CommitNames,
    CopyRun,
    NewRows,
    Properties,
    SegmentWriter,
    Step,
    WriterEffect,
)
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.snapshots import OPERATION, write_options
from workers.lake.refusals import changed_meanwhile, duplicate
from workers.lake.segment import Constants, KeyLookup, Segment, WholeRowLookup
from workers.lake.sql.generated_values import generated_at
from workers.lake.sql.merge import (
    DELETE,
    UPDATE,
    by_key,
    by_position,
    merge_by_key,
    merge_by_position,
)
from workers.lake.sql.merge_results import read_outcomes
from workers.lake.sql.other_writers import (
    NO_OTHER_WRITERS,
    OtherWriters,
    count_rows_of_others,
)
from workers.lake.sql.row_queries import RowQueries
from workers.lake.sql.spark_typemap import schema_ddl, spark_ddl_or_void
from workers.lake.sql.staged_frame import frame
from workers.lake.sql.statements import (
    branch_path,
    delete_source,
    name_of,
    select_filled,
    select_source,
    sql_text,
)
from workers.lake.staged_rows import Staged
from workers.lake.storage.staging import Staging, staged_columns
from workers.lake.table import SOURCE_COLUMN, LakeColumn, LakeIdent

_CARDINALITY: Final = "MERGE_CARDINALITY_VIOLATION"


def _do_nothing() -> None: ...


@dataclass(slots=True)
class MergeSegmentWriter(SegmentWriter):
    """Has Spark apply the segments. Accepts every segment.

    ``other_writers`` have committed to the table; the effect counts changes of rows of other
    writers. ``before_commit`` is called before every commit that changes the branch's files.
    """

    tables: TableApi
    queries: RowQueries
    columns: Sequence[LakeColumn]
    names: CommitNames
    other_writers: OtherWriters = NO_OTHER_WRITERS
    before_commit: Callable[[], None] = _do_nothing
    _appended: Counter[str] = field(default_factory=Counter)
    _merges: list[Merge] = field(default_factory=list)
    _rows_of_others: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def session(self) -> LakeSession:
        """The Spark session that commits."""
        return self.queries.session

    @property
    def staging(self) -> Staging:
        """Where staged rows go that are too many for a plan."""
        return self.queries.staging

    @property
    def ident(self) -> LakeIdent:
        """The table."""
        return self.queries.ident

    @property
    def branch(self) -> str:
        """The branch."""
        return self.queries.branch

    def accepts(self, segment: Segment) -> bool:
        """Always."""
        del segment
        return True

    def steps(self, segment: Segment) -> Iterator[Step]:
        """MERGE of the changes; new rows beside changes go back to the caller.

        Files from before the commit cannot be taken: the transaction is applied without them.
        """
        if segment.ahead:
            raise changed_meanwhile(self.ident)
        if segment.merge is not None and segment.merge.rows:
            yield self._merge(segment, segment.merge)
        if segment.row_lookup is not None:
            yield from self._whole_rows(segment, segment.row_lookup)
        if segment.append is not None and segment.append.rows:
            if segment.merge is not None or segment.row_lookup is not None:
                yield _new_rows(segment, segment.append)
            else:
                yield Commit(partial(self._append, segment, segment.append))
        if segment.from_branch is not None:
            yield Commit(partial(self._append_branch, segment.from_branch, segment.source))
        if segment.fill:
            yield Commit(partial(self._fill, segment.fill))

    def effect(self, source: str = "") -> WriterEffect:
        """Appended rows, and changed rows of other writers; counts of MERGEs are read later."""
        counts = Counts(
            appended=self._appended[source],
            update_origin_differs=self._rows_of_others[source, UPDATE],
            delete_origin_differs=self._rows_of_others[source, DELETE],
        )
        return WriterEffect(counts, tuple(each for each in self._merges if each.source == source))

    def find_keys(self, segment: Segment, lookup: KeyLookup) -> pa.Table:
        """The keys that rows of the branch have: the argument of ``KeyLookup.decide``.

        Called behind a ``Barrier``. Only Spark looks up keys that may be new; the file writer looks
        up rows that change.
        """
        return self.queries.keys(segment, lookup)

    def truncate(self, source: str) -> Commit:
        """The commit that empties the table, or removes a source's rows from a shared table."""
        return Commit(partial(self._truncate, source), carries_properties=False)

    def _truncate(self, source: str, properties: Properties) -> None:
        del properties  # TRUNCATE cannot carry them
        self.before_commit()
        self.session.set_properties({})
        self.session.command(
            delete_source(self.ident, self.branch, source)
            if source
            else sql_text("TRUNCATE TABLE", branch_path(self.ident, self.branch)),
            f"truncating {self._what()}",
        )

    # -- MERGE ------------------------------------------------------------------------------------

    def _merge(self, segment: Segment, staged: Staged) -> Commit:
        updates = _count_updates(staged)
        bounds = self.queries.bounds(segment, staged)
        sql = merge_by_key(
            self.ident,
            self.branch,
            columns=segment.columns,
            key=segment.key,
            unchanged=segment.unchanged,
            generated=segment.generated,
            bounds=bounds,
            deletes=updates < staged.rows,
            updates=updates > 0,
            of=segment.source,
        )
        count = self._count_of_others(by_key(segment.key, bounds, segment.source))
        merge = Merge(staged.rows, updates, segment.key, source=segment.source)

        def run(properties: Properties) -> None:
            with self.staging.for_spark(staged) as source:
                self._run_merge(sql, frame(self.session, source), merge, count, properties)

        return Commit(run)

    def _whole_rows(self, segment: Segment, lookup: WholeRowLookup) -> Iterator[Step]:
        if lookup.images.rows:
            yield Barrier(segment.source)
        positions, append = lookup.decide(self.queries.whole_rows(segment, lookup.images))
        if positions is not None and positions.rows:
            yield self._merge_at_positions(segment, positions)
        if append is not None and append.rows:
            yield _new_rows(segment, append)

    def _merge_at_positions(self, segment: Segment, positions: Staged) -> Commit:
        updates = _count_updates(positions)
        generated = segment.generated if updates else ()
        sql = merge_by_position(
            self.ident,
            self.branch,
            columns=segment.columns,
            deletes=updates < positions.rows,
            updates=updates > 0,
            generated=[name for name, _ in generated],
        )
        merge = Merge(positions.rows, updates, source=segment.source)
        count = self._count_of_others(by_position())

        def run(properties: Properties) -> None:
            rows = frame(self.session, positions)
            if generated:
                where = (self.session, self.ident, self.branch)
                rows = generated_at(*where, rows, segment.columns, generated)
            self._run_merge(sql, rows, merge, count, properties)

        return Commit(run)

    def _count_of_others(self, on: Sequence[exp.Expression]) -> str | None:
        """The query that counts matched rows of other writers before a MERGE, if needed."""
        if not self.other_writers:
            return None
        return count_rows_of_others(self.ident, self.branch, on, self.other_writers)

    def _run_merge(
        self, sql: str, source: Any, merge: Merge, count: str | None, properties: Properties
    ) -> None:
        if count is not None:
            what = f"looking for rows of other writers in {self._what()}"
            found = self.session.query(count, what, s=source)
            changed = {(merge.source, row["op"]): row["n"] for row in found.to_pylist()}
            self._rows_of_others.update(changed)
        self.before_commit()
        merge = replace(merge, operation=self.names.next())
        self.session.set_properties({**properties, OPERATION: merge.operation})
        try:
            self.session.command(sql, f"merging into {self._what()}", s=source)
        except LakeFailure as error:
            if _CARDINALITY in error.message:
                found_twice = "Two changes of one batch match one row."
                raise duplicate(self.ident, merge.key, found_twice) from None
            raise
        self._merges.append(merge)

    # -- new rows ---------------------------------------------------------------------------------

    def _append(self, segment: Segment, staged: Staged, properties: Properties) -> None:
        if staged.own is not None:  # written as data files, which the table no longer accepts
            raise changed_meanwhile(self.ident)
        self.before_commit()
        self._appended[segment.source] += staged.rows
        self.session.set_properties({})
        rows = self._projected(frame(self.session, staged), segment.columns, segment)
        self.session.append(
            # Few rows make one file: the time to read a table grows with the number of its files.
            rows if staged.paths else rows.coalesce(1),
            self.target(),
            write_options(properties),
            f"appending to {self._what()}",
        )

    def _append_branch(self, branch: str, source: str, properties: Properties) -> None:
        self.before_commit()
        self.tables.check_branch(self.ident, branch)
        self.session.append(
            self.session.frame(SQL(select_source(self.ident, branch, source))),
            self.target(),
            write_options(properties),
            f"appending to {self._what()}",
        )

    def _single_row(self, values: Constants, letter: str) -> Any:
        """Values as a DataFrame of a row; the columns are numbered behind the ``letter``."""
        repeat: Any = pa.repeat  # the stubs do not know scalars of unknown type
        row = {f"{letter}{n}": repeat(value, 1) for n, (_, value) in enumerate(values)}
        return self.session.local(pa.table(row))

    def _fill(self, values: Constants, properties: Properties) -> None:
        """Write all rows again: a MERGE would leave a delete behind for each of them."""
        self.before_commit()
        numbers = {name: f"c{n}" for n, (name, _) in enumerate(values)}
        names = [column.name for column in self.columns]
        rows = SQL(
            select_filled(self.ident, self.branch, names, numbers),
            *(None, None),
            [SubqueryAlias(self._single_row(values, "c")._plan, "s")],
        )
        self.session.overwrite(
            self.session.frame(rows),
            self.target(),
            write_options(properties),
            f"filling columns of {self._what()}",
        )

    def commit_empty(self, properties: Properties) -> None:
        """Append no rows."""
        self.tables.commit_empty(self.ident, self.branch, properties, self.columns)

    def accepts_copy(self, plan: CopyPlan) -> bool:
        """Always."""
        del plan
        return True

    def copy(self, plan: CopyPlan, run: CopyRun, properties: Properties) -> int:
        """Append the rows of the tasks; the number of rows is in the snapshot's summary."""
        task, names = run.task, [column.name for column in plan.columns]

        def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            return task(batches)

        schema = pa.schema([(f"c{n}", column.type) for n, column in enumerate(plan.columns)])
        self.before_commit()
        with run.reported():
            rows = run.numbers.mapInArrow(read, schema_ddl(schema))
            self.session.append(
                self._projected(rows, names, plan),
                self.target(),
                write_options(properties),
                f"copying to {self._what()}",
            )
        operation = properties[OPERATION]
        return read_outcomes(self.session, {self.ident: [operation]})[operation].added

    def _projected(self, rows: Any, columns: Sequence[str], given: Segment | CopyPlan) -> Any:
        """Staged columns under the table's names; unpublished columns get the default or NULL.

        Generated columns are computed over the named columns, in a second step.
        """
        ordinals = {name: n for n, name in enumerate(columns)}
        constants = given.constants if isinstance(given, Segment) else ()
        if constants:
            rows = rows.crossJoin(self._single_row(constants, "k"))
        known = {name: f"k{n}" for n, (name, _) in enumerate(constants)}
        defaults, generated = dict(given.defaults), dict(given.generated)
        selected = []
        for column in self.columns:
            if given.source and column.name == SOURCE_COLUMN:
                value = F.lit(given.source)
            elif column.name in ordinals:
                value = F.col(f"c{ordinals[column.name]}")
            elif column.name in known:
                value = F.col(known[column.name])
            elif column.name in generated:
                continue
            elif column.name in defaults:
                value = F.expr(defaults[column.name])
            else:
                value = F.lit(None).cast(spark_ddl_or_void(column.type))
            selected.append(value.alias(column.name))
        named = rows.select(*selected)
        if not generated:
            return named
        return named.select("*", *(F.expr(text).alias(name) for name, text in generated.items()))

    def target(self) -> str:
        """The branch as a name to write to."""
        return name_of(branch_path(self.ident, self.branch))

    def _what(self) -> str:
        return f'lake table "{self.ident}"'


def _new_rows(segment: Segment, staged: Staged) -> NewRows:
    alone = replace(segment, merge=None, row_lookup=None, append=staged, from_branch=None)
    return NewRows(alone)


def _count_updates(staged: Staged) -> int:
    """The number of updates among a MERGE's source rows; the others delete."""
    return int((staged_columns(staged, ["op"])["op"].to_numpy() == UPDATE).sum())
