"""How many tasks a parallel copy has."""

from __future__ import annotations

import pytest

from workers.lake.copy_plan import CopyPlan
from workers.lake.iceberg.copy_job import number_of_tasks


class Server:
    """A Spark server that says what it runs on."""

    def __init__(self, master: str | None) -> None:
        self.master = master

    def conf(self, key: str) -> str | None:
        assert key == "spark.master"
        return self.master


@pytest.mark.parametrize(
    ("master", "workers", "tasks"),
    [
        ("local[2]", None, 10),
        ("local[2]", 2, 10),
        ("local[8]", 3, 3),
        ("spark://host:7077", 3, 3),
        ("spark://host:7077", 12, 10),
        (None, 3, 3),
    ],
)
def test_ranges_are_put_together_where_more_could_run_than_may(
    master: str | None, workers: int | None, tasks: int
) -> None:
    plan = CopyPlan("", None, "", ("COPY",) * 10, (), workers=workers)
    assert number_of_tasks(Server(master), plan) == tasks
