"""A table's refs and snapshots, and the newest position among the ancestors of ``main``."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from catalog.errcodes import InvalidTextRepresentation, ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN
from workers.lake.table import MAIN, LakeColumn, LakeIdent, LakeTable, Stamp

OWNER: Final = "pgsub.owner"
PUBLISHER_COLUMNS: Final = "pgsub.columns"
ORIGIN: Final = "pgsub.origin"
LSN_KEY: Final = "pgsub.lsn"
EPOCH: Final = "pgsub.epoch"
FLOOR: Final = "pgsub.floor"
SOURCE: Final = "pgsub.source"
SOURCES: Final = "pgsub.sources"
OPERATION: Final = "pgsub.op"
FENCE: Final = "pgsub.fence"
MARKS: Final = (ORIGIN, OPERATION, FENCE)
"""Every commit of pgsub that adds rows has at least one mark in the summary."""

_TOTALS: Final = ("total-records", "total-data-files")
ADDED: Final = "added-records"
READ_KEYS: Final = (
    ORIGIN,
    LSN_KEY,
    EPOCH,
    FLOOR,
    SOURCE,
    SOURCES,
    *_TOTALS,
    OPERATION,
    FENCE,
    ADDED,
)
_MOVES_ROWS: Final = "replace"
"""Iceberg's name for a commit that only moves rows to new files."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot; ``stamp`` is the position in the snapshot's summary.

    In a shared table ``sources`` are the newest positions of all sources, the snapshot's included.
    ``records`` is the number of rows in the snapshot's ``files`` data files, deleted rows included.
    ``foreign`` is true for a commit of another writer that added rows, ``ours`` for a commit with a
    mark of pgsub. ``committed`` is the time in milliseconds since 1970, or 0 if unknown.
    """

    snapshot_id: int
    parent_id: int | None
    stamp: Stamp | None
    sources: Mapping[str, Stamp] | None = None
    records: int | None = None
    files: int = 0
    foreign: bool = False
    committed: int = 0
    ours: bool = False


class _Commit(Protocol):
    @property
    def stamp(self) -> Stamp | None: ...
    @property
    def sources(self) -> Mapping[str, Stamp] | None: ...
    @property
    def foreign(self) -> bool: ...


def written_by_others(ancestors: Iterable[_Commit], sources: Mapping[str, Stamp]) -> frozenset[str]:
    """The ``sources`` for which another writer has added rows since the source's copy.

    ``""`` stands for a table of one owner. ``ancestors`` begin with the newest. The copy id names
    the copy: rows from before the copy do not count, and in a shared table a copy removes all rows
    with the source's name.
    """
    newest: Stamp | None = None
    has_foreign, names = False, set()
    for commit in ancestors:
        if commit.stamp is not None:
            newest = newest or commit.stamp
            if has_foreign:
                before = {**(commit.sources or {}), "": commit.stamp}
                now = {**sources, "": newest}
                names |= {
                    name
                    for name, stamp in before.items()
                    if name in now and stamp.epoch == now[name].epoch
                }
        has_foreign = has_foreign or commit.foreign
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class History:
    """Refs (name → snapshot id) and snapshots (by id) of a table, read at the same moment."""

    refs: Mapping[str, int]
    snapshots: Mapping[int, Snapshot]

    def ancestors(self, ref: str) -> Iterator[Snapshot]:
        """From the ref's tip backwards, as far as the table keeps snapshots."""
        return self.line(self.refs.get(ref))

    def line(self, at: int | None) -> Iterator[Snapshot]:
        """From a snapshot backwards, as far as the table keeps snapshots."""
        while at is not None:
            snapshot = self.snapshots.get(at)
            if snapshot is None:
                return
            yield snapshot
            at = snapshot.parent_id

    def led_to(self, refs: Iterable[str]) -> set[int]:
        """The snapshots that at least one of the refs leads to."""
        return {each.snapshot_id for ref in refs for each in self.ancestors(ref)}

    def stamp(self, ref: str = MAIN) -> Stamp | None:
        """The newest position among the ref's ancestors."""
        return next((s.stamp for s in self.ancestors(ref) if s.stamp is not None), None)

    def sources(self, ref: str = MAIN) -> Mapping[str, Stamp]:
        """The newest list of a shared table's sources among the ref's ancestors."""
        lists = (s.sources for s in self.ancestors(ref) if s.sources is not None)
        return next(lists, {})

    def tip(self, ref: str = MAIN) -> Snapshot | None:
        """The newest snapshot of a ref."""
        return next(self.ancestors(ref), None)

    def tip_stamp(self, ref: str) -> Stamp | None:
        """The position in the summary of the ref's tip."""
        tip = self.tip(ref)
        return tip.stamp if tip else None


def lake_table(
    ident: LakeIdent,
    columns: tuple[LakeColumn, ...],
    properties: Mapping[str, str],
    history: History,
) -> LakeTable:
    """A table as readers of ``main`` see it."""
    tip = history.tip()
    committed = (each.committed for each in history.snapshots.values() if each.committed)
    return LakeTable(
        ident,
        columns,
        properties.get(OWNER),
        history.refs.get(MAIN),
        history.stamp(),
        history.sources(),
        tip.records if tip else None,
        # An apply worker keeps the array for ten thousand tables: eight bytes for a snapshot.
        array("d", sorted(at / 1000 for at in committed)),
        tip.files if tip else 0,
        written_by_others(history.ancestors(MAIN), history.sources()),
        properties.get(PUBLISHER_COLUMNS, ""),
    )


def stamp_properties(stamp: Stamp, sources: Mapping[str, Stamp] | None = None) -> dict[str, str]:
    """A position as snapshot properties; ``sources`` are a shared table's further positions."""
    properties = {
        ORIGIN: stamp.origin,
        LSN_KEY: str(stamp.lsn),
        EPOCH: stamp.epoch,
        FLOOR: str(stamp.floor),
    }
    if stamp.source:
        listed = {**(sources or {}), stamp.source: stamp}
        properties[SOURCE] = stamp.source
        properties[SOURCES] = json.dumps(
            {name: [s.origin, str(s.lsn), s.epoch, str(s.floor)] for name, s in listed.items()}
        )
    return properties


def write_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Snapshot properties as DataFrame write options."""
    return {f"snapshot-property.{key}": value for key, value in properties.items()}


def history_of_new_table(snapshot_id: int, summary: Mapping[str, str]) -> History:
    """The history of a table with a single empty snapshot of an unknown time."""
    snapshot = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": 0,
        "summary": {**summary, **dict.fromkeys(_TOTALS, "0"), "operation": "append"},
    }
    return history_of({"refs": {MAIN: {"snapshot-id": snapshot_id}}, "snapshots": [snapshot]})


def history_of(metadata: Mapping[str, Any]) -> History:
    """A table's history, from the table's metadata."""
    refs = {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items()}
    current = metadata.get("current-snapshot-id")
    if current is not None and current >= 0:  # -1 is none
        refs.setdefault(MAIN, current)
    return History(
        refs,
        {each["snapshot-id"]: _snapshot(each) for each in metadata.get("snapshots", ())},
    )


def tip_to_publish(
    metadata: Mapping[str, Any], branch: str, stamp: Stamp | None = None
) -> int | None:
    """The snapshot that ``main`` moves to with the branch; None if ``main`` may not move.

    ``main`` has to be an ancestor of the branch, which ``create_branch`` has given an age. A branch
    that is published already leaves ``main`` where it is. With ``stamp`` the branch has to end with
    that position.
    """
    refs = metadata.get("refs", {})
    tip, main = refs.get(branch), refs.get(MAIN)
    if tip is None or main is None or "max-ref-age-ms" not in tip:
        return None
    history = history_of(metadata)
    if stamp is not None and history.tip_stamp(branch) != stamp:
        return None
    at, present = tip["snapshot-id"], main["snapshot-id"]
    if any(each.snapshot_id == at for each in history.ancestors(MAIN)):
        return int(present)
    return int(at) if any(s.snapshot_id == present for s in history.ancestors(branch)) else None


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    summary: Mapping[str, str] = found.get("summary", {})
    values = {key: summary.get(key) for key in READ_KEYS}
    records = values["total-records"]
    return Snapshot(
        found["snapshot-id"],
        found.get("parent-snapshot-id"),
        stamp_in(values),
        sources_of(values[SOURCES]),
        None if records is None else int(records),
        int(values["total-data-files"] or 0),
        foreign=is_foreign(values, summary.get("operation")),
        committed=found["timestamp-ms"],
        ours=is_ours(values),
    )


def is_foreign(summary: Mapping[str, str | None], operation: str | None) -> bool:
    """Did another writer add rows with the commit?"""
    added = int(summary[ADDED] or 0) > 0
    return not is_ours(summary) and operation != _MOVES_ROWS and added


def is_ours(summary: Mapping[str, str | None]) -> bool:
    """Has the commit a mark of pgsub?"""
    return any(summary[mark] is not None for mark in MARKS)


def stamp_in(summary: Mapping[str, str | None]) -> Stamp | None:
    """The position in a snapshot's summary."""
    return stamp_of([summary.get(key) for key in (ORIGIN, LSN_KEY, EPOCH, FLOOR, SOURCE)])


def stamp_of(values: list[str | None]) -> Stamp | None:
    """A position from origin, LSN, copy id, copy position and source; None if not a position."""
    origin, lsn, epoch, floor, source = values
    if origin is None or lsn is None or epoch is None:
        return None
    try:
        return Stamp(origin, LSN.parse(lsn), epoch, LSN.parse(floor or "0/0"), source or "")
    except InvalidTextRepresentation:
        return None


def sources_of(listed: str | None) -> Mapping[str, Stamp] | None:
    """A list that cannot be read is an error: as an empty list it would lose every position."""
    if listed is None:
        return None
    try:
        return {
            name: Stamp(origin, LSN.parse(lsn), epoch, LSN.parse(floor), name)
            for name, (origin, lsn, epoch, floor) in json.loads(listed).items()
        }
    except (ValueError, TypeError, AttributeError, InvalidTextRepresentation):
        raise ObjectNotInPrerequisiteState(
            "a snapshot's list of sources cannot be read",
            detail=f"Its property {SOURCES} is not what was written to it.",
            hint="Set the lake table back to the snapshot before, then copy its sources again.",
        ) from None
