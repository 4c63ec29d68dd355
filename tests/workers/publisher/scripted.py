"""A publisher that answers from a script, and a table in it."""

from __future__ import annotations

from dataclasses import replace

from workers.publisher.fingerprint import PublishedActions
from workers.publisher.interfaces import Row
from workers.publisher.remote_table import (
    ColumnType,
    RemoteColumn,
    RemoteTable,
)

INT4 = ColumnType(23, -1, "pg_catalog", "int4", "b")


class ScriptedPublisher:
    """Answers by the words a query contains; records what it was asked."""

    def __init__(self, version: int, answers: dict[str, list[Row]]) -> None:
        self.server_version = version
        self.answers = answers
        self.asked: list[str] = []

    def exec(self, sql: str) -> list[Row]:
        self.asked.append(sql)
        found = [rows for words, rows in self.answers.items() if words in sql]
        return found[-1] if found else []


def table(**changes: object) -> RemoteTable:
    base = RemoteTable(
        nspname="public",
        relname="table_1",
        relid=16389,
        relkind="r",
        relreplident="d",
        columns=(
            RemoteColumn(1, "id", True, False, INT4),
            RemoteColumn(2, 'na"me', False, False, INT4),
        ),
        row_filters=(),
        actions=PublishedActions(True, True, True, True, False),
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # one test helper for all fields


def answers() -> dict[str, list[Row]]:
    return {
        "INNER JOIN": [("16389", "d", "r", "16402")],
        "array_length": [("1 2 4",)],
        "pg_attribute": [
            ("1", "id", "23", "-1", "t", "t", "f", "1"),
            ("2", "d", "20001", "-1", "f", None, "f", "1"),
            ("3", "left out", "23", "-1", "f", "f", "f", "1"),
            ("4", "a", "20002", "-1", "f", "f", "t", "1"),
        ],
        "pg_type": [
            ("23", "pg_catalog", "int4", "b", "0", "-1", "0", ","),
            ("1700", "pg_catalog", "numeric", "b", "0", "-1", "0", ","),
            ("20000", "public", "money2", "d", "1700", "655366", "0", ","),
            ("20001", "public", "money3", "d", "20000", "-1", "0", ","),
            ("20002", "public", "_money2", "b", "0", "-1", "20000", ","),
        ],
        "pg_get_expr": [("(id > 5)",), ("(d < 1)",)],
        "pubinsert": [
            ("public", "table_1", "t", "f", "f", "t", "f", "(id > 5)", "1/1", "16402", "7"),
            ("public", "table_1", "t", "t", "f", "f", "f", "(d < 1)", "2/1", "16402", "7"),
            ("public", "b", "t", "t", "t", "t", "t", "(id > 5)", "1/1", "16402", "7"),
            ("public", "b", "t", "t", "t", "t", "f", None, "2/1", "16402", "7"),
        ],
    }
