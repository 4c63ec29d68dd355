"""A publisher and a ``pgsub`` family for a run of some length, with the soak's two tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family
from tests.fix_publisher import Database, new_database
from tests.soak.run import NAME, STATEMENTS
from tests.waiting import wait_until


@contextmanager
def servers(
    format_version: int = 2, settings: Mapping[str, Any] | None = None
) -> Iterator[tuple[Family, Database]]:
    """Both, on a folder that goes at the end; every table follows the stream."""
    with (
        tempfile.TemporaryDirectory(prefix="pgsub-soak-") as scratch,
        EmbeddedPublisher(18) as publisher,
    ):
        database = new_database(publisher, NAME)
        family = Family(
            Path(scratch) / "data",
            settings={"file_grace": "1min", **(settings or {})},
            format_version=format_version,
        )
        family.start()
        try:
            subscribe(family, database)
            yield family, database
        finally:
            family.pgsub.stop()


def subscribe(family: Family, database: Database) -> None:
    """Make the tables and the subscription; every table follows the stream."""
    database.run(*STATEMENTS)
    family.create(NAME, database.dsn, [NAME])
    wait_until(lambda: set(family.states(NAME).values()) == {"r"}, 300, family.log_tail)
