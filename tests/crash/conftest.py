"""One family with failpoints for all crash tests; every test here kills something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.cases import ALWAYS
from tests.crash.family import Family
from tests.fix_lake import Lake
from tests.lake.lake_stack import quick_stack

CRASH_TIMEOUT = 1500  # a module's first test waits for the whole flow


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is here kills processes, and takes longer than a test may."""
    for item in items:
        if "crash" in item.path.parts:
            if not {item.path.name, _name(item)} & set(ALWAYS):
                item.add_marker(pytest.mark.crash)
            item.add_marker(pytest.mark.postgres)
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(CRASH_TIMEOUT))


def _name(item: pytest.Item) -> str:
    """Module and function, whatever the parameters."""
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    """A running family with no subscription; drop yours when you are done."""
    made = Family(tmp_path_factory.mktemp("crash") / "data")
    made.start()
    yield made
    made.failpoints.clear()
    assert made.pgsub.stop() == 0, made.log_tail()


@pytest.fixture(scope="session")
def family_on_a_remote_lake(
    lake_server: Lake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Family]:
    """A family whose launcher starts no lake server: what it leaves under way there goes on."""
    made = Family(tmp_path_factory.mktemp("remote") / "data", lake=lake_server)
    made.start()
    yield made
    made.failpoints.clear()
    assert made.pgsub.stop() == 0, made.log_tail()


@pytest.fixture(scope="session")
def family_on_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    """A family whose tables are on S3 behind a REST catalog; its lake server is the embedded one.

    A launcher that dies takes the server along.
    """
    folder = tmp_path_factory.mktemp("crash_on_s3")
    with quick_stack(folder) as stack:
        made = Family(folder / "data", stack=stack)
        made.start()
        yield made
        made.failpoints.clear()
        assert made.pgsub.stop() == 0, made.log_tail()
