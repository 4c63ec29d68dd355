"""Every statement for the lake, as a function of five names that the publisher could have chosen.

A statement that is built where it is used is had by listening: something stands in the place of the
session, answers as it is told, and stops at the next thing that it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn, cast

import pyarrow as pa

from catalog.pg_lsn import LSN
from catalog.table_layout import LayoutField
from config.guc import Settings
from workers.lake.effects import FileSizes
from workers.lake.files.merge_delete_files import list_data, list_deletes
from workers.lake.iceberg.destination import IcebergDestination
from workers.lake.iceberg.expiry import expire_snapshots
from workers.lake.interfaces.segment_writer import CommitNames
from workers.lake.metadata.snapshots import OWNER
from workers.lake.sql import copied_keys, orphan_files, status_tables
from workers.lake.sql.find_rows import (
    count_repeated,
    find_any_key,
    find_keys,
    find_positions,
    find_ranges,
)
from workers.lake.sql.generated_check import generated_types
from workers.lake.sql.generated_values import generated_at, renamed
from workers.lake.sql.key_bounds import KeyRanges
from workers.lake.sql.merge import KeyBounds, by_key, merge_by_key, merge_by_position
from workers.lake.sql.merge_results import read_outcomes
from workers.lake.sql.other_writers import (
    OtherWriters,
    all_others,
    count_rows_of_others,
    look_for_others,
)
from workers.lake.sql.rewrite_files import compact
from workers.lake.sql.row_queries import RowQueries
from workers.lake.sql.segment_writer import MergeSegmentWriter
from workers.lake.sql.statements import (
    branch_path,
    call,
    create_branch,
    create_namespace,
    create_table,
    delete_source,
    drop_branch,
    identifier,
    name_of,
    rename_column,
    rename_table,
    select_filled,
    select_source,
    set_properties,
    sort_table,
    sql_text,
    table_path,
    text,
)
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.sql.table_metadata import (
    read_history,
    read_location,
    read_once_on_main,
    read_properties,
)
from workers.lake.storage.staging import Staging
from workers.lake.table import Identity, LakeColumn, LakeIdent, Stamp

SIZES: Final = FileSizes()
BRANCH: Final = "pgsub_1_2"
Names = list[str]
Build = Callable[[Names], str]


class SaidError(Exception):
    """What a session was asked."""


class Listening:
    """In a session's place: what it is asked after ``answers`` were given comes as an error."""

    def __init__(self, *answers: pa.Table) -> None:
        self._answers = list(answers)

    def query(self, sql: str, *_: object, **_views: object) -> pa.Table:
        if not self._answers:
            raise SaidError(sql)
        return self._answers.pop(0)

    call = schema = query

    def command(self, sql: str, *_: object) -> NoReturn:
        raise SaidError(sql)

    commit = command

    def frame(self, plan: Any) -> NoReturn:
        raise SaidError(plan._query)

    def overwrite(self, _rows: object, name: str, *_: object) -> NoReturn:
        raise SaidError(name)

    append = overwrite

    def local(self, _rows: object) -> Any:
        return SimpleNamespace(select=lambda *_: None)

    def set_properties(self, _properties: object) -> None: ...

    def limit_parallelism(self) -> None: ...


def asked(read: Callable[[Any], object], *answers: pa.Table) -> str:
    """The statement that follows the answers."""
    try:
        read(Listening(*answers))
    except SaidError as said:
        return str(said)
    raise AssertionError("nothing was asked")


def on_lake(use: Callable[[IcebergDestination], object], *answers: pa.Table) -> str:
    """The same for what the destination itself says."""

    def read(session: Any) -> None:
        dest = IcebergDestination(
            "sc://nowhere",
            identity=Identity(1),
            staging_dir=Path("nowhere"),
            settings=Settings(),
            remember_session=lambda *_: None,
        )
        dest._sessions = cast("Any", SimpleNamespace(get=lambda: session))
        dest._tables = dest._branches._tables = sql_tables(session)
        use(dest)

    return asked(read, *answers)


def ident(names: Names) -> LakeIdent:
    return LakeIdent(names[0], names[1])


def bounds(names: Names) -> KeyBounds:
    return KeyBounds(names[2], names[3], names[4])


def quoted(name: str) -> str:
    return name_of(identifier(name))


def columns(names: Names, *types: pa.DataType) -> list[LakeColumn]:
    return [LakeColumn(name, type) for name, type in zip(names, types, strict=False)]


def sql_tables(session: Any) -> SqlTableApi:
    """``TableApi`` in the statements of this session."""
    return SqlTableApi(cast("Any", SimpleNamespace(get=lambda: session)))


def writer(session: Any, names: Names) -> MergeSegmentWriter:
    staging = Staging("", Settings().local_relation_rows)
    queries = RowQueries(session, staging, ident(names), BRANCH, KeyRanges(ident(names), ()))
    return MergeSegmentWriter(sql_tables(session), queries, (), CommitNames())


def table(**values: list[Any]) -> pa.Table:
    return pa.table(values)


def history(branch: str) -> pa.Table:
    """A branch at snapshot 2, whose parent 1 carries a stamp, and so does it."""
    stamp = ["pg_1", "0/1", "e", "0/1"]
    rows: list[list[Any]] = [
        [branch, 2, None, None, *[None] * 12],
        ["main", 2, None, None, *[None] * 12],
        [None, 2, 1, 2000, *stamp, *[None] * 8],
        [None, 1, None, 1000, *stamp, *[None] * 8],
    ]
    return pa.table([list(column) for column in zip(*rows, strict=True)], [*map(str, range(16))])


LINEAGE: Final = table(key=["format-version"], value=["3"])
COMPACTED: Final = table(rewritten_data_files_count=[20])
TYPES: Final[dict[str, pa.DataType]] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "text": pa.string(),
    "date": pa.date32(),
}


def drop_dangling_deletes(type: pa.DataType) -> Build:
    return lambda n: asked(
        lambda session: compact(session, ident(n), BRANCH, columns(n[3:], type), SIZES),
        COMPACTED,
        table(n=[20]),
    )


BUILDERS: dict[str, Build] = {
    "merge by key": lambda n: merge_by_key(
        ident(n), BRANCH, columns=n[2:], key=n[2:4], unchanged=n[3:], bounds=bounds(n)
    ),
    "merge by key, of a source": lambda n: merge_by_key(
        ident(n), BRANCH, columns=n[2:4], key=n[2:3], of=n[4]
    ),
    "merge by key, generated": lambda n: merge_by_key(
        ident(n),
        BRANCH,
        columns=n[3:4],
        key=n[3:4],
        unchanged=n[3:4],
        generated=((n[2], f"upper({quoted(n[3])}) || {quoted(n[4])}"),),
    ),
    "merge by position": lambda n: merge_by_position(
        ident(n), BRANCH, columns=n[2:4], deletes=True, updates=True, generated=n[4:]
    ),
    "find positions": lambda n: find_positions(ident(n), BRANCH, n[2:4], n[4]),
    "find keys": lambda n: find_keys(ident(n), BRANCH, n[2:4], bounds(n), n[4]),
    "find rows": lambda n: find_keys(ident(n), BRANCH, n[2:4], bounds(n), n[4], columns=n[3:5]),
    "list deletes": lambda n: list_deletes(ident(n), n[2]),
    "rename column": lambda n: rename_column(ident(n), n[2], n[3]),
    "list data": lambda n: list_data(ident(n), n[2]),
    "find any key": lambda n: find_any_key(ident(n), BRANCH, [("s", n[2:4]), ("s1", n[4:])], n[2]),
    "count repeated": lambda n: count_repeated(ident(n), BRANCH, n[2:4], n[2]),
    "find ranges": lambda n: find_ranges(ident(n), n[2]),
    "rows of others": lambda n: count_rows_of_others(
        ident(n), BRANCH, by_key(n[2:4], bounds(n), n[4]), OtherWriters(7, frozenset({9}))
    ),
    "create namespace": lambda n: create_namespace(ident(n)),
    "rename table": lambda n: rename_table(ident(n), LakeIdent(n[2], n[3])),
    "create table": lambda n: create_table(
        ident(n),
        [LakeColumn(n[2], pa.int64()), LakeColumn(n[3], pa.list_(pa.string()), nullable=False)],
        properties={n[4]: n[3]},
        location=n[2],
        partition_by=(LayoutField(n[2], "bucket", 4), LayoutField(n[3])),
    ),
    "sort table": lambda n: sort_table(ident(n), (LayoutField(n[2], "day", descending=True),)),
    "drop table": lambda n: on_lake(lambda dest: dest.drop_table(ident(n))),
    "read columns": lambda n: on_lake(lambda dest: dest.table(ident(n))),
    "set properties": lambda n: set_properties(ident(n), {n[2]: n[3]}),
    "create branch": lambda n: create_branch(ident(n), n[2]),
    "create branch at": lambda n: create_branch(ident(n), n[2], 7),
    "drop branch": lambda n: drop_branch(ident(n), n[2]),
    "list branches": lambda n: on_lake(lambda dest: dest.drop_branches(ident(n), prefix=n[2])),
    "drop branches": lambda n: on_lake(
        lambda dest: dest.drop_branches(ident(n), prefix=n[2]), table(name=[n[2]])
    ),
    "publish": lambda n: on_lake(
        lambda dest: dest.publish(ident(n), n[2], Stamp("pg_1", LSN(1), "e", LSN(1))),
        history(n[2]),
    ),
    "roll back": lambda n: on_lake(lambda dest: dest.rollback(ident(n), 7)),
    "truncate": lambda n: asked(lambda session: writer(session, n).truncate("").run({})),
    "truncate of a source": lambda n: asked(lambda s: writer(s, n).truncate(n[3]).run({})),
    "append": lambda n: asked(lambda session: writer(session, n).commit_empty({})),
    "branch to write to": lambda n: writer(None, n).target(),
    "delete a source": lambda n: delete_source(ident(n), BRANCH, n[3]),
    "select filled columns": lambda n: select_filled(ident(n), BRANCH, n[2:], {n[3]: n[4]}),
    "select a source": lambda n: select_source(ident(n), BRANCH, n[3]),
    "procedure": lambda n: call("fast_forward", ident(n), branch=n[2], to=n[3]),
    "path": lambda n: name_of(branch_path(ident(n), BRANCH)),
    "property": lambda n: sql_text(
        "SHOW TBLPROPERTIES", table_path(ident(n)), "(", text(n[2]), ")"
    ),
    "properties": lambda n: asked(lambda session: read_properties(session, ident(n))),
    "location": lambda n: asked(lambda session: read_location(session, ident(n))),
    "history": lambda n: asked(lambda session: read_history(session, ident(n))),
    "once on main": lambda n: asked(lambda session: read_once_on_main(session, ident(n))),
    "expire what is named": lambda n: asked(
        lambda session: sql_tables(session).expire_named(ident(n), [7, 8])
    ),
    "outcomes": lambda n: asked(lambda session: read_outcomes(session, {ident(n): n[2:]})),
    "all others": lambda n: asked(lambda session: all_others(session, ident(n)), LINEAGE),
    "others": lambda n: asked(lambda session: look_for_others(session, ident(n), None), LINEAGE),
    "rows that others brought": lambda n: asked(
        lambda session: look_for_others(session, ident(n), None), LINEAGE, table(id=[7])
    ),
    "expire": lambda n: asked(
        lambda session: expire_snapshots(
            sql_tables(session), ident(n), retain=3, make_durable=lambda: None
        ),
        history(n[2]),
    ),
    "expire what is old": lambda n: asked(
        lambda session: expire_snapshots(
            sql_tables(session),
            ident(n),
            retain=3,
            age=60.0,
            make_durable=lambda: None,
            clock=lambda: 1_763_000_000.25,
        ),
        history(n[2]),
    ),
    "compact": lambda n: asked(lambda session: compact(session, ident(n), n[2], (), SIZES)),
    "sizes of files": lambda n: asked(
        lambda session: compact(session, ident(n), n[2], (), SIZES, 0.1)
    ),
    "rewrite dead rows": lambda n: asked(
        lambda session: compact(session, ident(n), n[2], (), SIZES, 0.1), table(n=[1 << 20])
    ),
    "count files": lambda n: asked(
        lambda session: compact(session, ident(n), n[2], columns(n[3:], pa.int32()), SIZES),
        COMPACTED,
    ),
    **{
        f"drop dangling deletes, {kind}": drop_dangling_deletes(type)
        for kind, type in TYPES.items()
    },
    "the table before a copy": lambda n: asked(
        lambda session: copied_keys.count_existing_keys(session, ident(n), n[2], n[3:]),
        history(n[2]),
    ),
    "values that stay": lambda n: asked(
        lambda session: generated_at(
            session, ident(n), BRANCH, None, n[3:4], (("g", f"upper({quoted(n[4])})"),)
        )
    ),
    "columns of a source": lambda n: ", ".join(str(each._expr) for each in renamed(n[2:], "o")),
    "generated columns": lambda n: asked(
        lambda session: generated_types(
            session,
            ident(n),
            columns(n[3:], pa.string(), pa.string()),
            ((n[2], f"concat({quoted(n[3])}, {quoted(n[4])})"),),
        )
    ),
    "folder": lambda n: asked(lambda session: orphan_files._folder(session, ident(n), "looking")),
    "copied sources": lambda n: asked(
        lambda session: orphan_files._being_copied(session, ident(n), "looking")
    ),
    "files elsewhere": lambda n: asked(
        lambda session: orphan_files._elsewhere(session, ident(n), n[2], "looking")
    ),
    "orphan files": lambda n: asked(
        lambda session: orphan_files.remove_orphans(session, ident(n), owner="me", older_than=0),
        table(file=["w/s/7-t-01234567/metadata/v1"]),
        table(key=[OWNER], value=["me"]),
        table(name=[]),
        table(n=[0]),
    ),
    "status table": lambda n: asked(lambda session: status_tables._read(session, ident(n))),
    "write status table": lambda n: asked(
        lambda session: status_tables._bring_up_to_date(
            session, ident(n), status_tables.StatusTable(table(), "c", "new")
        ),
        table(digest=["c old"], snapshots=[1]),
    ),
    "expire status table": lambda n: asked(
        lambda session: status_tables._expire(session, ident(n))
    ),
}
