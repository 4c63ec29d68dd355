"""The lake's SQL except MERGE: built from syntax tree nodes, never from quoted strings.

Names come from the publisher and may hold quotes, backticks, newlines, semicolons. So a name enters
a statement only as an ``Identifier`` node, a value only as a ``Literal`` node, and sqlglot writes
the text of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark  # given by name, every worker would import the class

from catalog.table_layout import LayoutField
from workers.lake.connect.session_conf import CATALOG
from workers.lake.metadata.snapshots import OWNER, PUBLISHER_COLUMNS
from workers.lake.new_layout import NewTable
from workers.lake.sql.spark_typemap import spark_ddl
from workers.lake.storage.local_path import is_local
from workers.lake.table import MAIN, SOURCE_COLUMN, LakeColumn, LakeIdent

TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    # Batches are small and come often; a shuffle to sort them costs more than it saves.
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    "write.update.distribution-mode": "none",
    "write.delete.distribution-mode": "none",
    # Every commit writes a metadata file; without limits the files grow as the square.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # A branch has a single writer: a MERGE need not be checked against later snapshots.
    "write.merge.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.delete.isolation-level": "snapshot",
}
"""Properties of every table of pgsub. Readers see the same rows with and without them."""

NEW_TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    # Two million rows in 3.15 s instead of 3.8, the files 6 percent larger. The default dictionary
    # has 2 MB: Parquet fills the dictionary with keys and then mostly gives the dictionary up.
    "write.parquet.dict-size-bytes": str(128 << 10),
    "write.parquet.compression-level": "1",
}
"""More properties of a table that pgsub creates. An adopted table keeps its settings."""

_FEW_TASKS: Final[Mapping[str, str]] = {
    # A task of a MERGE reads files up to a weight of 16 MB, and writes a data file. By default a
    # file weighs 4 MB, and 4 MB more for deletes, so a task had two small files: 43 files after ten
    # batches of 200 rows instead of 11, and the next MERGE writes the deletes of all files again.
    # At the weight set here a task has up to sixteen small files.
    #
    # In a store the opening of a file takes requests, one after the other. So a reader has to open
    # many files at a time, and more tasks are quicker: 180 small files with deletes, 30 ms a
    # request, were counted in 2.2 s instead of 3.5 s, by sixteen tasks at a time.
    "read.split.open-file-cost": str(512 << 10),
}
"""Properties of a new table that Spark writes by MERGE, or whose files are on a local disk."""

FORMAT_VERSION: Final = "format-version"
"""An adopted table keeps its format version too."""


def identifier(name: str) -> exp.Identifier:
    """One name, verbatim."""
    return exp.to_identifier(name, quoted=True)


def path(*names: str) -> exp.Expression:
    """``a.b.c`` of verbatim names."""
    node: exp.Expression = identifier(names[0])
    for name in names[1:]:
        node = exp.Dot(this=node, expression=identifier(name))
    return node


def text(value: str) -> exp.Expression:
    """A string literal."""
    return exp.Literal.string(value)


def sql_text(*parts: str | exp.Expr) -> str:
    """The text of a statement: keywords as strings, names and values as nodes."""
    return " ".join(p if isinstance(p, str) else p.sql(dialect=Spark) for p in parts)


def table_path(ident: LakeIdent, *more: str) -> exp.Expression:
    """``lake.schema.table``, maybe with the name of a metadata table or of a branch behind."""
    return path(CATALOG, ident.schema, ident.table, *more)


def branch_path(ident: LakeIdent, branch: str | None) -> exp.Expression:
    """The table as of a branch; None or ``main`` is the table itself."""
    if branch is None or branch == MAIN:
        return table_path(ident)
    return table_path(ident, f"branch_{branch}")


def name_of(node: exp.Expression) -> str:
    """A path as text, for calls that take a name and not a statement."""
    return node.sql(dialect=Spark)


def create_namespace(ident: LakeIdent) -> str:
    """CREATE NAMESPACE IF NOT EXISTS of the table's schema."""
    return sql_text("CREATE NAMESPACE IF NOT EXISTS", path(CATALOG, ident.schema))


def new_table_properties(new: NewTable, location: str | None) -> dict[str, str]:
    """All properties of a new table; those of the configuration go before ours that are free.

    ``location`` is the table's folder; None if the catalog chooses the folder.
    """
    on_disk = location is not None and is_local(location)
    few = _FEW_TASKS if new.is_merged or on_disk else {}
    given = {**NEW_TABLE_PROPERTIES, **few, **dict(new.layout.properties)}
    ours = {**TABLE_PROPERTIES, FORMAT_VERSION: str(new.format_version), OWNER: new.owner}
    if new.publisher_columns:
        ours[PUBLISHER_COLUMNS] = new.publisher_columns
    return {**given, **ours}


def _term(field: LayoutField) -> str:
    """A column, or a transform of a column, as Iceberg's extensions of Spark write a term."""
    column = name_of(identifier(field.column))
    if field.width:
        return f"{field.transform}({field.width}, {column})"
    return column if field.transform == "identity" else f"{field.transform}s({column})"


def sort_table(ident: LakeIdent, sort_by: Sequence[LayoutField]) -> str:
    """ALTER TABLE … WRITE LOCALLY ORDERED BY: rows are sorted in files, without a shuffle."""
    terms = ", ".join(
        f"{_term(each)} {'DESC' if each.descending else 'ASC'}"
        f" NULLS {'FIRST' if each.nulls_first else 'LAST'}"
        for each in sort_by
    )
    return sql_text("ALTER TABLE", table_path(ident), f"WRITE LOCALLY ORDERED BY {terms}")


def create_table(
    ident: LakeIdent,
    columns: Sequence[LakeColumn],
    *,
    properties: Mapping[str, str],
    location: str | None,
    partition_by: Sequence[LayoutField] = (),
) -> str:
    """CREATE TABLE with the columns, nullable or NOT NULL."""
    definitions: list[str] = []
    for column in columns:
        parts = [name_of(identifier(column.name)), spark_ddl(column.type)]
        parts += [] if column.nullable else ["NOT NULL"]
        parts += ["COMMENT", name_of(text(column.doc))] if column.doc else []
        definitions.append(" ".join(parts))
    pairs = ", ".join(f"{name_of(text(k))} = {name_of(text(v))}" for k, v in properties.items())
    where: list[str | exp.Expr] = ["LOCATION", text(location)] if location else []
    if partition_by:
        where.insert(0, f"PARTITIONED BY ({', '.join(map(_term, partition_by))})")
    return sql_text(
        "CREATE TABLE",
        table_path(ident),
        f"({', '.join(definitions)}) USING iceberg",
        *where,
        f"TBLPROPERTIES ({pairs})",
    )


def rename_table(ident: LakeIdent, new: LakeIdent) -> str:
    """ALTER TABLE … RENAME TO; Spark takes the new name without the catalog."""
    return sql_text("ALTER TABLE", table_path(ident), "RENAME TO", path(new.schema, new.table))


def set_properties(ident: LakeIdent, properties: Mapping[str, str]) -> str:
    """ALTER TABLE … SET TBLPROPERTIES."""
    pairs = ", ".join(f"{name_of(text(k))} = {name_of(text(v))}" for k, v in properties.items())
    return sql_text("ALTER TABLE", table_path(ident), f"SET TBLPROPERTIES ({pairs})")


def create_branch(ident: LakeIdent, branch: str, at: int | None = None) -> str:
    """CREATE OR REPLACE BRANCH at a snapshot, or at the tip of ``main``.

    No expiry drops the branch because of its age, whatever the table's properties say.
    """
    version = [] if at is None else ["AS OF VERSION", exp.Literal.number(at)]
    verb = "CREATE OR REPLACE BRANCH"
    words = [verb, identifier(branch), *version, "RETAIN 1000000 DAYS"]
    return sql_text("ALTER TABLE", table_path(ident), *words)


def drop_branch(ident: LakeIdent, branch: str) -> str:
    """DROP BRANCH IF EXISTS."""
    return sql_text("ALTER TABLE", table_path(ident), "DROP BRANCH IF EXISTS", identifier(branch))


def rename_column(ident: LakeIdent, old: str, new: str) -> str:
    """ALTER TABLE RENAME COLUMN: Iceberg keeps the values, and rewrites no file."""
    names = ("RENAME COLUMN", identifier(old), "TO", identifier(new))
    return sql_text("ALTER TABLE", table_path(ident), *names)


def delete_source(ident: LakeIdent, branch: str, source: str) -> str:
    """DELETE of all rows of a source."""
    return sql_text("DELETE FROM", branch_path(ident, branch), "WHERE", _came_from(source))


def select_source(ident: LakeIdent, branch: str, source: str) -> str:
    """SELECT of all rows of a source."""
    return sql_text("SELECT * FROM", branch_path(ident, branch), "WHERE", _came_from(source))


def select_filled(
    ident: LakeIdent, branch: str, columns: Sequence[str], values: Mapping[str, str]
) -> str:
    """SELECT of all rows of a branch, with some columns from the single row of ``s``.

    ``values`` maps such columns to the columns of ``s``.
    """
    read = [
        f"{name_of(path('s', values[name]) if name in values else path('t', name))} AS "
        f"{name_of(identifier(name))}"
        for name in columns
    ]
    where = branch_path(ident, branch)
    return sql_text(f"SELECT {', '.join(read)} FROM", where, "AS t CROSS JOIN s")


def _came_from(source: str) -> exp.Expression:
    return exp.EQ(this=identifier(SOURCE_COLUMN), expression=text(source))


def call(procedure: str, ident: LakeIdent, **arguments: str | exp.Expression) -> str:
    """CALL lake.system.<procedure>(table => '…', name => value, …)."""
    table = name_of(path(ident.schema, ident.table))
    nodes = {"table": text(table)} | {
        key: text(value) if isinstance(value, str) else value for key, value in arguments.items()
    }
    listed = ", ".join(f"{key} => {name_of(node)}" for key, node in nodes.items())
    return sql_text("CALL", path(CATALOG, "system", procedure), f"({listed})")
