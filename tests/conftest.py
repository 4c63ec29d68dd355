"""What every test sees: the fixtures' modules, and markers that follow from the fixtures used."""

from __future__ import annotations

import importlib.util

import pytest

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


LONG_FIRST = ("crash", "security", "integration")
"""Folders whose files take minutes: begun last, one of them would keep a process busy alone."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what talks to a server by the fixtures it asks for; long files first."""
    items.sort(key=_rank)
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for marker, names in MARKERS.items():
            if fixtures & names:
                item.add_marker(marker)


def _rank(item: pytest.Item) -> int:
    parts = item.path.parts
    return next(
        (rank for rank, folder in enumerate(LONG_FIRST) if folder in parts), len(LONG_FIRST)
    )
