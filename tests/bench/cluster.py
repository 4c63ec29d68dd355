"""Measure ``pgsub`` with a Spark cluster beside the embedded lake server: ``make bench-cluster``.

Both have their tables on one S3 store behind one REST catalog. The cluster is that of ``make
test-cluster``: a master, two workers with an executor of one core each, and a Connect server, all
on this machine. So the figures show what a cluster costs where it brings no processor of its own:
its executors share the cores of the embedded server.

* a copy of 10 M rows, from the subscription's existence to all rows visible;
* compaction: a tenth of the rows is deleted, and Spark rewrites all files of the table;
* batches of 1,000 rows, one after the other, from commit to visible: on the cluster with the commit
  service and without.

Results of scale 1 are kept in ``cluster_results.json``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.bench.core import COLUMNS, MADE, ROWS, WIDE, must_equal, transaction
from tests.bench.environment import environment
from tests.bench.lake_sides import OursOnS3
from tests.bench.local_lake import SCHEMA
from tests.bench.meters import cpu_seconds, tree
from tests.bench.results import HERE, Kept
from tests.bench.sides import OUR_SETTINGS, PUBLISHER_CONF
from tests.cluster.spark_cluster import SparkCluster, on_rest_and_s3, spark_cluster
from tests.fix_publisher import Database
from tests.lake.lake_stack import LakeStack, file_stack

RESULTS: Final = HERE / "cluster_results.json"
COPIED: Final = 10_000_000
WARM: Final = 200_000
BATCH: Final = 1_000
BATCHES: Final = 20
UNCOUNTED: Final = 5

EMBEDDED: Final = "embedded"
CLUSTER: Final = "cluster"
BY_SPARK: Final = "by_spark"
CASES: Final = ("copy_10m", "compact_10m", "small_batches")

SETTINGS: Final = {**OUR_SETTINGS, "autovacuum": "off", "status_tables_interval": "0"}
"""Nothing but what is measured is at work."""
_REWRITE: Final = (
    "CALL lake.system.rewrite_data_files(table => '{schema}.{table}',"
    " options => map('rewrite-all', 'true'))"
)


class OnCluster(OursOnS3):
    """``pgsub`` with ``spark.remote``, or on the embedded server without a cluster."""

    def __init__(
        self,
        publisher: Database,
        folder: Path,
        stack: LakeStack,
        cluster: SparkCluster | None,
        *,
        commit_service: str = "auto",
    ) -> None:
        self.spark: dict[str, str] = {}
        self._cluster = cluster
        if cluster is not None:
            place = f"s3a://{stack.store.bucket}/staging"
            self.spark = {
                "remote": cluster.url,
                "staging": place,
                "commit_service": commit_service,
            }
            self.environment = stack.store.environment(*stack.keys)
        lake = {"catalog": stack.direct_keys()}
        super().__init__(publisher, folder, lake, stack.catalog.uri)

    def _content(self, **keys: Any) -> dict[str, Any]:
        return {**super()._content(**keys), "settings": SETTINGS, "spark": self.spark}

    def cpu_seconds(self) -> float:
        """Of our processes, and of the cluster's."""
        beside = 0.0
        for pid in self._cluster.processes.values() if self._cluster else ():
            beside += cpu_seconds(tree(pid))
        return super().cpu_seconds() + beside


class Played:
    """The servers of a run, and what was measured by case."""

    def __init__(self, scale: float, running: ExitStack, folder: Path) -> None:
        self.scale = scale
        self.figures: dict[str, dict[str, Any]] = {}
        server = EmbeddedPublisher(18, conf=PUBLISHER_CONF)
        server.start()
        running.callback(server.stop)
        server.create_database("bench")
        self.publisher = Database(server, "bench", SCHEMA)
        self.publisher.run(f"CREATE SCHEMA {SCHEMA}", ROWS)
        self.version = str(self.publisher.value("SHOW server_version"))
        stack = running.enter_context(file_stack(folder))
        env = stack.store.environment(*stack.keys)
        cluster = running.enter_context(
            spark_cluster(_made(folder, "spark"), on_rest_and_s3(stack), env)
        )
        self.sides: dict[str, OnCluster] = {}
        for name, beside, service in (
            (EMBEDDED, None, "auto"),
            (CLUSTER, cluster, "auto"),
            (BY_SPARK, cluster, "off"),
        ):
            side = OnCluster(
                self.publisher, _made(folder, name), stack, beside, commit_service=service
            )
            running.callback(side.close)
            self.sides[name] = side

    def copy_and_compact(self) -> None:
        """A warming copy on both, then the copy that counts, and the compaction of its table."""
        rows = int(COPIED * self.scale)
        for table, number in (("warm", WARM), ("large", rows)):
            self.publisher.run(
                f"CREATE TABLE {table} ({WIDE})",
                f"INSERT INTO {table} ({COLUMNS}) SELECT * FROM {MADE}(1, {number})",
                f"CREATE PUBLICATION pub_{table} FOR TABLE {table}",
                f"VACUUM (ANALYZE) {table}",
                "CHECKPOINT",
            )
        for table, number in (("warm", WARM), ("large", rows)):
            for name in (EMBEDDED, CLUSTER):
                side = self.sides[name]
                begun = side.subscribe(f"pub_{table}", {table: WIDE}, copy_data=True)
                side.wait_synced([table])
                taken, cpu = time.monotonic() - begun.at, side.cpu_seconds() - begun.cpu
                must_equal(side.count(table), number)
                if table == "large":
                    self._note("copy_10m", name, taken, cpu, rows=number)
                self._compact(name, table, number)
        for table in ("warm", "large"):
            self.publisher.run(f"DROP PUBLICATION pub_{table}", f"DROP TABLE {table}")

    def _compact(self, name: str, table: str, rows: int) -> None:
        """Nobody subscribes to the table any more, and the table goes afterwards."""
        side = self.sides[name]
        side.pgsub.drop("bench")
        side.pgsub.sql(f"DELETE FROM lake.{SCHEMA}.{table} WHERE id % 10 = 0")
        begun, cpu = time.monotonic(), side.cpu_seconds()
        side.pgsub.sql(_REWRITE.format(schema=SCHEMA, table=table))
        taken, cpu = time.monotonic() - begun, side.cpu_seconds() - cpu
        must_equal(side.count(table), rows - rows // 10)
        if table == "large":
            self._note("compact_10m", name, taken, cpu, rows=rows)
        side.drop(table)

    def small_batches(self) -> None:
        """Each side in turn, with a subscription of its own."""
        for name, side in self.sides.items():
            table = f"small_{name}"
            self.publisher.run(
                f"CREATE TABLE {table} ({WIDE})",
                f"INSERT INTO {table} SELECT * FROM {MADE}(1, {BATCH})",
                f"CREATE PUBLICATION pub_{table} FOR TABLE {table}",
            )
            side.subscribe(f"pub_{table}", {table: WIDE}, copy_data=True)
            side.wait_synced([table])
            times, cpu = list[float](), 0.0
            for turn in range(UNCOUNTED + BATCHES):
                if turn == UNCOUNTED:
                    cpu = side.cpu_seconds()
                first = (turn + 1) * BATCH
                inside = transaction(
                    self.publisher,
                    f"INSERT INTO {table} SELECT * FROM {MADE}({first} + 1, {first} + {BATCH})",
                    f"UPDATE {table} SET amount = amount + 1 WHERE id % 100 = {turn}",
                )
                begun = time.monotonic()
                side.wait_visible(table, inside)
                times.append(time.monotonic() - begun)
            cpu = (side.cpu_seconds() - cpu) / BATCHES
            must_equal(side.count(table), (UNCOUNTED + BATCHES + 1) * BATCH)
            self._note("small_batches", name, statistics.median(times[UNCOUNTED:]), cpu)
            side.unsubscribe()
            self.publisher.run(f"DROP PUBLICATION pub_{table}", f"DROP TABLE {table}")

    def _note(self, case: str, side: str, seconds: float, cpu: float, **more: Any) -> None:
        found = self.figures.setdefault(case, {"case": case, **more})
        found |= {f"{side}_s": round(seconds, 2), f"{side}_cpu_s": round(cpu, 2)}
        print(f"{case} {side}: {seconds:.2f} s, {cpu:.2f} s of CPU", flush=True)


PLAYS: Final[Mapping[str, Callable[[Played], None]]] = {
    "small": Played.small_batches,
    "copy": Played.copy_and_compact,
}


def _made(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def measure(scale: float, only: str, path: Path | None) -> None:
    """Play the cases on new servers, and keep what was measured."""
    with tempfile.TemporaryDirectory(prefix="pgsub-bench-cluster-") as made, ExitStack() as running:
        played = Played(scale, running, Path(made))
        for name, play in PLAYS.items():
            if only in name:
                play(played)
        where = environment(played.version, "not measured", SETTINGS)
        kept = None if path is None else Kept(path, where, CASES)
        for entry in played.figures.values():
            about = {"at": datetime.now(UTC).date().isoformat(), "scale": scale}
            if kept is not None:
                kept.keep({**entry, **about})


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="measure pgsub with a Spark cluster")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--only", default="", help=f"of {', '.join(PLAYS)}; all without")
    options = parser.parse_args()
    measure(options.scale, options.only, RESULTS if options.scale == 1 else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
