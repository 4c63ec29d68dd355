"""Write the segments of one batch to a branch, in order; the last commit carries the position.

Not every Spark operation can write snapshot properties: appends, MERGEs and commits of files can,
TRUNCATE (a metadata-only delete) cannot, and a segment may turn out to change no row. The slices of
a large transaction are written one after the other without a position; at the end an empty commit
carries the position.

The sources of a shared table are written together. Where files can be written here, the changes of
all sources become one commit: a snapshot a source would make a table of fifty sources grow fifty
times as fast.

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
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest

from workers.lake.effects import Effect, added
from workers.lake.iceberg.choose_writer import Writers
from workers.lake.interfaces.segment_writer import Barrier, Commit, Declined, NewRows
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.snapshots import OPERATION, History, stamp_properties
from workers.lake.refusals import check_base
from workers.lake.segment import Segment, SourcePart
from workers.lake.table import LakeIdent, Stamp


@dataclass(slots=True)
class BranchWriter:
    """Writes a batch of a table, on a single thread."""

    tables: TableApi
    ident: LakeIdent
    branch: str
    writers: Writers

    def write(self, parts: Sequence[SourcePart]) -> list[Effect]:
        """Apply the parts; the branch's newest snapshot carries their stamps afterwards, if any.

        A commit that changes rows of one source joins the commit of other sources, if it can.
        """
        stamps = [part.stamp for part in parts if part.stamp is not None]
        history = self._history(stamps)
        properties = self._properties(parts, stamps, history)
        held_back: Commit | None = None
        commits = 0
        for step in self._steps(parts):
            if held_back is not None:
                both = held_back.joined(step) if isinstance(step, Commit) else None
                if both is not None:
                    held_back = both
                    continue
                if isinstance(step, Barrier) and not step.needs(held_back):
                    continue
                held_back.run(self._without_position())
                commits += 1
            held_back = step if isinstance(step, Commit) else None
        if held_back is not None and (held_back.carries_properties or not properties):
            held_back.run(properties or self._without_position())
            commits += 1
        else:
            if held_back is not None:
                held_back.run(self._without_position())
                commits += 1
            if properties:
                self.writers.in_order[0].commit_empty(properties)
                commits += 1
        known = frozenset(() if history is None else history.snapshots)
        first = replace(self._effect(parts[0]), commits=commits, snapshots=known)
        return [first, *(self._effect(part) for part in parts[1:])]

    def _history(self, stamps: Sequence[Stamp]) -> History | None:
        """The table's history, if the table is shared."""
        return self.tables.history(self.ident) if any(stamp.source for stamp in stamps) else None

    def _properties(
        self, parts: Sequence[SourcePart], stamps: Sequence[Stamp], history: History | None
    ) -> dict[str, str]:
        """The properties of the last commit; none for a slice of a transaction."""
        if not stamps:
            return {}
        sources = {} if history is None else history.sources(self.branch)
        for part in parts:
            if part.stamp is not None:
                check_base(self.ident, sources.get(part.stamp.source), part.stamp, part.base)
        return stamp_properties(stamps[-1], {**sources, **{each.source: each for each in stamps}})

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

    def _steps(self, parts: Sequence[SourcePart]) -> Iterator[Commit | Barrier]:
        for segment in _in_turns(parts):
            if segment.truncate:
                yield self.writers.merge.truncate(segment.source)
            lookup, decided = segment.key_lookup, segment
            if lookup is not None:
                # The look-up reads the branch: the commit held back has to run first.
                yield Barrier(segment.source)
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

    def _effect(self, part: SourcePart) -> Effect:
        source = part.stamp.source if part.stamp is not None else _source(part)
        effects = [writer.effect(source) for writer in self.writers.in_order]
        counts = reduce(added, (effect.counts for effect in effects))
        merges = tuple(merge for effect in effects for merge in effect.merges)
        return Effect(self.ident, self.branch, counts, merges)


def _source(part: SourcePart) -> str:
    return next((segment.source for segment in part.segments), "")


def _in_turns(parts: Sequence[SourcePart]) -> Iterator[Segment]:
    """The first segments of all sources, then the second ones: so their commits can join.

    The rows of two sources never meet. A source's segments before the source's last TRUNCATE leave
    no trace.
    """
    kept = []
    for part in parts:
        first = max((n for n, s in enumerate(part.segments) if s.truncate), default=0)
        kept.append(part.segments[first:])
    for turn in zip_longest(*kept):
        yield from (segment for segment in turn if segment is not None)
