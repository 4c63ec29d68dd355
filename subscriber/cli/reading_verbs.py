"""Verbs to show, wait, query and check.

A docstring is the verb's ``--help``. A verb imports a command only when called:
``pgsub --help`` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.pg_lsn import LSN
from subscriber.cli.arguments import File, FormatOption, Name, argument_errors
from subscriber.cli.completion import subscription_names, table_names, view_names
from subscriber.cli.opening import find_launcher, open_catalog, open_context
from subscriber.messages import EXIT_ERROR, notice, print_error, print_notice
from subscriber.printing import Format

if TYPE_CHECKING:
    from catalog.store_sqlite import CatalogStore
    from subscriber.commands.check import Checked


def status(
    call: typer.Context,
    view: Annotated[
        str | None,
        typer.Argument(
            help="A catalog or view by its PostgreSQL name.",
            metavar="[VIEW]",
            autocompletion=view_names,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    watching: Annotated[bool, typer.Option("--watch", help="Show it again every second.")] = False,
) -> None:
    """Show pg_subscription, pg_subscription_rel, pg_stat_subscription and others."""
    import io

    from subscriber import printing
    from subscriber.status import overview, views, watch

    with open_catalog(call) as store:

        def draw() -> str:
            launcher = find_launcher(call)
            workers = launcher.workers if launcher else ()
            width = printing.window_width()
            if view is None and form is Format.TABLE:
                return overview.overview(store, workers, width)
            chosen = views.view(view or views.OVERVIEW[0])
            out = io.StringIO()
            rows = chosen.rows(store, workers)
            printing.print_rows(chosen.columns, rows, form, out, width=width)
            return out.getvalue()

        if watching:
            watch.watch(draw)
        else:
            print(draw(), end="")


def health(
    call: typer.Context,
    live: Annotated[
        bool, typer.Option("--live", help="Ask only whether the launcher answers.")
    ] = False,
) -> None:
    """Ask whether everything is ready, as /readyz does; status 1 if not."""
    from subscriber.status.health import liveness, readiness

    if live:
        found = liveness(call.obj)
    else:
        with open_catalog(call) as store:
            found = readiness(call.obj, store)
    print(found.report(), end="")
    if not found.ok:
        raise typer.Exit(EXIT_ERROR)


def reset_stats(
    call: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the subscription; default: all.",
            metavar="[NAME]",
            autocompletion=subscription_names,
        ),
    ] = None,
) -> None:
    """Count errors and conflicts from zero again (pg_stat_reset_subscription_stats)."""
    from subscriber.commands.reset_stats import reset_subscription_stats

    with open_catalog(call) as store:
        reset_subscription_stats(name, store)
    print("RESET STATS")


def wait(
    call: typer.Context,
    name: Name,
    lsn: Annotated[
        str | None, typer.Option(help="Position; default: the publisher's current one.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds; without it there is no limit.", min=0)
    ] = None,
) -> None:
    """Wait until every table is ready and durable up to a position."""
    from contextlib import closing

    from subscriber.commands.wait import publisher_position, wait_for_catchup

    with argument_errors():
        chosen = None if lsn is None else LSN.parse(lsn)
    with open_context(call) as context:

        def position(sub: Any) -> LSN:
            if chosen is not None:
                return chosen
            with closing(context.connect(sub)) as conn:
                return publisher_position(conn)

        wait_for_catchup(
            name, context.store, lambda: find_launcher(call), position, timeout=timeout
        )


def sql(
    call: typer.Context,
    query: Annotated[str, typer.Argument(help="Spark SQL.", metavar="QUERY")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Run Spark SQL on the lake; its tables are lake.<schema>.<table>."""
    from config.load import from_stored
    from subscriber.commands.lake_access import CommandLake
    from subscriber.commands.query import run_sql
    from workers.process.launcher_client import notify_launcher

    with open_catalog(call, make=True) as store:
        lake = CommandLake(
            call.obj,
            store,
            from_stored(store.settings()),
            on_wait=lambda text: print_notice(notice(text)),
        )
        try:
            url = lake.answering_url()
            _refresh_status_tables(call, url, query, store)
            run_sql(url, query, form)
            # The statement may have mended what a worker failed at.
            notify_launcher(call.obj)
        finally:
            lake.close()


def _refresh_status_tables(call: typer.Context, url: str, query: str, store: CatalogStore) -> None:
    """Write the views named in the query; if the lake refuses, the older rows stay."""
    from catalog.errcodes import ReplicationError
    from subscriber.messages import warning
    from subscriber.status.lake_tables import mentioned_views, write_views

    names = mentioned_views(query)
    if not names:
        return
    launcher = find_launcher(call)
    try:
        write_views(url, names, store, launcher.workers if launcher else (), call.obj)
    except ReplicationError as error:
        print_notice(warning(f"could not refresh lake.pg_catalog: {error.primary}"))


def schema(
    call: typer.Context,
    name: Name,
    table: Annotated[
        str | None,
        typer.Argument(
            help="Table (schema.table); default: all.",
            metavar="[TABLE]",
            autocompletion=table_names,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the publisher's columns beside the lake's, and what comes next."""
    from subscriber import printing
    from subscriber.commands.schema.show import COLUMNS, columns_side_by_side

    with open_context(call) as context:
        rows = columns_side_by_side(name, table, context)
    printing.print_rows(COLUMNS, rows, form, width=printing.window_width())


def check(call: typer.Context, file: File) -> None:
    """List everything CREATE would reject, and why; nothing is created."""
    from config.load import load

    config = load(file)  # a wrong file is reported before the commands are loaded
    from subscriber.commands.check import check_file

    checked = check_file(call.obj, config)
    for result in checked:
        _print_findings(result)
    if not all(result.ok for result in checked):
        raise typer.Exit(EXIT_ERROR)


def _print_findings(checked: Checked) -> None:
    from subscriber.messages import Notice

    state = "could be created" if checked.ok else "would be rejected"
    print(f'subscription "{checked.name}" {state}', flush=True)
    for finding in checked.findings:
        if isinstance(finding, Notice):
            print_notice(finding)
        else:
            print_error(finding)
