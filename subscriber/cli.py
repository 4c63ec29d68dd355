"""The command line: parse, call, print. What a verb does is in the module it imports.

Imports are made where they are used, so that ``pgsub --help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.errcodes import ConfigFileError, ReplicationError
from catalog.pg_lsn import LSN
from subscriber.launcher.core_files import switch_off_core_files
from subscriber.messages import EXIT_ERROR, notice, print_error, print_notice
from subscriber.status import watch

if TYPE_CHECKING:
    from catalog.store_sqlite import CatalogStore
    from config.load import Config
    from subscriber.commands.check import Checked
    from subscriber.commands.context import Site
    from workers.process.launcher_client import LauncherStatus

app = typer.Typer(
    name="pgsub",
    help="PostgreSQL's logical-replication subscriber, writing to Iceberg tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(help="Configuration file (YAML).", metavar="FILE")]
Name = Annotated[str, typer.Argument(help="Name of the subscription.", metavar="NAME")]


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


FormatOption = Annotated[Format, typer.Option("--format", help="How rows are printed.")]


def main() -> int:
    """The console script; the exit status. Mistakes in the arguments end with 2."""
    switch_off_core_files()
    try:
        app()
    except SystemExit as end:
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            return print_error(KeyboardInterrupt())  # typer took it and would say nothing
        return end.code if isinstance(end.code, int) else EXIT_ERROR
    except BaseException as error:
        return print_error(error)
    return 0


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"pgsub {version('pg-lakehouse-subscriber')}")
        raise typer.Exit


@app.callback()
def _global(
    context: typer.Context,
    data_dir: Annotated[
        Path,
        typer.Option(envvar="PGSUB_DATA_DIR", help="Where catalog, spool and lake are kept."),
    ] = Path("pgsub_data"),
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
    ] = False,
) -> None:
    context.obj = data_dir


# Opening what a verb works on


@contextmanager
def _catalog(context: typer.Context, *, make: bool = False) -> Iterator[CatalogStore]:
    """The catalog of the data directory; only ``make`` makes one where there is none."""
    from catalog.store_sqlite import CatalogStore

    store = CatalogStore.open(context.obj, must_exist=not make)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _site(
    context: typer.Context, config: Config | None = None, *, make: bool = False
) -> Iterator[Site]:
    """The real publisher, lake and launcher; ``config`` None: what the catalog keeps."""
    from config.load import from_stored
    from subscriber.commands.open_context import open_site

    with (
        _catalog(context, make=make or config is not None) as store,
        open_site(context.obj, store, config or from_stored(store.settings())) as site,
    ):
        yield site


def _launcher(context: typer.Context) -> LauncherStatus | None:
    from workers.process.launcher_client import query_launcher

    return query_launcher(context.obj)


# Verbs


@app.command()
def demo(context: typer.Context) -> None:
    """Show it all: embedded publisher and lake, live workload, live status."""
    from subscriber.demo.demo import run_demo

    raise typer.Exit(run_demo(context.obj))


@app.command()
def up(context: typer.Context, file: File) -> None:
    """Create what FILE describes, bring it in line if it changed, and run."""
    from subscriber.commands.up import up as run_up

    raise typer.Exit(run_up(context.obj, file))


@app.command()
def run(context: typer.Context) -> None:
    """Run the launcher for what the catalog holds."""
    from subscriber.launcher.launcher import ApplyLauncherMain

    raise typer.Exit(ApplyLauncherMain(context.obj))


@app.command()
def create(context: typer.Context, file: File) -> None:
    """CREATE SUBSCRIPTION for each one in FILE."""
    from config.load import load
    from subscriber.commands.create_drop import create_subscription
    from subscriber.commands.up import keep_settings

    config = load(file)
    with _site(context, config) as site:
        keep_settings(config, site)
        for stmt in config.subscriptions:
            create_subscription(stmt, site)
            print("CREATE SUBSCRIPTION")


@app.command()
def rebuild(context: typer.Context, file: File) -> None:
    """Take over tables and slots of FILE's subscriptions after the catalog was lost."""
    from config.load import load
    from subscriber.commands.rebuild import rebuild as rebuild_missing
    from subscriber.commands.up import keep_settings

    config = load(file)
    with _site(context, config) as site:
        keep_settings(config, site)
        for _ in rebuild_missing(config, site):
            print("REBUILD SUBSCRIPTION")


@app.command()
def drop(
    context: typer.Context,
    name: Name,
    leave_slot: Annotated[
        bool, typer.Option("--leave-slot", help="Do not contact the publisher; its slot stays.")
    ] = False,
) -> None:
    """DROP SUBSCRIPTION; the lake tables stay."""
    from subscriber.commands.create_drop import drop_subscription

    with _site(context) as site:
        drop_subscription(name, site, leave_slot=leave_slot)
    print("DROP SUBSCRIPTION")


@app.command()
def enable(context: typer.Context, name: Name) -> None:
    """ALTER SUBSCRIPTION NAME ENABLE."""
    from subscriber.commands.create_drop import enable_subscription

    with _site(context) as site:
        enable_subscription(name, site)
    print("ALTER SUBSCRIPTION")


@app.command()
def disable(context: typer.Context, name: Name) -> None:
    """ALTER SUBSCRIPTION NAME DISABLE; returns when its workers have ended."""
    from subscriber.commands.create_drop import disable_subscription

    with _site(context) as site:
        disable_subscription(name, site)
    print("ALTER SUBSCRIPTION")


@app.command()
def skip(
    context: typer.Context,
    name: Name,
    lsn: Annotated[
        str, typer.Option(help="Where the transaction finished; none takes it back.", metavar="LSN")
    ],
) -> None:
    """ALTER SUBSCRIPTION NAME SKIP: leave one transaction out."""
    from config import define
    from subscriber.commands.alter import alter_skip

    with _argument():
        given = define.lsn("lsn", "none" if lsn.lower() == "none" else lsn)
    with _site(context) as site:
        alter_skip(name, given, site)
    print("ALTER SUBSCRIPTION")


@app.command()
def alter(
    context: typer.Context,
    name: Name,
    words: Annotated[
        list[str], typer.Argument(help="What follows the name in SQL.", metavar="WORDS...")
    ],
) -> None:
    """ALTER SUBSCRIPTION NAME WORDS..., as SQL has them."""
    from subscriber.commands.run_sql import altering

    _run_sql_text(context, altering(name, words))


@app.command("exec")
def execute(
    context: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(help="Statements; - or nothing: standard input.", metavar="[SQL]"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the statements from a file.")
    ] = None,
) -> None:
    """Carry out CREATE, ALTER and DROP SUBSCRIPTION written as SQL."""
    from subscriber.commands.run_sql import read_text

    if file is not None and text is not None:
        raise typer.BadParameter("not together with --file", param_hint="SQL")
    if file is not None and str(file) != "-":
        _run_sql_text(context, read_text(file), file=str(file))
    elif file is not None or text in (None, "-"):
        _run_sql_text(context, read_text(None), file="<stdin>")
    else:
        _run_sql_text(context, text)


def _run_sql_text(context: typer.Context, text: str, *, file: str | None = None) -> None:
    from subscriber.commands.run_sql import Session

    session = Session(
        open_site=lambda make: _site(context, make=make),
        done=lambda tag: print(tag, flush=True),
        notify=print_notice,
        file=file,
    )
    session.run(text)


@app.command("accept-gap")
def accept_gap(context: typer.Context, name: Name) -> None:
    """Go on without changes that cannot be had any more; says which."""
    from subscriber.commands import accept_gap as command

    with _site(context) as site:
        command.accept_gap(name, site)
    print("ALTER SUBSCRIPTION")


@app.command()
def refresh(
    context: typer.Context,
    name: Name,
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Tables (schema.table) to copy again.", metavar="[TABLE]..."),
    ] = None,
    recopy: Annotated[
        bool,
        typer.Option("--recopy", help="Copy tables again; without TABLE all, from a lost slot on."),
    ] = False,
) -> None:
    """ALTER SUBSCRIPTION NAME REFRESH PUBLICATION; or copy tables again."""
    from subscriber.commands.alter import alter_refresh
    from subscriber.commands.recopy import recopy_tables

    if tables and not recopy:
        raise typer.BadParameter("only with --recopy", param_hint="TABLE")
    with _site(context) as site:
        if recopy:
            recopy_tables(name, tables or (), site)
        else:
            alter_refresh(name, site, copy_data=True)
    print("ALTER SUBSCRIPTION")


@app.command()
def status(
    context: typer.Context,
    view: Annotated[
        str | None,
        typer.Argument(help="A catalog or view by its PostgreSQL name.", metavar="[VIEW]"),
    ] = None,
    form: FormatOption = Format.TABLE,
    watching: Annotated[bool, typer.Option("--watch", help="Show it again every second.")] = False,
) -> None:
    """Show pg_subscription, pg_subscription_rel, pg_stat_subscription and others."""
    import io

    from subscriber import printing
    from subscriber.status import views as views

    with _catalog(context) as store:

        def draw() -> str:
            found = _launcher(context)
            workers = found.workers if found else ()
            if view is None and form is Format.TABLE:
                return watch.overview(store, workers)
            shown = views.view(view or views.OVERVIEW[0])
            out = io.StringIO()
            rows = shown.rows(store, workers)
            printing.print_rows(shown.columns, rows, printing.Format(form.value), out)
            return out.getvalue()

        if watching:
            watch.watch(draw)
        else:
            print(draw(), end="")


@app.command("reset-stats")
def reset_stats(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Name of the subscription; default: all.", metavar="[NAME]")
    ] = None,
) -> None:
    """Count errors and conflicts from zero again (pg_stat_reset_subscription_stats)."""
    from subscriber.commands.reset_stats import reset_subscription_stats

    with _catalog(context) as store:
        reset_subscription_stats(name, store)
    print("RESET STATS")


@app.command()
def wait(
    context: typer.Context,
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

    with _argument():
        given = None if lsn is None else LSN.parse(lsn)
    with _site(context) as site:

        def position(sub: Any) -> LSN:
            if given is not None:
                return given
            with closing(site.connect(sub)) as conn:
                return publisher_position(conn)

        wait_for_catchup(name, site.store, lambda: _launcher(context), position, timeout=timeout)


@contextmanager
def _argument() -> Iterator[None]:
    """An error about an argument's text: PostgreSQL's, and the command line's mistake."""
    try:
        yield
    except ReplicationError as error:
        raise ConfigFileError(error.primary, sqlstate=error.code) from None


@app.command()
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="Spark SQL.", metavar="QUERY")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Run Spark SQL on the lake; its tables are lake.<schema>.<table>."""
    from config.load import from_stored
    from subscriber import printing
    from subscriber.commands.lake_access import CommandLake
    from subscriber.commands.query import run_sql

    with _catalog(context, make=True) as store:
        lake = CommandLake(
            context.obj,
            store,
            from_stored(store.settings()),
            on_wait=lambda text: print_notice(notice(text)),
        )
        try:
            url = lake.answering_url()
            _refresh_status_tables(context, url, query, store)
            run_sql(url, query, printing.Format(form.value))
        finally:
            lake.close()


def _refresh_status_tables(
    context: typer.Context, url: str, query: str, store: CatalogStore
) -> None:
    """What the query may read of lake.pg_catalog as it is now; failing that, as it was."""
    from catalog.errcodes import ReplicationError
    from subscriber.messages import warning
    from subscriber.status.lake_tables import mentioned_views, write_views

    names = mentioned_views(query)
    if not names:
        return
    found = _launcher(context)
    try:
        write_views(url, names, store, found.workers if found else (), context.obj)
    except ReplicationError as error:
        print_notice(warning(f"could not refresh lake.pg_catalog: {error.primary}"))


@app.command()
def check(context: typer.Context, file: File) -> None:
    """List everything CREATE would reject, and why; nothing is created."""
    from config.load import load
    from subscriber.commands.check import check_file

    checked = check_file(context.obj, load(file))
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


if __name__ == "__main__":
    sys.exit(main())
