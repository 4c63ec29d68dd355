"""``pgsub``: the command line as a function; ``stored``: a subscription in its data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from tests.shell import Shell


@pytest.fixture
def pgsub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path / "data", monkeypatch, capfd)


@pytest.fixture
def stored(pgsub: Shell) -> Subscription:
    store = CatalogStore.open(pgsub.data_dir)
    sub = store.insert_subscription(
        Subscription(
            "mysub", "host=db", ("pub",), subuuid="u", subcreate=SubCreate.READY, subslotname="s"
        )
    )
    store.close()
    return sub
