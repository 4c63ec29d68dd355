"""Ask the publisher about publications and the tables in them.

PostgreSQL's own subscriber asks queries Q1 to Q7, each in a variant for the publisher's version.
pgsub adds three: the parts of a column's type (domains and arrays resolved), the actions, filters
and versions of a table's publications (``fingerprint``), and the leaves of a partitioned table.
The queries run on a walsender connection with an empty search_path. The connection takes the
simple protocol only, so this room quotes every name as a literal or as an identifier.

=====  =====================================  ==========================================
query  asks for                               differs by publisher version
=====  =====================================  ==========================================
Q1     the publications                       no
Q2     the tables of the publications         16: one set over all; 15: column lists
Q3     tables that another origin writes      no
Q4     a table's oid, identity, kind          no
Q5     a table's column list                  asked from 15 on
Q6     a table's columns                      18: with generated columns; 12: without
Q7     a table's row filters                  asked from 15 on
=====  =====================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.errcodes import FeatureNotSupported
from catalog.namespace import quote_literal_list
from workers.publisher.fingerprint import TableName
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import newest, query, to_number, to_text


def missing_publications(conn: QueryConn, publications: Sequence[str]) -> list[str]:
    """Q1: the publications that the publisher does not have, in the given order."""
    rows = conn.exec(query("publications", publications=quote_literal_list(publications)))
    present = {row[0] for row in rows}
    return [name for name in publications if name not in present]


def missing_on_publisher(missing: Sequence[str]) -> str:
    """What is said of missing publications."""
    names = ", ".join(f'"{name}"' for name in missing)
    what = f"publication {names} does" if len(missing) == 1 else f"publications {names} do"
    return f"{what} not exist on the publisher"


def fetch_table_list(conn: QueryConn, publications: Sequence[str]) -> list[TableName]:
    """Q2: (schema, table) of every published table, sorted by name.

    Raises 0A000 if publications list different columns of one table, as PostgreSQL does.
    """
    name = newest("tables", conn.server_version, 16, 15, 13, 10)
    names = quote_literal_list(publications)
    values = {
        "publications": names,
        "listed_ancestor": query("listed_ancestor", publications=names),
    }
    tables: list[TableName] = []
    for row in conn.exec(query(name, **values)):
        table = (to_text(row[0]), to_text(row[1]))
        if table in tables[-1:]:
            raise different_column_lists(table)
        tables.append(table)
    return tables


def tables_of_other_origins(
    conn: QueryConn, publications: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Q3: (schema, table, publication) of published tables that the publisher itself subscribes to.

    A table counts, too, if the publisher subscribes to a partition or an ancestor of the table.
    """
    rows = conn.exec(query("other_origins", publications=quote_literal_list(publications)))
    return [(to_text(row[0]), to_text(row[1]), to_text(row[2])) for row in rows]


def fetch_published_types(conn: QueryConn, publications: Sequence[str]) -> set[int]:
    """The types of all published columns, and perhaps of some more columns."""
    rows = conn.exec(query("published_types", publications=quote_literal_list(publications)))
    return {to_number(row[0]) for row in rows}


def different_column_lists(table: TableName) -> FeatureNotSupported:
    """The error about a table with several column lists."""
    return FeatureNotSupported(
        "cannot use different column lists for table "
        f'"{table[0]}.{table[1]}" in different publications'
    )
