"""Spark's Python: there while a table is copied, and ended soon after."""

from __future__ import annotations

import psutil
import pytest

from tests.fix_publisher import Database
from tests.harness import Pgsub
from tests.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def _pythons(pgsub: Pgsub) -> list[psutil.Process]:
    return [
        process
        for process in pgsub.lake_server().children(recursive=True)
        if "python_daemon" in " ".join(process.cmdline())
    ]


@pytest.mark.timeout(300)
def test_each_copy_has_a_python_of_its_own(own_pgsub: Pgsub, database: Database) -> None:
    """The second copy finds the first copy's daemon ended, and starts another."""
    database.run("CREATE PUBLICATION p")
    entry = {"connection": database.dsn, "publication": ["p"]}
    own_pgsub.up({"subscriptions": {"copied": entry}})
    for name in ("first", "second"):
        database.run(
            f"CREATE TABLE {name} (id int PRIMARY KEY)",
            f"INSERT INTO {name} SELECT generate_series(1, 1000)",
            f"ALTER PUBLICATION p ADD TABLE {name}",
        )
        own_pgsub.command("exec", "ALTER SUBSCRIPTION copied REFRESH PUBLICATION")
        own_pgsub.wait("copied")
        assert own_pgsub.arrow("public", name).num_rows == 1000
        if name == "first":
            wait_until(lambda: not _pythons(own_pgsub), 60, "the end of Spark's Python")
