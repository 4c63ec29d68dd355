"""Opens the catalog, the command's context and the launcher for a verb.

``call`` is typer's context of the running verb; ``call.obj`` is the data directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from catalog.store_sqlite import CatalogStore
    from config.load import Config
    from subscriber.commands.context import CommandContext
    from workers.process.launcher_client import LauncherStatus


@contextmanager
def open_catalog(call: typer.Context, *, make: bool = False) -> Iterator[CatalogStore]:
    """The catalog of the data directory; only with ``make`` is a missing catalog created."""
    from catalog.store_sqlite import CatalogStore

    store = CatalogStore.open(call.obj, must_exist=not make)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def open_context(
    call: typer.Context, config: Config | None = None, *, make: bool = False
) -> Iterator[CommandContext]:
    """The real publisher, lake and launcher; ``config`` None: the stored configuration."""
    from config.load import from_stored
    from subscriber.commands.open_context import open_command_context

    with (
        open_catalog(call, make=make or config is not None) as store,
        open_command_context(call.obj, store, config or from_stored(store.settings())) as context,
    ):
        yield context


def find_launcher(call: typer.Context) -> LauncherStatus | None:
    """The status of the running launcher, None if none runs."""
    from workers.process.launcher_client import query_launcher

    return query_launcher(call.obj)
