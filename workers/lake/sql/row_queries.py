"""Look rows of a branch up by queries: by key, by whole row, with or without values.

``find_rows`` has the statements. This module runs the statements in the worker's session, with the
staged rows as the source ``s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from workers.lake.connect.session import LakeSession
from workers.lake.segment import KeyLookup, Segment, found_rows_schema, no_keys_found
from workers.lake.sql.find_rows import count_repeated, find_any_key, find_keys, find_positions
from workers.lake.sql.key_bounds import KeyRanges, choose_bounds
from workers.lake.sql.merge import KeyBounds
from workers.lake.sql.staged_frame import frame
from workers.lake.staged_rows import Staged
from workers.lake.storage.staging import Staging
from workers.lake.table import LakeIdent


@dataclass(frozen=True, slots=True)
class RowQueries:
    """Queries of a batch on a branch. ``key_ranges`` may save reading whole files."""

    session: LakeSession
    staging: Staging
    ident: LakeIdent
    branch: str
    key_ranges: KeyRanges

    def bounds(self, segment: Segment, staged: Staged) -> KeyBounds | None:
        """Literal bounds on the keys of staged rows, if bounds leave out enough of the table."""
        return choose_bounds(self.session, self.key_ranges, segment.key, staged)

    def keys(self, segment: Segment, lookup: KeyLookup) -> pa.Table:
        """The keys that rows of the branch have: the argument of ``KeyLookup.decide``."""
        if lookup.others:
            return self._any_key(segment, lookup)
        if lookup.keys is None or not lookup.keys.rows:
            return no_keys_found(0)
        bounds = self.bounds(segment, lookup.keys)
        found = self.session.query(
            find_keys(self.ident, self.branch, segment.key, bounds, segment.source),
            f'looking for keys in lake table "{self.ident}"',
            s=frame(self.session, lookup.keys),
        )
        return found.cast(no_keys_found(0).schema)

    def _any_key(self, segment: Segment, lookup: KeyLookup) -> pa.Table:
        sources = {f"s{at}": other for at, other in enumerate(lookup.others, 1)}
        keys = [("s", segment.key if lookup.keys else ())]
        keys += [(view, other.columns) for view, other in sources.items()]
        views = {view: frame(self.session, other.keys) for view, other in sources.items()}
        if lookup.keys is not None:
            views["s"] = frame(self.session, lookup.keys)
        found = self.session.query(
            find_any_key(self.ident, self.branch, keys, segment.source),
            f'looking for keys in lake table "{self.ident}"',
            **views,
        )
        return found.cast(no_keys_found(len(lookup.others)).schema)

    def whole_rows(self, segment: Segment, images: Staged) -> pa.Table:
        """Rows equal to the images: the argument of ``WholeRowLookup.decide``."""
        if not images.rows:
            return found_rows_schema().empty_table()
        found = self.session.query(
            find_positions(self.ident, self.branch, segment.columns, segment.source),
            f'looking for rows in lake table "{self.ident}"',
            s=frame(self.session, images),
        )
        return found.cast(found_rows_schema())

    def rows_with_keys(
        self, segment: Segment, staged: Staged, keys: pa.Table, columns: Sequence[str]
    ) -> pa.Table:
        """Position and ``columns`` of the rows with the keys: ``k, f, p, o0…``.

        ``keys`` are the keys ``k, b0…`` of the ``staged`` changes.
        """
        bounds = self.bounds(segment, staged)
        with self.staging.for_spark(Staged(keys.num_rows, table=keys)) as sent:
            return self.session.query(
                find_keys(
                    self.ident,
                    self.branch,
                    segment.key,
                    bounds,
                    segment.source,
                    columns=columns,
                ),
                f'looking for rows in lake table "{self.ident}"',
                s=frame(self.session, sent),
            )


def count_repeated_keys(
    session: LakeSession, ident: LakeIdent, branch: str, key: Sequence[str], source: str
) -> int:
    """See ``Destination.repeated_keys``."""
    what = f'looking for repeated keys in lake table "{ident}"'
    found = session.query(count_repeated(ident, branch, key, source), what)
    return int(found.column("n")[0].as_py())
