"""Write the segments of one batch to a branch, in order; the last commit carries the position.

Not every Spark operation can write snapshot properties: appends, MERGEs and commits of files can,
TRUNCATE (a metadata-only delete) cannot, and a segment may turn out to change no row. The slices of
a large transaction are written one after the other without a position; at the end an empty commit
carries the position.

A segment gives steps: commits, and barriers. Behind a barrier the branch is read, so the commits
before a barrier must run. Every commit is held back until the next step is known. A batch that does
not end in a commit with properties ends in an empty commit.

A table has one or two writers: the writer of files where files can be written here, and Spark. The
first writer that accepts a segment applies the segment. A writer that has to read the branch first
may still decline, before its first commit, so no change is applied twice; then the next writer is
asked. Spark accepts every segment.

Trace: segments [truncate, append 5] [merge 3], all through Spark. TRUNCATE and the append run
without the position, the MERGE with the position: three snapshots on the branch, and only the last
carries the position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from catalog.pg_lsn import LSN
from workers.lake.effects import Effect, added
from workers.lake.iceberg.choose_writer import Writers
from workers.lake.interfaces.segment_writer import Barrier, Commit, Declined, NewRows
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.snapshots import OPERATION, stamp_properties
from workers.lake.refusals import check_base
from workers.lake.segment import Segment
from workers.lake.table import LakeIdent, Stamp


@dataclass(slots=True)
class BranchWriter:
    """Writes a batch of a table, on a single thread."""

    tables: TableApi
    ident: LakeIdent
    branch: str
    writers: Writers

    def write(
        self, segments: Sequence[Segment], stamp: Stamp | None, base: LSN | None = None
    ) -> Effect:
        """Apply the segments; the branch's newest snapshot carries ``stamp`` afterwards, if any."""
        if stamp is None:
            for step in self._steps(segments):
                if isinstance(step, Commit):
                    step.run(self._without_position())
            return self._effect()
        sources = self.sources(stamp)
        check_base(self.ident, sources.get(stamp.source), stamp, base)
        properties = stamp_properties(stamp, sources)
        held_back: Commit | None = None
        for step in self._steps(segments):
            if held_back is not None:
                held_back.run(self._without_position())
            held_back = step if isinstance(step, Commit) else None
        if held_back is not None and held_back.carries_properties:
            held_back.run(properties)
        else:
            if held_back is not None:
                held_back.run(self._without_position())
            self.writers.in_order[0].commit_empty(properties)
        return self._effect()

    def sources(self, stamp: Stamp) -> Mapping[str, Stamp]:
        """The positions of a shared table's sources on the branch.

        The positions on ``main`` may be newer by now, but the branch lacks the newer rows.
        Empty for a table with a single owner.
        """
        if not stamp.source:
            return {}
        return self.tables.history(self.ident).sources(self.branch)

    def _without_position(self) -> dict[str, str]:
        """The properties of a commit without a position: the name that marks a commit of pgsub."""
        return {OPERATION: self.writers.names.next()}

    def _steps(self, segments: Sequence[Segment]) -> Iterator[Commit | Barrier]:
        # The segments before the last TRUNCATE leave no trace.
        first = max((n for n, s in enumerate(segments) if s.truncate), default=0)
        for segment in segments[first:]:
            if segment.truncate:
                yield self.writers.merge.truncate(segment.source)
            lookup, decided = segment.key_lookup, segment
            if lookup is not None:
                # The look-up reads the branch: the commit held back has to run first.
                yield Barrier()
                decided = lookup.decide(self.writers.merge.find_keys(segment, lookup))
            yield from self._apply(decided)

    def _apply(self, segment: Segment) -> Iterator[Commit | Barrier]:
        """The steps of the first writer that accepts the segment and does not decline it."""
        for writer in self.writers.in_order:
            if not writer.accepts(segment):
                continue
            try:
                for step in writer.steps(segment):
                    if isinstance(step, NewRows):
                        # Rows that the writer hands back: a segment, for which a writer is chosen.
                        yield from self._apply(step.segment)
                    else:
                        yield step
            except Declined:
                continue
            return

    def _effect(self) -> Effect:
        effects = [writer.effect() for writer in self.writers.in_order]
        counts = reduce(added, (effect.counts for effect in effects))
        merges = tuple(merge for effect in effects for merge in effect.merges)
        return Effect(self.ident, self.branch, counts, merges)
