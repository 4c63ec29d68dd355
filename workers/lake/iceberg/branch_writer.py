"""A batch's segments onto a branch: in order, each operation one commit, the last one stamped.

Which operations leave a stamp matters. DataFrame appends and row-level MERGEs carry the snapshot
properties they are given; TRUNCATE (a metadata-only delete) carries none, and what a segment does
may turn out to be nothing. So every operation is held back until it is known whether another one
follows, and a batch that does not end in one that can be stamped ends in an empty append.

Trace: segments [truncate, append 5] [merge 3]. TRUNCATE runs unstamped, the append unstamped, the
MERGE stamped: three snapshots on the branch, and only the last says how far the table is.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.connect import functions as F  # noqa: N812 - its usual name
from pyspark.sql.connect.plan import SQL
from sqlglot import exp

from catalog.pg_lsn import LSN
from workers.lake.connect.errors import LakeFailure
from workers.lake.connect.session import LakeSession
from workers.lake.copy_plan import CopyPlan
from workers.lake.effects import Counts, Effect, Merge, added
from workers.lake.files.segment_writer import DirectWriter, Found
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.snapshots import OPERATION, stamp_properties, write_options
from workers.lake.refusals import changed_meanwhile, check_base, duplicate
from workers.lake.segment import (
    FOUND_ROWS,
    NO_KEY_FOUND,
    KeyLookup,
    Segment,
    WholeRowLookup,
    no_keys_found,
)
from workers.lake.sql.find_rows import find_any_key, find_keys, find_positions
from workers.lake.sql.generated_values import generated_at
from workers.lake.sql.key_bounds import KeyRanges, choose_bounds
from workers.lake.sql.merge import (
    DELETE,
    UPDATE,
    by_key,
    by_position,
    merge_by_key,
    merge_by_position,
)
from workers.lake.sql.other_writers import NO_OTHER_WRITERS, OtherWriters, count_rows_of_others
from workers.lake.sql.spark_typemap import spark_ddl_or_void
from workers.lake.sql.staged_frame import frame
from workers.lake.sql.statements import branch_path, delete_source, name_of, select_source, sql_text
from workers.lake.staged_rows import Staged
from workers.lake.storage.staging import Staging, staged_columns
from workers.lake.table import SOURCE_COLUMN, LakeColumn, LakeIdent, Stamp

_CARDINALITY = "MERGE_CARDINALITY_VIOLATION"


@dataclass(frozen=True, slots=True)
class Operation:
    """One commit; ``run`` gets the snapshot properties to leave on it.

    ``run`` is None where nothing is to be committed but everything before must be in the table
    before the segment goes on (``flush``).
    """

    run: Callable[[dict[str, str]], None] | None
    stampable: bool = True


_FLUSH = Operation(None)


@dataclass(slots=True)
class BranchWriter:
    """One batch of one table, on one thread; ``others`` wrote to the table beside us."""

    session: LakeSession
    tables: TableApi
    staging: Staging
    ident: LakeIdent
    branch: str
    columns: Sequence[LakeColumn]
    key_ranges: KeyRanges
    others: OtherWriters = NO_OTHER_WRITERS
    direct: DirectWriter | None = None
    _batch: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _merges: list[Merge] = field(default_factory=list)
    _done: Counts = field(default_factory=Counts)
    _met: Counter[int] = field(default_factory=Counter)
    _operation_count: int = 0

    def write(self, segments: Sequence[Segment], stamp: Stamp, base: LSN | None = None) -> Effect:
        """Run everything; the branch's tip carries ``stamp`` when this returns."""
        sources = self.sources(stamp)
        check_base(self.ident, sources.get(stamp.source), stamp, base)
        properties = stamp_properties(stamp, sources)
        held: Operation | None = None
        for operation in self._operations(segments):
            if held is not None and held.run is not None:
                held.run(self._mark())
            held = operation
        if held is not None and held.run is not None and held.stampable:
            held.run(properties)
        else:
            if held is not None and held.run is not None:
                held.run(self._mark())
            self.append_empty(properties)
        counts = replace(
            self._done,
            update_origin_differs=self._met[UPDATE],
            delete_origin_differs=self._met[DELETE],
        )
        return Effect(self.ident, self.branch, counts, tuple(self._merges))

    def sources(self, stamp: Stamp) -> Mapping[str, Stamp]:
        """The positions of a shared table's sources, as of this branch and no other moment.

        Those of ``main`` may be newer by now, and then the branch does not hold their rows. Not
        one where the stamp is of a table that has one owner.
        """
        if not stamp.source:
            return {}
        return self.tables.history(self.ident).sources(self.branch)

    def append_empty(self, properties: dict[str, str]) -> None:
        """A commit without rows, for what it carries."""
        if self.direct is not None:
            self.direct.stamp(properties)
            return
        self.tables.commit_empty(self.ident, self.branch, properties, self.columns)

    def _mark(self) -> dict[str, str]:
        """What a commit bears that has no stamp: that it is ours."""
        return {OPERATION: self.operation_name()}

    def operation_name(self) -> str:
        """A name for a commit of this batch, to find it by afterwards."""
        self._operation_count += 1
        return f"{self._batch}-{self._operation_count}"

    # -- the operations of a segment ------------------------------------------------------------

    def _operations(self, segments: Sequence[Segment]) -> Iterator[Operation]:
        # What comes before the last TRUNCATE leaves no trace.
        first = max((n for n, s in enumerate(segments) if s.truncate), default=0)
        for segment in segments[first:]:
            if segment.truncate:
                yield Operation(partial(self._truncate, segment.source), stampable=False)
            if segment.key_lookup is not None:
                yield _FLUSH
                yield from self._changes(self._probe(segment, segment.key_lookup))
            else:
                yield from self._changes(segment)

    def _changes(self, segment: Segment) -> Iterator[Operation]:
        if self.direct is not None and self._is_direct(self.direct, segment):
            found = None
            looks_first = self.direct.looks_first(segment)
            if looks_first:
                yield _FLUSH
                # What would come here may be too large for Spark to send; a MERGE keeps it there.
                with contextlib.suppress(LakeFailure):
                    found = self.direct.look_up(segment)
            if found is not None or not looks_first:
                yield Operation(partial(self._write_direct, self.direct, segment, found))
                return
        if segment.merge is not None and segment.merge.rows:
            yield self._merge(segment, segment.merge)
        if segment.row_lookup is not None and segment.row_lookup.images.rows:
            yield _FLUSH
            yield from self._full(segment, segment.row_lookup)
        elif segment.row_lookup is not None:
            yield from self._resolved(segment, segment.row_lookup, _NOTHING_FOUND)
        if segment.append is not None and segment.append.rows:
            yield self._append(segment, segment.append)
        if segment.from_branch is not None:
            yield Operation(partial(self._from_branch, segment.from_branch, segment.source))

    def _is_direct(self, direct: DirectWriter, segment: Segment) -> bool:
        """One commit for what the segment does, or none; with others about, only for new rows."""
        changes = (segment.merge and segment.merge.rows) or segment.row_lookup is not None
        anything = changes or (segment.append and segment.append.rows)
        return bool(anything) and not (changes and self.others) and direct.takes(segment)

    def _write_direct(
        self,
        direct: DirectWriter,
        segment: Segment,
        found: Found | None,
        properties: dict[str, str],
    ) -> None:
        self._done = added(self._done, direct.write(segment, properties, found))

    def _forget_files(self) -> None:
        if self.direct is not None:
            self.direct.known.forget()

    def _truncate(self, source: str, properties: dict[str, str]) -> None:
        del properties  # it could not carry them
        self._forget_files()
        self.session.set_properties({})
        self.session.command(
            delete_source(self.ident, self.branch, source)
            if source
            else sql_text("TRUNCATE TABLE", branch_path(self.ident, self.branch)),
            f"truncating {self._what()}",
        )

    def _from_branch(self, branch: str, source: str, properties: dict[str, str]) -> None:
        self._forget_files()
        self.tables.check_branch(self.ident, branch)
        self.session.append(
            self.session.frame(SQL(select_source(self.ident, branch, source))),
            self.target(),
            write_options(properties),
            f"appending to {self._what()}",
        )

    def _merge(self, segment: Segment, staged: Staged) -> Operation:
        updates = _updates(staged)
        bounds = choose_bounds(self.session, self.key_ranges, segment.key, staged)
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
        look = self._look(by_key(segment.key, bounds, segment.source))
        merge = Merge(staged.rows, updates, segment.key)

        def run(properties: dict[str, str]) -> None:
            with self.staging.for_spark(staged) as source:
                self._run_merge(sql, frame(self.session, source), merge, look, properties)

        return Operation(run)

    def _look(self, on: Sequence[exp.Expression]) -> str | None:
        if not self.others:
            return None
        return count_rows_of_others(self.ident, self.branch, on, self.others)

    def _run_merge(
        self, sql: str, source: Any, merge: Merge, look: str | None, properties: dict[str, str]
    ) -> None:
        """``look`` is what counts rows of others that it meets, if there are others."""
        if look is not None:
            what = f"looking for rows of other writers in {self._what()}"
            found = self.session.query(look, what, s=source)
            self._met.update({row["op"]: row["n"] for row in found.to_pylist()})
        self._forget_files()
        merge = replace(merge, operation=self.operation_name())
        self.session.set_properties({**properties, OPERATION: merge.operation})
        try:
            self.session.command(sql, f"merging into {self._what()}", s=source)
        except LakeFailure as error:
            if _CARDINALITY in error.message:
                found_twice = "Two changes of one batch match one row."
                raise duplicate(self.ident, merge.key, found_twice) from None
            raise
        self._merges.append(merge)

    def _append(self, segment: Segment, staged: Staged) -> Operation:
        rows = replace(segment, merge=None, row_lookup=None, append=staged)
        if self.direct is not None and self._is_direct(self.direct, rows):
            return Operation(partial(self._write_direct, self.direct, rows, None))
        return Operation(partial(self._run_append, segment, staged))

    def _run_append(self, segment: Segment, staged: Staged, properties: dict[str, str]) -> None:
        if staged.own is not None:  # the table was one of those whose files are our own
            raise changed_meanwhile(self.ident)
        self._forget_files()
        self._done = replace(self._done, appended=self._done.appended + staged.rows)
        self.session.set_properties({})
        rows = self.projected(frame(self.session, staged), segment.columns, segment)
        self.session.append(
            # Few rows make one file: what a table costs to read grows with the number of files.
            rows if staged.paths else rows.coalesce(1),
            self.target(),
            write_options(properties),
            f"appending to {self._what()}",
        )

    def projected(self, rows: Any, columns: Sequence[str], given: Segment | CopyPlan) -> Any:
        """Staged columns under the table's names; lake-only columns get default or NULL.

        What is generated is computed over these, in a step of its own.
        """
        ordinals = {name: n for n, name in enumerate(columns)}
        defaults, generated = dict(given.defaults), dict(given.generated)
        selected = []
        for column in self.columns:
            if given.source and column.name == SOURCE_COLUMN:
                value = F.lit(given.source)
            elif column.name in ordinals:
                value = F.col(f"c{ordinals[column.name]}")
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

    # -- keys that may be there already -----------------------------------------------------------

    def _probe(self, segment: Segment, probe: KeyLookup) -> Segment:
        """What to apply, now that it is known which keys are there."""
        if probe.others:
            return probe.decide(self._find_any(segment, probe))
        if probe.keys is None or not probe.keys.rows:
            return probe.decide(NO_KEY_FOUND)
        bounds = choose_bounds(self.session, self.key_ranges, segment.key, probe.keys)
        found = self.session.query(
            find_keys(self.ident, self.branch, segment.key, bounds, segment.source),
            f"looking for keys in {self._what()}",
            s=frame(self.session, probe.keys),
        )
        return probe.decide(found.cast(NO_KEY_FOUND.schema))

    def _find_any(self, segment: Segment, probe: KeyLookup) -> pa.Table:
        sources = {f"s{at}": other for at, other in enumerate(probe.others, 1)}
        keys = [("s", segment.key if probe.keys else ())]
        keys += [(view, other.columns) for view, other in sources.items()]
        views = {view: frame(self.session, other.keys) for view, other in sources.items()}
        if probe.keys is not None:
            views["s"] = frame(self.session, probe.keys)
        found = self.session.query(
            find_any_key(self.ident, self.branch, keys, segment.source),
            f"looking for keys in {self._what()}",
            **views,
        )
        return found.cast(no_keys_found(len(probe.others)).schema)

    # -- whole rows -------------------------------------------------------------------------------

    def _full(self, segment: Segment, full: WholeRowLookup) -> Iterator[Operation]:
        found = self.session.query(
            find_positions(self.ident, self.branch, segment.columns, segment.source),
            f"looking for rows in {self._what()}",
            s=frame(self.session, full.images),
        )
        yield from self._resolved(segment, full, found.cast(_NOTHING_FOUND.schema))

    def _resolved(
        self, segment: Segment, full: WholeRowLookup, found: pa.Table
    ) -> Iterator[Operation]:
        positions, append = full.decide(found)
        if positions is not None and positions.rows:
            yield self._at_positions(segment, positions)
        if append is not None and append.rows:
            yield self._append(segment, append)

    def _at_positions(self, segment: Segment, positions: Staged) -> Operation:
        updates = _updates(positions)
        generated = segment.generated if updates else ()
        sql = merge_by_position(
            self.ident,
            self.branch,
            columns=segment.columns,
            deletes=updates < positions.rows,
            updates=updates > 0,
            generated=[name for name, _ in generated],
        )

        merge, look = Merge(positions.rows, updates), self._look(by_position())

        def run(properties: dict[str, str]) -> None:
            rows = frame(self.session, positions)
            if generated:
                where = (self.session, self.ident, self.branch)
                rows = generated_at(*where, rows, segment.columns, generated)
            self._run_merge(sql, rows, merge, look, properties)

        return Operation(run)

    def target(self) -> str:
        """The branch as a name to write to."""
        return name_of(branch_path(self.ident, self.branch))

    def _what(self) -> str:
        return f'lake table "{self.ident}"'


_NOTHING_FOUND: Final = FOUND_ROWS.empty_table()


def _updates(staged: Staged) -> int:
    """How many of a MERGE's source rows are updates; the others delete."""
    return int((staged_columns(staged, ["op"])["op"].to_numpy() == UPDATE).sum())
