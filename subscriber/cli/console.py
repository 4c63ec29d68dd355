"""The console script ``pgsub``: global options, and the verbs in the order of ``--help``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from subscriber.cli import reading_verbs, running_verbs, setup_verbs, subscription_verbs
from subscriber.cli.completion import complete_at_once
from subscriber.cli.plain_values import read_plain_values
from subscriber.launcher.core_files import switch_off_core_files
from subscriber.messages import EXIT_ERROR, print_error

app = typer.Typer(
    name="pgsub",
    help="PostgreSQL's logical-replication subscriber, writing to Iceberg tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> int:
    """Run the verb; the exit status. Mistakes in the arguments end with 2."""
    switch_off_core_files()
    complete_at_once()
    try:
        command = typer.main.get_command(app)
        read_plain_values(command)
        command(prog_name="pgsub")
    except SystemExit as end:
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            return print_error(KeyboardInterrupt())  # typer would print nothing
        return end.code if isinstance(end.code, int) else EXIT_ERROR
    except BaseException as error:
        return print_error(error)
    return 0


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"pgsub {version('pg-lakehouse-subscriber')}")
        raise typer.Exit


@app.callback()
def _global(
    call: typer.Context,
    data_dir: Annotated[
        Path,
        typer.Option(envvar="PGSUB_DATA_DIR", help="Where catalog, spool and lake are kept."),
    ] = Path("pgsub_data"),
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
    ] = False,
) -> None:
    call.obj = data_dir


app.command()(running_verbs.demo)
app.command()(running_verbs.up)
app.command()(running_verbs.run)
app.command()(subscription_verbs.create)
app.command()(subscription_verbs.rebuild)
app.command()(subscription_verbs.drop)
app.command()(subscription_verbs.enable)
app.command()(subscription_verbs.disable)
app.command()(subscription_verbs.skip)
app.command()(subscription_verbs.alter)
app.command("exec")(subscription_verbs.execute)
app.command("accept-gap")(subscription_verbs.accept_gap)
app.command()(subscription_verbs.refresh)
app.command()(subscription_verbs.resume)
app.command()(reading_verbs.status)
app.command("reset-stats")(reading_verbs.reset_stats)
app.command()(reading_verbs.health)
app.command()(reading_verbs.wait)
app.command()(reading_verbs.schema)
app.command()(reading_verbs.sql)
app.command()(reading_verbs.check)
app.command()(setup_verbs.fetch)
app.command("ddl-capture")(setup_verbs.ddl_capture)
