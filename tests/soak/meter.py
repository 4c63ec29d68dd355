"""What could grow without bound, measured while it runs, and whether it did."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import psutil

from catalog.store_sqlite import CatalogStore
from tests.crash.family import Family
from tests.fix_publisher import Database

FLAT: Final = {
    "launcher_mb": 1.2,
    "apply_mb": 1.3,
    "lake_server_mb": 1.3,
    "spool_mb": 2.0,
    "staging_files": 2.0,
    "branches": 1.5,
    "snapshots": 1.5,
    "metadata_mb": 1.5,
    "lag_mb": 2.0,
}
"""How much higher than early on a measure may be at the end; what is near zero may stay so."""

NEAR_ZERO: Final = {"spool_mb": 8.0, "staging_files": 20.0, "lag_mb": 8.0, "metadata_mb": 4.0}

Sample = dict[str, float]


class Meter:
    """All that could grow without bound."""

    def __init__(
        self, family: Family, database: Database, name: str, tables: Sequence[str]
    ) -> None:
        self._family = family
        self._database = database
        self._name = name
        self._tables = tables

    def sample(self) -> Sample:
        """Now; processes that are not there at the moment weigh nothing."""
        status = self._family.status()
        data_dir = self._family.pgsub.data_dir
        apply = [worker.pid for worker in status.workers if worker.pid and not worker.relid]
        tables = [self._family.pgsub.iceberg_table(self._name, table) for table in self._tables]
        lake = data_dir / "lake"
        return {
            "launcher_mb": _rss([status.pid]),
            "apply_mb": _rss(apply),
            "lake_server_mb": _rss([status.lake_pid] if status.lake_pid else []),
            "spool_mb": _size(data_dir / "spool"),
            "staging_files": float(sum(1 for _ in _files(data_dir / "staging"))),
            "branches": float(sum(len(table.metadata.refs) - 1 for table in tables)),
            "snapshots": float(sum(len(table.metadata.snapshots) for table in tables)),
            "metadata_mb": sum(_size(folder) for folder in lake.rglob("metadata")),
            "data_files": float(sum(1 for _ in _files(lake / "warehouse", "*.parquet"))),
            "catalog_mb": sum(path.stat().st_size for path in data_dir.glob("catalog.db*")) / 1e6,
            "sessions": float(self._sessions()),
            "lag_mb": self._lag(),
        }

    def _sessions(self) -> int:
        with closing(CatalogStore.open(self._family.pgsub.data_dir)) as store:
            return len(store.all_spark_sessions())

    def _lag(self) -> float:
        behind = (
            "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots"
            " WHERE slot_name = %s"
        )
        return float(self._database.value(behind, (self._name,)) or 0) / 1e6


def _rss(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).memory_info().rss
    return total / 1e6


def _files(folder: Path, pattern: str = "*") -> Iterator[Path]:
    for path in folder.rglob(pattern):
        with suppress(FileNotFoundError):  # it may go while we look
            if path.is_file():
                yield path


def _size(folder: Path) -> float:
    total = 0
    for path in _files(folder):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total / 1e6


def growth(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Each measure's median over the second sixth of the run and over the last."""
    length = samples[-1]["at"]

    def median(measure: str, low: float, high: float) -> float:
        part = [s[measure] for s in samples if low * length <= s["at"] <= high * length]
        return statistics.median(part)

    measures = [name for name in samples[0] if name not in ("at", "transactions")]
    return {name: (median(name, 1 / 6, 2 / 6), median(name, 5 / 6, 1)) for name in measures}


def not_flat(
    found: Mapping[str, tuple[float, float]],
    flat: Mapping[str, float] = FLAT,
    near_zero: Mapping[str, float] = NEAR_ZERO,
) -> list[str]:
    """The measures that grew more than they may."""
    return [
        name
        for name, most in flat.items()
        if found[name][1] > max(most * found[name][0], near_zero.get(name, 0.0))
    ]


def write(samples: Sequence[Sample], file: Path) -> None:
    """The samples as CSV."""
    with file.open("w") as opened:
        writer = csv.DictWriter(opened, fieldnames=list(samples[0]))
        writer.writeheader()
        writer.writerows({k: round(v, 2) for k, v in sample.items()} for sample in samples)


def tell(found: Mapping[str, tuple[float, float]], grown: Sequence[str]) -> None:
    """Print each measure early and late, and what grew."""
    for name, (early, late) in found.items():
        print(f"{name:16} {early:10.1f} → {late:10.1f}")
    print(f"grown: {', '.join(grown)}" if grown else "all flat")
