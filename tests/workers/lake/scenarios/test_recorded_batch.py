"""A fixed sequence of batches leaves exactly the snapshots that were recorded for it.

The records lie in the folder ``recorded``, one for each way of committing: through the gateway,
and on a Spark server without one. A record lists, for each step of the sequence, the new snapshots
with parent, operation and summary, the snapshots that are gone, every ref with its snapshot, and
what the call returned. Random identifiers and file sizes are left out.

A change of what is committed, or when, shows up here. With ``PGSUB_RECORD=1`` in the environment
the test writes the records anew instead of comparing; the difference is then the change.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, is_dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from tests.fix_lake import Lake
from tests.workers.lake import contract
from tests.workers.lake.contract import (
    COLUMNS,
    PUBLISHED,
    Make,
    append,
    full,
    merge,
    probe,
    stamp,
)
from workers.lake.copy_plan import CopyPlan
from workers.lake.effects import Counts, FileSizes
from workers.lake.metadata.snapshots import OPERATION
from workers.lake.segment import RowsOf, Segment
from workers.lake.sql.statements import create_namespace, sql_text, table_path
from workers.lake.table import SHARED, SOURCE_COLUMN, LakeColumn, LakeIdent, Stamp

RECORDS = Path(__file__).parent / "recorded"
BRANCH, OTHER_BRANCH = "pgsub_1_1_1", "pgsub_1_1_2"
ONE, TWO = "1:public.a", "2:public.b"
RANDOM = re.compile(r"^[0-9a-f]{12,32}(?=$|-)|(?<=^join-)\d+$|(?<=^deletes-)\d+$|(?<=^vacuum-)\d+$")


_LEFT_OUT = ("engine-version", "iceberg-version", "app-id", "manifests-", "removed-")
"""Versions, and what depends on the order in which Iceberg's threads read manifests."""
_DELETES = ("total-delete-files", "total-position-deletes")
"""Behind a rewrite by Spark these depend on that order too: some delete files stay by chance."""


def _summary(found: Mapping[str, str]) -> dict[str, str]:
    """A snapshot's summary without file sizes; versions and random identifiers become marks."""
    kept = {}
    for key, value in found.items():
        if key.endswith("size") or key.startswith(_LEFT_OUT):
            continue
        kept[key] = "<id>" if key == "spark.app.id" else RANDOM.sub("<id>", value)
    return dict(sorted(kept.items()))


def _plain(result: Any) -> Any:
    if is_dataclass(result) and not isinstance(result, type):
        return list(astuple(result))
    return result


class Recorder:
    """Numbers one table's snapshots as they come, and says after each step what has changed."""

    def __init__(self, lake: Lake, ident: LakeIdent) -> None:
        self._catalog = lake.data_dir / "lake" / "catalog.db"
        self._ident = ident
        self._numbers: dict[int, int] = {}
        self._present: set[int] = set()
        self._rewritten_by_spark = False
        self.steps: list[dict[str, Any]] = []

    def step(self, name: str, run: Callable[[], Any]) -> Any:
        """Run one step; a call that is refused is a result like any other."""
        result: Any = None
        try:
            result = run()
            said = _plain(result)
        except ReplicationError as error:
            said = f"{error.code}: {error.primary.replace(str(self._ident), '<table>')}"
        metadata = self._metadata()
        snapshots = sorted(metadata.get("snapshots", ()), key=lambda each: each["sequence-number"])
        new = [
            self._described(each) for each in snapshots if each["snapshot-id"] not in self._numbers
        ]
        present = {self._numbers[each["snapshot-id"]] for each in snapshots}
        if isinstance(result, Counts) and self._rewritten_by_spark:
            said = said[:-1]  # deleted rows in the table's files
        if isinstance(said, int) and said in self._numbers:
            said = f"snapshot {self._numbers[said]}"
        step = {
            "step": name,
            "result": said,
            "new": new,
            "gone": sorted(self._present - present),
            "refs": {
                ref: self._numbers[each["snapshot-id"]]
                for ref, each in sorted(metadata.get("refs", {}).items())
            },
        }
        self._present = present
        self.steps.append(step)
        return result

    def _described(self, snapshot: Mapping[str, Any]) -> dict[str, Any]:
        number = self._numbers.setdefault(snapshot["snapshot-id"], len(self._numbers) + 1)
        summary = _summary(snapshot["summary"])
        operation = summary.pop("operation")
        if operation == "replace" and OPERATION not in summary:
            self._rewritten_by_spark = True
        if self._rewritten_by_spark:
            summary = {key: each for key, each in summary.items() if key not in _DELETES}
        return {
            "snapshot": number,
            "parent": self._numbers.get(snapshot.get("parent-snapshot-id", -1)),
            "operation": operation,
            "summary": summary,
        }

    def properties(self) -> dict[str, Any]:
        """The table's own properties, and which refs have a maximum age."""
        metadata = self._metadata()
        own = {key: value for key, value in metadata["properties"].items() if key != "owner"}
        aged = {name: each.get("max-ref-age-ms") for name, each in metadata["refs"].items()}
        return {"format": metadata["format-version"], "properties": own, "ages": aged}

    def _metadata(self) -> Mapping[str, Any]:
        with closing(sqlite3.connect(self._catalog)) as connection:
            found = connection.execute(
                "SELECT metadata_location FROM iceberg_tables"
                " WHERE table_namespace = ? AND table_name = ?",
                (self._ident.schema, self._ident.table),
            ).fetchone()
        if found is None:
            return {}
        metadata: Mapping[str, Any] = json.loads(Path(found[0].removeprefix("file:")).read_text())
        return metadata


class Recorded:
    """One table of a sequence: a batch is a branch, a write and a publish, a step each."""

    def __init__(self, dest: Any, lake: Lake, ident: LakeIdent) -> None:
        self.dest, self.ident = dest, ident
        self.recorder = Recorder(lake, ident)
        self.step = self.recorder.step

    def write(
        self, name: str, segments: Sequence[Segment], of: Stamp, branch: str = BRANCH, **more: Any
    ) -> None:
        self.step(
            f"{name}: write", lambda: self.dest.write(self.ident, branch, segments, of, **more)
        )

    def publish(self, name: str, of: Stamp, branch: str = BRANCH) -> None:
        self.step(f"{name}: publish", lambda: self.dest.publish(self.ident, branch, of))

    def batch(self, name: str, segments: Sequence[Segment], of: Stamp) -> None:
        self.write(name, segments, of)
        self.publish(name, of)

    def command(self, name: str, words: str, more: str = "") -> None:
        sql = sql_text(words, table_path(self.ident), more)
        session = self.dest._sessions.get()
        session.set_properties({})
        self.step(name, lambda: session.command(sql, "changing the table as another writer"))


@pytest.fixture(params=["gateway", "spark"])
def way(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def recorded(
    way: str, iceberg: Make, lake_server: Lake, lake_ident: LakeIdent
) -> Callable[..., Recorded]:
    """Makes tables, each on a destination of its own, that commit in one of the two ways."""
    count = 0

    def make(**given: Any) -> Recorded:
        nonlocal count
        count += 1
        ident = LakeIdent(lake_ident.schema, f"{lake_ident.table}_{count}")
        return Recorded(iceberg(direct=way == "gateway", **given), lake_server, ident)

    return make


@pytest.fixture
def compare(way: str) -> Callable[[str, list[Any]], None]:
    """Compares one sequence with its record, or records it."""

    def compare(name: str, steps: list[Any]) -> None:
        path = RECORDS / f"{name}_{way}.json"
        if os.environ.get("PGSUB_RECORD"):
            path.write_text(json.dumps(steps, indent=1) + "\n")
        expected = json.loads(path.read_text())
        for found, wanted in zip(json.loads(json.dumps(steps)), expected, strict=True):
            assert found == wanted, found.get("step")

    return compare


def update(key: int, to: int | None = None, v: str = "new") -> contract.Change:
    return (0, key, key if to is None else to, v, None, False)


def delete(key: int) -> contract.Change:
    return (1, key, None, None, None, False)


def rows(first: int, count: int) -> list[tuple[int, str | None, str | None]]:
    return [(n, f"v{n}", "big" * 20) for n in range(first, first + count)]


def test_a_table_with_a_key(
    recorded: Callable[..., Recorded], compare: Callable[[str, list[Any]], None]
) -> None:
    table = recorded()
    dest, ident = table.dest, table.ident
    given: dict[str, Any] = {"owner": "me", "relid": 7, "stamp": stamp(10)}
    table.step("create", lambda: dest.create_table(ident, COLUMNS, **given).records)
    table.step("create again", lambda: dest.create_table(ident, COLUMNS, **given).records)
    table.step("create as another", lambda: dest.create_table(ident, COLUMNS[:1], **given))
    table.step("branch", lambda: dest.create_branch(ident, BRANCH))
    table.batch("insert", [append(dest, rows(1, 50))], stamp(20))
    changes = [update(1), update(2, 200), delete(3), update(999), delete(998), delete(1000)]
    table.batch("mixed", [merge(dest, changes), append(dest, rows(60, 2))], stamp(30))
    kept = [(0, 4, 4, "kept", None, True), (0, 5, 500, "kept", None, True)]
    segment = replace(merge(dest, kept, unchanged=True), append=append(dest, rows(70, 3)).append)
    table.batch("unchanged values", [segment], stamp(40))
    table.batch("two segments", [merge(dest, [delete(6)]), merge(dest, [update(7)])], stamp(50))
    found = probe(dest, [8, 888], lambda keys: merge(dest, [delete(key) for key in keys]))
    table.batch("look up keys", [found], stamp(60))
    table.batch("nothing is found", [probe(dest, [777], lambda _: Segment(PUBLISHED))], stamp(61))
    defaults = (("local note", "concat('row ', c0)"),)
    table.batch("defaults", [append(dest, rows(80, 2), defaults=defaults)], stamp(70))
    truncated = Segment(PUBLISHED, ("id",), truncate=True, append=append(dest, rows(1, 3)).append)
    table.batch("TRUNCATE and rows", [append(dest, rows(90, 1)), truncated], stamp(80))
    table.batch("TRUNCATE alone", [Segment((), truncate=True)], stamp(90))
    table.batch("nothing", [], stamp(100))
    table.batch("nothing again", [], stamp(100))
    table.step("fence", lambda: dest.fence(ident).position().lsn)
    table.batch("behind a fence", [append(dest, rows(1, 1))], stamp(110))
    table.step("drop branches", lambda: dest.drop_branches(ident))
    table.step("branch again", lambda: dest.create_branch(ident, OTHER_BRANCH))
    table.step("branch there", lambda: dest.create_branch(ident, OTHER_BRANCH))
    table.publish("with the wrong position", stamp(110), OTHER_BRANCH)
    table.recorder.steps.append(table.recorder.properties())
    compare("keyed", table.recorder.steps)


def test_maintenance(
    recorded: Callable[..., Recorded], compare: Callable[[str, list[Any]], None]
) -> None:
    table = recorded()
    dest, ident = table.dest, table.ident
    dest.create_table(ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    table.step("branch", lambda: dest.create_branch(ident, BRANCH))
    for n in range(6):
        segments = [append(dest, rows(n * 10, 10)), merge(dest, [delete(n * 10)])]
        table.batch(f"batch {n}", segments, stamp(20 + n))
    sizes = FileSizes(1 << 20, 1 << 26, 1 << 26, few=2)
    table.step("compact", lambda: dest.compact(ident, BRANCH, sizes))
    table.batch("behind the compaction", [], stamp(25))
    table.batch("delete some", [merge(dest, [delete(n) for n in range(1, 9)])], stamp(30))
    table.step("vacuum", lambda: dest.compact(ident, BRANCH, sizes, deleted_share=0.1))
    table.batch("behind the vacuum", [append(dest, rows(100, 1))], stamp(40))
    table.step("expire none", lambda: dest.expire(ident, retain=1, age=3600))
    table.step("expire some", lambda: dest.expire(ident, retain=5))
    table.step("fence", lambda: dest.fence(ident).position().lsn)
    table.step("expire", lambda: dest.expire(ident, retain=1))
    table.step("drop but one", lambda: dest.drop_branches(ident, keep=BRANCH))
    table.step("drop others'", lambda: dest.drop_branches(ident, prefix="pgsub_9"))
    table.step("drop", lambda: dest.drop_branches(ident))
    compare("maintained", table.recorder.steps)


def test_whole_rows(
    recorded: Callable[..., Recorded], compare: Callable[[str, list[Any]], None]
) -> None:
    table = recorded()
    dest, ident = table.dest, table.ident
    dest.create_table(ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    table.step("branch", lambda: dest.create_branch(ident, BRANCH))
    three = [(1, "a", None), (1, "a", None), (2, "b", None)]
    table.batch("insert", [append(dest, three)], stamp(20))

    def change(found: list[Any]) -> Any:
        first, second = sorted(found)[:2]
        return [(*first[1:], 1, None, None), (*second[1:], 0, 3, "c")], [(4, "d", None)]

    table.batch("change", [full(dest, [(1, "a", 2)], change)], stamp(30))
    table.batch("none is there", [full(dest, [(9, "z", 1)], lambda _: (None, None))], stamp(40))
    both = [append(dest, [(5, "e", None)]), full(dest, [(5, "e", 1)], lambda _: (None, None))]
    table.batch("rows before", both, stamp(50))
    compare("whole_rows", table.recorder.steps)


def test_a_shared_table(
    recorded: Callable[..., Recorded], compare: Callable[[str, list[Any]], None]
) -> None:
    def of(source: str, lsn: int) -> Stamp:
        return replace(stamp(lsn, f"epoch of {source}"), source=source)

    table = recorded()
    dest, ident = table.dest, table.ident
    columns = (*COLUMNS, LakeColumn(SOURCE_COLUMN, pa.string()))
    given: dict[str, Any] = {"owner": SHARED, "relid": 7, "stamp": of(ONE, 10)}
    table.step("create", lambda: dest.create_table(ident, columns, **given).records)
    for lsn, source in ((20, ONE), (20, TWO), (30, ONE)):
        table.step(f"branch for {source}", lambda: dest.create_branch(ident, BRANCH))
        segments = [replace(append(dest, rows(lsn, 2)), source=source)]
        table.batch(f"insert of {source}", segments, of(source, lsn))
    table.step("branch", lambda: dest.create_branch(ident, BRANCH))
    table.write("from the wrong base", [], of(TWO, 40), base=LSN(39))
    changes = replace(merge(dest, [update(20), delete(21), delete(30)]), source=TWO)
    table.write("changes", [changes], of(TWO, 40), base=LSN(20))
    table.publish("changes", of(TWO, 40))
    table.step("fence", lambda: sorted(dest.fence(ident).sources))
    table.step("copy's branch", lambda: dest.create_branch(ident, OTHER_BRANCH))
    emptied = Segment(PUBLISHED, ("id",), truncate=True, source=ONE)
    again = replace(append(dest, rows(50, 4)), source=ONE)
    table.write("copy again", [emptied, again], of(ONE, 50), OTHER_BRANCH)
    table.step("main's branch", lambda: dest.create_branch(ident, BRANCH))
    taken = Segment(PUBLISHED, ("id",), truncate=True, source=ONE, from_branch=OTHER_BRANCH)
    table.batch("from the copy's branch", [taken], of(ONE, 50))
    compare("shared", table.recorder.steps)


@pytest.mark.parametrize("tracks", [False, True], ids=["plain", "with other writers"])
def test_a_table_of_format_three(
    recorded: Callable[..., Recorded], compare: Callable[[str, list[Any]], None], tracks: bool
) -> None:
    table = recorded(format_version=3, track_commit_timestamp=tracks)
    dest, ident = table.dest, table.ident
    given: dict[str, Any] = {"owner": "me", "relid": 7, "stamp": stamp(10)}
    table.step("create", lambda: dest.create_table(ident, COLUMNS, **given).records)
    table.step("branch", lambda: dest.create_branch(ident, BRANCH))
    table.batch("insert", [append(dest, rows(1, 10))], stamp(20))
    table.batch("mixed", [merge(dest, [update(1), update(2, 20), delete(3)])], stamp(30))
    table.batch("once more", [merge(dest, [update(20, 2), delete(4), delete(99)])], stamp(40))
    table.step("drop", lambda: dest.drop_branches(ident))
    table.command("another writer", "UPDATE", "SET v = 'theirs' WHERE id = 5")
    table.step("branch again", lambda: dest.create_branch(ident, BRANCH))
    changes = merge(dest, [update(5), delete(6)])
    table.batch("on another's row", [changes, append(dest, rows(30, 1))], stamp(50))
    sizes = FileSizes(1 << 20, 1 << 26, 1 << 26, few=2)
    table.step("compact", lambda: dest.compact(ident, BRANCH, sizes))
    compare("format_3_tracked" if tracks else "format_3", table.recorder.steps)


@pytest.fixture
def plan(database: Any) -> Iterator[Callable[..., CopyPlan]]:
    """A copy of 300 rows in three ranges."""
    database.run(
        "CREATE TABLE public.copied (id bigint, v text)",
        "INSERT INTO public.copied SELECT g, 'x' || g FROM generate_series(1, 300) g",
    )
    select = "COPY (SELECT id, v FROM public.copied WHERE {}) TO STDOUT (FORMAT csv)"
    ranges = ["id < 100", "id >= 100 AND id < 200", "id >= 200"]
    with database.connect() as connection:
        connection.autocommit = False
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        snapshot = connection.execute("SELECT pg_export_snapshot()").fetchone()[0]

        def plan(**changes: Any) -> CopyPlan:
            given = {
                "conninfo": database.dsn,
                "passfile": None,
                "snapshot": snapshot,
                "statements": tuple(select.format(each) for each in ranges),
                "columns": COLUMNS[:2],
                "relation": "public.copied",
            }
            return CopyPlan(**(given | changes))

        yield plan
        connection.rollback()


@pytest.mark.timeout(300)
def test_copies(
    recorded: Callable[..., Recorded],
    compare: Callable[[str, list[Any]], None],
    plan: Callable[..., CopyPlan],
) -> None:
    table = recorded()
    dest, ident = table.dest, table.ident
    session = dest._sessions.get()
    session.command(create_namespace(ident), "preparing a test")
    definition = "(id BIGINT, v STRING, big STRING, `local note` STRING) USING iceberg"
    table.command("another's table", "CREATE TABLE", definition)
    values = "VALUES (1, 'one', 'b', 'n'), (400, 'x', '', '')"
    table.command("another's rows", "INSERT INTO", f"SELECT /*+ COALESCE(1) */ * FROM {values}")
    start = dest.table(ident).snapshot_id
    adopted = {"owner": "me", "stamp": stamp(10)}
    table.step("adopt", lambda: dest.adopt_table(ident, **adopted).records)
    taken_by_another = {"owner": "you", "stamp": stamp(10)}
    table.step("adopt as another", lambda: dest.adopt_table(ident, **taken_by_another))
    ignore: Callable[[int, int], None] = lambda done, total: None  # noqa: E731 - a callback
    key = ("id",)

    def copy(name: str, **changes: Any) -> None:
        table.step(f"{name}: branch", lambda: dest.create_branch(ident, BRANCH, start))
        table.step(name, lambda: dest.copy(ident, BRANCH, plan(**changes), ignore))

    copy("copy with its position", stamp=stamp(20))
    table.publish("copy off main", stamp(20))
    table.step("branch", lambda: dest.create_branch(ident, BRANCH))
    table.step("copy", lambda: dest.copy(ident, BRANCH, plan(), ignore))
    table.step("existing keys", lambda: dest.existing_keys(ident, BRANCH, key))
    table.step("overwrite", lambda: dest.overwrite_existing(ident, BRANCH, ("id", "v"), key))
    table.batch("publish the copy", [], stamp(20))
    table.step("undo", lambda: dest.rollback(ident, start))
    table.step("fence", lambda: dest.fence(ident).position())
    defaults = (("local note", "concat('copied ', c0)"),)
    copy("copy with defaults", defaults=defaults)
    table.recorder.steps.append(table.recorder.properties())
    many = pa.table({"c0": [6, 7, 8], "c1": ["a", "b", "c"]})
    of = RowsOf(ident, ("id", "v"))
    table.step("branch of rows", lambda: dest.create_branch(ident, BRANCH))
    staged = dest.stage(many.to_batches(), many.schema, of)
    table.write("whole rows", [Segment(("id", "v"), ("id",), append=staged)], stamp(30))
    table.step("drop", lambda: dest.drop_table(ident))
    compare("copied", table.recorder.steps)
