"""What every test sees: the fixtures' modules, and markers that follow from the fixtures used."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import settings

from tests.jvm import expect_short_lives

pytest_plugins = [
    name
    for name in ("tests.fix_publisher", "tests.fix_lake", "tests.fix_pgsub", "tests.conformance")
    if importlib.util.find_spec(name)
]

MARKERS = {
    "postgres": {
        *("server_of", "publisher", "database", "each_database", "make_database"),
        *("twin", "pgsub"),
    },
    "spark": {"lake_server", "pgsub"},
}


def pytest_configure() -> None:
    """Before anything starts."""
    expect_short_lives()
    # The first example of a property may load kernels, or wait for a process beside.
    settings.register_profile("beside others", deadline=None)
    settings.load_profile("beside others")


LONG_FIRST = ("crash", "security", "integration")
"""Folders whose files take minutes: begun last, one of them would keep a process busy alone."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what talks to a server by the fixtures it asks for; before ``-m`` selects by that."""
    fixtures = set(getattr(item, "fixturenames", ()))
    for marker, names in MARKERS.items():
        if fixtures & names:
            item.add_marker(marker)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, whatever else put them in another order."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    parts = item.path.parts
    return next(
        (rank for rank, folder in enumerate(LONG_FIRST) if folder in parts), len(LONG_FIRST)
    )
