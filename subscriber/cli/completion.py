"""Words for the shell's completion: subscriptions, their tables, and views.

The shell runs ``pgsub`` at every press of the tab key. So the catalog alone is asked, and after any
trouble there are no words: an error has no place on a line that is being typed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from catalog.store_sqlite import CatalogStore

_AT_ONCE: Final = """
if [[ $funcstack[1] == _%(prog_name)s ]]; then
  %(complete_func)s "$@"
fi
"""


def complete_at_once() -> None:
    """Have zsh complete at the first press of the tab key, too.

    zsh runs the installed file at the first press. typer's file then only names the function that
    completes from the second press on, so the file shall also call the function. The scripts have
    no public name: where a version of typer has another name for them, its file stays as it is.
    """
    with suppress(ImportError, AttributeError, KeyError):
        from typer._completion_shared import _completion_scripts as scripts

        scripts["zsh"] = f"{scripts['zsh'].rstrip()}\n{_AT_ONCE}"


def subscription_names(call: typer.Context, incomplete: str) -> list[str]:
    """The subscriptions whose names begin so."""
    names: list[str] = []
    with suppress(Exception), _catalog(call) as store:
        names = [sub.subname for sub in store.subscriptions() if sub.subname.startswith(incomplete)]
    return names


def table_names(call: typer.Context, incomplete: str) -> list[str]:
    """The tables of the named subscription that begin so and are not on the line yet."""
    from catalog.namespace import qualified_name

    found: list[str] = []
    with suppress(Exception), _catalog(call) as store:
        sub = store.subscription_by_name(call.params["name"])
        rels = store.rels(sub.oid) if sub is not None else []
        tables = [qualified_name(rel.nspname, rel.relname) for rel in rels]
        given = call.params.get("tables") or ()
        found = [name for name in tables if name.startswith(incomplete) and name not in given]
    return found


def view_names(incomplete: str) -> list[str]:
    """The catalogs and views whose names begin so."""
    from subscriber.status.views import VIEWS

    return [name for name in VIEWS if name.startswith(incomplete)]


@contextmanager
def _catalog(call: typer.Context) -> Iterator[CatalogStore]:
    """The catalog of the data directory on the line; the global options are the parent's."""
    from catalog.store_sqlite import CatalogStore

    options: dict[str, Any] = call.parent.params if call.parent is not None else {}
    store = CatalogStore.open(options["data_dir"], must_exist=True)
    try:
        yield store
    finally:
        store.close()
