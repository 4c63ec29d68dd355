"""Applies a batch to the rows of a table in memory, segment by segment."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workers.lake.effects import Merge, Outcome
from workers.lake.memory.rows import (
    Row,
    as_dicts,
    came_from,
    complete,
    find_keys,
    found_table,
    generate,
    new_values,
    same,
)
from workers.lake.refusals import changed_meanwhile
from workers.lake.segment import (
    DELETE_LINE,
    INSERT_LINE,
    ChangesAhead,
    Segment,
    WholeRowLookup,
)
from workers.lake.table import LakeColumn, LakeIdent


@dataclass(slots=True)
class Work:
    """A branch's rows while a batch is applied."""

    ident: LakeIdent
    columns: tuple[LakeColumn, ...]
    rows: list[Row]
    appended: int = 0
    merges: list[tuple[Merge, Outcome]] = field(default_factory=list)
    elsewhere: dict[str, tuple[Row, ...]] = field(default_factory=dict)

    def apply(self, segment: Segment) -> None:
        """Apply the next segment."""
        if segment.fill:
            values = {name: value.as_py() for name, value in segment.fill}
            self.rows = [row | values for row in self.rows]
        if segment.truncate:
            self.rows = [row for row in self.rows if not came_from(row, segment.source)]
        if segment.key_lookup is not None:
            segment = segment.key_lookup.decide(find_keys(self.rows, segment, segment.key_lookup))
        if segment.merge is not None:
            self._merge(segment, as_dicts(segment.merge))
        if segment.row_lookup is not None:
            self._full(segment, segment.row_lookup)
        if segment.append is not None:
            self._append(segment, as_dicts(segment.append))
        for each in segment.ahead:
            self._change_ahead(segment, each)
        if segment.from_branch is not None:
            rows = self.elsewhere[segment.from_branch]
            self.rows += [row for row in rows if came_from(row, segment.source)]

    def _change_ahead(self, segment: Segment, ahead: ChangesAhead) -> None:
        """The changes as a MERGE, and then the inserted rows.

        Raises 40001 where the files of new rows do not suffice on Iceberg.
        """
        new = iter(as_dicts(ahead.rows))
        lines = [
            (line if line["op"] == DELETE_LINE else line | next(new))
            for line in as_dicts(ahead.keys)
        ]
        inserted = [line for line in lines if line["op"] == INSERT_LINE]
        found = self._rows_by_key(segment)
        twice = any(found[line["b0"]] > 1 for line in lines)
        unsent = segment.unsent(column.name for column in self.columns)
        if twice or unsent or any(found[line["b0"]] for line in inserted):
            raise changed_meanwhile(self.ident)
        self._merge(segment, [line for line in lines if line["op"] != INSERT_LINE])
        self._append(segment, inserted)

    def _rows_by_key(self, segment: Segment) -> Counter[Any]:
        """The number of rows by the values of a key of one column."""
        (key,) = segment.key
        return Counter(row[key] for row in self.rows if came_from(row, segment.source))

    def _merge(self, segment: Segment, staged: Sequence[Row]) -> None:
        """Apply changes as a single MERGE: a row is matched with the values before the MERGE."""
        changes: dict[tuple[Any, ...], Row] = {}
        for change in staged:
            changes[tuple(change[f"b{n}"] for n in range(len(segment.key)))] = change
        kept: list[Row] = []
        matched = added = 0
        for row in self.rows:
            key = tuple(row[name] for name in segment.key)
            found = changes.get(key) if came_from(row, segment.source) else None
            if found is None:
                kept.append(row)
                continue
            matched += 1
            if not found["op"]:
                added += 1
                kept.append(generate(row | new_values(segment, found), segment.generated))
        self.rows = kept
        self._merged(segment.key, list(changes.values()), matched, added)

    def _merged(self, key: tuple[str, ...], changes: list[Row], matched: int, added: int) -> None:
        updates = sum(not change["op"] for change in changes)
        merge = Merge(len(changes), updates, key, operation=uuid.uuid4().hex)
        self.merges.append((merge, Outcome(matched, added, rows=0, deleted=0)))

    def _full(self, segment: Segment, full: WholeRowLookup) -> None:
        found: list[tuple[int, str, int]] = []
        for image in as_dicts(full.images):
            wanted = [image[f"c{n}"] for n in range(len(segment.columns))]
            hits = (
                position
                for position, row in enumerate(self.rows)
                if came_from(row, segment.source)
                and all(same(row[c], v) for c, v in zip(segment.columns, wanted, strict=True))
            )
            found += (
                (image["image"], "memory", position)
                for position in itertools.islice(hits, image["n"])
            )
        positions, append = full.decide(found_table(found))
        deleted: set[int] = set()
        changes = as_dicts(positions)
        for change in changes:
            at = change["p"]
            if change["op"]:
                deleted.add(at)
            else:
                changed = self.rows[at] | new_values(replace(segment, unchanged=()), change)
                self.rows[at] = generate(changed, segment.generated)
        self._merged((), changes, len(changes), len(changes) - len(deleted))
        self.rows = [row for position, row in enumerate(self.rows) if position not in deleted]
        if append is not None:
            self._append(segment, as_dicts(append))

    def _append(self, segment: Segment, staged: Sequence[Row]) -> None:
        constants = {name: value.as_py() for name, value in segment.constants}
        defaults, source = dict(segment.defaults) | constants, segment.source
        fresh = [
            generate(row, segment.generated)
            for row in (
                complete(self.columns, new_values(segment, each), defaults, source)
                for each in staged
            )
        ]
        self.appended += len(fresh)
        self.rows += fresh
