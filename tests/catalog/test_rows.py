"""Rows as SQLite has them."""

from __future__ import annotations

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.rows import (
    decode_lsn,
    encode_lsn,
    origin_row,
    rel_row,
    rel_values,
    subscription_row,
    subscription_values,
)

LSNS = st.integers(0, 2**64 - 1).map(LSN)


@given(LSNS, LSNS)
def test_the_order_of_the_text_is_the_order_of_positions(one: LSN, other: LSN) -> None:
    assert (encode_lsn(one) < encode_lsn(other)) == (one < other)
    assert decode_lsn(encode_lsn(one)) == one


def test_a_subscription_comes_back_as_it_was() -> None:
    tables = {
        "public.t": TableOptions(
            to=("s", "u"), defaults=(("a", "now()"),), keys=(("x", "y"),), columns=(("X", "x_2"),)
        ),
        "public.w": TableOptions(
            partition_by=("days(at)", "b"),
            sort_by=("c DESC",),
            location="/lake/w",
            properties=(("a", "b"),),
        ),
        "public.v": TableOptions(),
    }
    sub = Subscription(
        "mysub", "host=a", ("p1", "p2"), oid=16406, subskiplsn=LSN(7), subbinary=True, tables=tables
    )
    assert subscription_row(stored(subscription_values(sub))) == sub


def test_a_table_comes_back_as_it_was() -> None:
    rel = SubscriptionRel(
        16406, 16399, SubRelState.SYNCDONE, LSN(9), "public", "t", "lake", "u",
        floor=LSN(3), copied=True,
    )  # fmt: skip
    assert rel_row(stored(rel_values(rel))) == rel


def test_an_origin_s_position_is_text_in_the_file() -> None:
    row = stored({"roident": 1, "roname": "pg_1", "remote_lsn": encode_lsn(LSN(5))})
    assert origin_row(row).remote_lsn == LSN(5)


def stored(values: dict[str, object]) -> sqlite3.Row:
    """The values after a way through SQLite."""
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    columns = ", ".join(f':{name} AS "{name}"' for name in values)
    row: sqlite3.Row = connection.execute(f"SELECT {columns}", values).fetchone()
    connection.close()
    return row
