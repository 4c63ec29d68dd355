"""The COPY statement of plain, filtered, generated and partitioned tables."""

from __future__ import annotations

from tests.workers.publisher.scripted import INT4, table
from workers.publisher.copy_statement import copy_statement, lock_statement
from workers.publisher.remote_table import (
    Leaf,
    RemoteColumn,
)

PLAIN = 'COPY public.table_1 (id, "na""me") TO STDOUT (FORMAT csv)'


ONLY = 'COPY (SELECT id, "na""me" FROM ONLY public.table_1'


TAIL = ") TO STDOUT (FORMAT csv)"


def test_copy_forms() -> None:
    generated = RemoteColumn(3, "g", False, True, INT4)
    assert copy_statement(table()) == PLAIN
    assert copy_statement(table(), options="") == PLAIN.removesuffix(" (FORMAT csv)")
    assert copy_statement(table(columns=())) == "COPY public.table_1 TO STDOUT (FORMAT csv)"
    assert (
        copy_statement(table(row_filters=("(a)", "(b)"))) == f"{ONLY} WHERE (((a)) OR ((b))){TAIL}"
    )
    assert copy_statement(table(relkind="p")) == ONLY.replace("ONLY ", "") + TAIL
    assert copy_statement(table(columns=(*table().columns, generated))) == (
        ONLY.replace(" FROM", ", g FROM") + TAIL
    )


def test_copy_of_ranges_and_leaves() -> None:
    low, high = "ctid >= '(10,0)'::pg_catalog.tid", "ctid < '(20,0)'::pg_catalog.tid"
    assert copy_statement(table(), ctid_to=20) == f"{ONLY} WHERE {high}{TAIL}"
    assert (
        copy_statement(table(), ctid_from=10, ctid_to=20) == f"{ONLY} WHERE {low} AND {high}{TAIL}"
    )
    filtered = table(row_filters=("(a)", "(b)"), relkind="p")
    leaf = Leaf(1, "s", "leaf", "r")
    assert copy_statement(filtered, leaf=leaf, ctid_from=10) == (
        f'COPY (SELECT id, "na""me" FROM ONLY s.leaf WHERE (((a)) OR ((b))) AND {low}{TAIL}'
    )


def test_the_lock_of_a_copy_names_the_published_columns() -> None:
    assert lock_statement(table()) == 'SELECT id, "na""me" FROM ONLY public.table_1 LIMIT 0'
    assert lock_statement(table(relkind="p")) == 'SELECT id, "na""me" FROM public.table_1 LIMIT 0'
