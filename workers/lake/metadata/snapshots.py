"""What a table's metadata says: refs, snapshots, and the newest stamp among main's ancestors."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from catalog.errcodes import InvalidTextRepresentation, ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN
from workers.lake.table import MAIN, LakeColumn, LakeIdent, LakeTable, Stamp

ORIGIN: Final = "pgsub.origin"
LSN_KEY: Final = "pgsub.lsn"
EPOCH: Final = "pgsub.epoch"
FLOOR: Final = "pgsub.floor"
SOURCE: Final = "pgsub.source"
SOURCES: Final = "pgsub.sources"
OPERATION: Final = "pgsub.op"
FENCE: Final = "pgsub.fence"
MARKS: Final = (ORIGIN, OPERATION, FENCE)
"""Each commit of ours that brings rows has one of them in its summary."""

_TOTALS: Final = ("total-records", "total-data-files")
ADDED: Final = "added-records"
_READ: Final = (
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
"""What Iceberg calls a commit that only writes rows to other files."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot; ``stamp`` as its own summary carries it.

    In a shared table ``sources`` are the newest stamps of all sources, this snapshot's included.
    ``records`` is how many rows its ``files`` data files hold, deleted ones included. ``foreign``:
    somebody else added rows by it. ``committed``: when, in milliseconds since 1970; 0 if unknown.
    """

    snapshot_id: int
    parent_id: int | None
    stamp: Stamp | None
    sources: Mapping[str, Stamp] | None = None
    records: int | None = None
    files: int = 0
    foreign: bool = False
    committed: int = 0


class _Commit(Protocol):
    @property
    def stamp(self) -> Stamp | None: ...
    @property
    def sources(self) -> Mapping[str, Stamp] | None: ...
    @property
    def foreign(self) -> bool: ...


def written_by_others(ancestors: Iterable[_Commit], sources: Mapping[str, Stamp]) -> frozenset[str]:
    """The ``sources`` beside whose rows somebody else added some since we have them.

    ``""`` stands for a table of one owner. ``ancestors`` are from the newest on. Since when says
    the epoch of its copy: what was in the table before that is none of this, and in a shared table
    a copy takes away whatever bore the source's name.
    """
    newest: Stamp | None = None
    found, said = False, set()
    for commit in ancestors:
        if commit.stamp is not None:
            newest = newest or commit.stamp
            if found:
                held = {**(commit.sources or {}), "": commit.stamp}
                now = {**sources, "": newest}
                said |= {
                    name
                    for name, stamp in held.items()
                    if name in now and stamp.epoch == now[name].epoch
                }
        found = found or commit.foreign
    return frozenset(said)


@dataclass(frozen=True, slots=True)
class History:
    """Refs (name → snapshot id) and snapshots (by id) of one table, read at one moment."""

    refs: Mapping[str, int]
    snapshots: Mapping[int, Snapshot]

    def ancestors(self, ref: str) -> Iterator[Snapshot]:
        """From the ref's tip backwards, as far as snapshots are kept."""
        at: int | None = self.refs.get(ref)
        while at is not None:
            snapshot = self.snapshots.get(at)
            if snapshot is None:
                return
            yield snapshot
            at = snapshot.parent_id

    def stamp(self, ref: str = MAIN) -> Stamp | None:
        """The newest ancestor's that carries one."""
        return next((s.stamp for s in self.ancestors(ref) if s.stamp is not None), None)

    def sources(self, ref: str = MAIN) -> Mapping[str, Stamp]:
        """The newest ancestor's list of a shared table's sources."""
        lists = (s.sources for s in self.ancestors(ref) if s.sources is not None)
        return next(lists, {})

    def tip(self, ref: str = MAIN) -> Snapshot | None:
        """The snapshot that a ref is at."""
        return next(self.ancestors(ref), None)

    def tip_stamp(self, ref: str) -> Stamp | None:
        """The tip's own."""
        tip = self.tip(ref)
        return tip.stamp if tip else None


def lake_table(
    ident: LakeIdent, columns: tuple[LakeColumn, ...], owner: str | None, history: History
) -> LakeTable:
    """A table as ``main`` shows it."""
    tip = history.tip()
    committed = (each.committed for each in history.snapshots.values() if each.committed)
    return LakeTable(
        ident,
        columns,
        owner,
        history.refs.get(MAIN),
        history.stamp(),
        history.sources(),
        tip.records if tip else None,
        # Of ten thousand tables an apply worker keeps this: eight bytes each.
        array("d", sorted(at / 1000 for at in committed)),
        tip.files if tip else 0,
        written_by_others(history.ancestors(MAIN), history.sources()),
    )


def stamp_properties(stamp: Stamp, sources: Mapping[str, Stamp] | None = None) -> dict[str, str]:
    """A stamp as snapshot properties; ``sources`` are what else a shared table's has to carry."""
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
    """The history of a table with one empty snapshot, which was committed at an unknown time."""
    snapshot = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": 0,
        "summary": {**summary, **dict.fromkeys(_TOTALS, "0"), "operation": "append"},
    }
    return history_of({"refs": {MAIN: {"snapshot-id": snapshot_id}}, "snapshots": [snapshot]})


def history_of(metadata: Mapping[str, Any]) -> History:
    """The same from a table's metadata."""
    refs = {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items()}
    current = metadata.get("current-snapshot-id")
    if current is not None and current >= 0:  # -1 is none
        refs.setdefault(MAIN, current)
    return History(
        refs,
        {each["snapshot-id"]: _snapshot(each) for each in metadata.get("snapshots", ())},
    )


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    summary: Mapping[str, str] = found.get("summary", {})
    said = {key: summary.get(key) for key in _READ}
    records = said["total-records"]
    return Snapshot(
        found["snapshot-id"],
        found.get("parent-snapshot-id"),
        _stamp([said[key] for key in (ORIGIN, LSN_KEY, EPOCH, FLOOR, SOURCE)]),
        _sources(said[SOURCES]),
        None if records is None else int(records),
        int(said["total-data-files"] or 0),
        foreign=_foreign(said, summary.get("operation")),
        committed=found["timestamp-ms"],
    )


def _foreign(summary: Mapping[str, str | None], operation: str | None) -> bool:
    """Whether somebody else added rows by this commit."""
    ours = any(summary[mark] is not None for mark in MARKS)
    return not ours and operation != _MOVES_ROWS and int(summary[ADDED] or 0) > 0


def _stamp(values: list[str | None]) -> Stamp | None:
    origin, lsn, epoch, floor, source = values
    if origin is None or lsn is None or epoch is None:
        return None
    try:
        return Stamp(origin, LSN.parse(lsn), epoch, LSN.parse(floor or "0/0"), source or "")
    except InvalidTextRepresentation:
        return None


def _sources(listed: str | None) -> Mapping[str, Stamp] | None:
    """What cannot be read is an error: to take it for nothing would lose every position in it."""
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
