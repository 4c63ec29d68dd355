"""The names by which a shared lake table tells its sources apart."""

from __future__ import annotations

import shlex

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from workers.lake.sources import (
    branches_of,
    check_source_column,
    delete_rows,
    owner_of,
    source_of,
    with_source_column,
)
from workers.lake.table import SHARED, SOURCE_COLUMN

UUID = "0b1c2d3e-0000-4000-8000-000000000001"
REL = SubscriptionRel(1, 7, SubRelState.INIT, None, "public", "a", "lake's", "t")


def subscription(*, shared: bool) -> Subscription:
    tables = {"public.a": TableOptions(shared=shared)}
    return Subscription("mysub", "host=db", ("pub",), subuuid=UUID, tables=tables)


def test_a_table_of_one_owner_has_no_source() -> None:
    sub = subscription(shared=False)
    assert (source_of(sub, REL), owner_of(sub, REL)) == ("", UUID)


def test_a_shared_table_names_subscription_and_table() -> None:
    sub = subscription(shared=True)
    assert (source_of(sub, REL), owner_of(sub, REL)) == (f"{UUID}:public.a", SHARED)


def test_workers_know_their_branches_by_the_beginning() -> None:
    sub = subscription(shared=True)
    assert branches_of(sub) == f"pgsub_{UUID.replace('-', '')}_0_"
    assert not branches_of(sub, 7).startswith(branches_of(sub))


def test_a_source_s_rows_are_deleted_by_one_command_of_a_shell() -> None:
    words = shlex.split(delete_rows(subscription(shared=True), REL))
    assert words[:2] == ["pgsub", "sql"]
    [sql] = words[2:]
    assert sql.startswith("DELETE FROM `lake`.`lake's`.`t` WHERE")
    assert f"'{UUID}:public.a'" in sql


def test_the_publisher_may_not_send_the_source_column() -> None:
    check_source_column("public.a", ["id"])
    with pytest.raises(ReplicationError) as error:
        check_source_column("public.a", ["id", SOURCE_COLUMN])
    assert error.value.code == "42701"
    assert [column.name for column in with_source_column(())] == [SOURCE_COLUMN]
