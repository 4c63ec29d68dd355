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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what talks to a server by the fixtures it asks for."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for marker, names in MARKERS.items():
            if fixtures & names:
                item.add_marker(marker)
