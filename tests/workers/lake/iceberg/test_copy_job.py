"""How many tasks a parallel copy has."""

from __future__ import annotations

import pytest

from workers.lake.copy_plan import CopyPlan
from workers.lake.copy_task import Turns
from workers.lake.iceberg.copy_job import tasks_of


class Server:
    """A Spark server that says what it runs on."""

    def __init__(self, master: str | None, folder: str | None = "/tmp/one,/tmp/two") -> None:
        self.asked = {"spark.master": master, "spark.local.dir": folder}

    def conf(self, key: str) -> str | None:
        return self.asked[key]


def plan_of(ranges: int, workers: int | None) -> CopyPlan:
    return CopyPlan("", None, "", ("COPY",) * ranges, (), workers=workers)


@pytest.mark.parametrize(
    ("master", "workers", "tasks"),
    [
        ("local[2]", None, 10),
        ("local[16]", None, 10),
        ("local[2]", 2, 10),
        ("spark://host:7077", 3, 3),
        ("spark://host:7077", 12, 10),
        (None, 3, 3),
    ],
)
def test_ranges_are_put_together_where_more_could_run_than_may(
    master: str | None, workers: int | None, tasks: int
) -> None:
    assert tasks_of(Server(master), plan_of(10, workers)) == (tasks, None)


@pytest.mark.parametrize("ranges", [1, 3, 10])
def test_tasks_of_one_process_take_turns_with_those_of_all_copies(ranges: int) -> None:
    """Of the server's sixteen tasks at a time three may read."""
    assert tasks_of(Server("local[16]"), plan_of(ranges, 3)) == (ranges, Turns("/tmp/one", 3))
    assert tasks_of(Server("local[16]", None), plan_of(ranges, 3)) == (min(ranges, 3), None)
