"""Verbs to create, alter and drop subscriptions.

A docstring is the verb's ``--help``. A verb imports a command only when called:
``pgsub --help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from subscriber.cli.arguments import File, Name, Tables, argument_errors
from subscriber.cli.opening import open_context
from subscriber.messages import print_notice


def create(call: typer.Context, file: File) -> None:
    """CREATE SUBSCRIPTION for every subscription in FILE."""
    from config.load import load

    config = load(file)  # a wrong file is reported before the commands are loaded
    from subscriber.commands.create_drop import create_subscription
    from subscriber.commands.up import keep_settings

    with open_context(call, config) as context:
        keep_settings(config, context)
        for stmt in config.subscriptions:
            create_subscription(stmt, context)
            print("CREATE SUBSCRIPTION")


def rebuild(call: typer.Context, file: File) -> None:
    """Take over tables and slots of FILE's subscriptions after the catalog was lost."""
    from config.load import load

    config = load(file)  # a wrong file is reported before the commands are loaded
    from subscriber.commands.rebuild import rebuild as rebuild_missing
    from subscriber.commands.up import keep_settings

    with open_context(call, config) as context:
        keep_settings(config, context)
        for _ in rebuild_missing(config, context):
            print("REBUILD SUBSCRIPTION")


def drop(
    call: typer.Context,
    name: Name,
    leave_slot: Annotated[
        bool, typer.Option("--leave-slot", help="Do not contact the publisher; its slot stays.")
    ] = False,
) -> None:
    """DROP SUBSCRIPTION; the lake tables stay."""
    from subscriber.commands.create_drop import drop_subscription

    with open_context(call) as context:
        drop_subscription(name, context, leave_slot=leave_slot)
    print("DROP SUBSCRIPTION")


def enable(call: typer.Context, name: Name) -> None:
    """ALTER SUBSCRIPTION NAME ENABLE."""
    from subscriber.commands.create_drop import enable_subscription

    with open_context(call) as context:
        enable_subscription(name, context)
    print("ALTER SUBSCRIPTION")


def disable(call: typer.Context, name: Name) -> None:
    """ALTER SUBSCRIPTION NAME DISABLE; returns when its workers have ended."""
    from subscriber.commands.create_drop import disable_subscription

    with open_context(call) as context:
        disable_subscription(name, context)
    print("ALTER SUBSCRIPTION")


def skip(
    call: typer.Context,
    name: Name,
    lsn: Annotated[
        str, typer.Option(help="Where the transaction finished; none takes it back.", metavar="LSN")
    ],
) -> None:
    """ALTER SUBSCRIPTION NAME SKIP: leave one transaction out."""
    from config import define
    from subscriber.commands.alter import alter_skip

    with argument_errors():
        finish_lsn = define.lsn("lsn", "none" if lsn.lower() == "none" else lsn)
    with open_context(call) as context:
        alter_skip(name, finish_lsn, context)
    print("ALTER SUBSCRIPTION")


def alter(
    call: typer.Context,
    name: Name,
    words: Annotated[
        list[str], typer.Argument(help="What follows the name in SQL.", metavar="WORDS...")
    ],
) -> None:
    """ALTER SUBSCRIPTION NAME WORDS..., written as in SQL."""
    from subscriber.commands.run_sql import altering

    _run_sql_text(call, altering(name, words))


def execute(
    call: typer.Context,
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
        _run_sql_text(call, read_text(file), file=str(file))
    elif file is not None or text in (None, "-"):
        _run_sql_text(call, read_text(None), file="<stdin>")
    else:
        _run_sql_text(call, text)


def _run_sql_text(call: typer.Context, text: str, *, file: str | None = None) -> None:
    from subscriber.commands.run_sql import Session

    session = Session(
        open_command_context=lambda make: open_context(call, make=make),
        done=lambda tag: print(tag, flush=True),
        notify=print_notice,
        file=file,
    )
    session.run(text)


def accept_gap(call: typer.Context, name: Name) -> None:
    """Go on without changes that are lost for good; prints which changes."""
    from subscriber.commands import accept_gap as command

    with open_context(call) as context:
        command.accept_gap(name, context)
    print("ALTER SUBSCRIPTION")


def refresh(
    call: typer.Context,
    name: Name,
    tables: Tables = None,
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
    with open_context(call) as context:
        if recopy:
            recopy_tables(name, tables or (), context)
        else:
            alter_refresh(name, context, copy_data=True)
    print("ALTER SUBSCRIPTION")


def resume(
    call: typer.Context,
    name: Name,
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Suspended tables (schema.table).", metavar="[TABLE]..."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All suspended tables of the subscription.")
    ] = False,
) -> None:
    """Copy suspended tables again, while readers see the last good state."""
    from subscriber.commands.recopy import resume_tables

    if bool(tables) == every:
        raise typer.BadParameter("name tables, or say --all", param_hint="TABLE")
    with open_context(call) as context:
        resume_tables(name, tables or (), context)
    print("ALTER SUBSCRIPTION")
