"""``store``: a catalog in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.store_sqlite import CatalogStore


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    yield store
    store.close()
