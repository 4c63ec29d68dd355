"""Verbs to run until a signal arrives: ``demo``, ``up`` and ``run``.

A docstring is the verb's ``--help``. A verb imports a command only when called:
``pgsub --help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from subscriber.cli.arguments import File

Log = Annotated[
    bool, typer.Option("--log", help="Show the log on a terminal, in place of the tables.")
]


def demo(call: typer.Context) -> None:
    """Show everything: embedded publisher and lake, live workload, live status."""
    from subscriber.demo.demo import run_demo

    raise typer.Exit(run_demo(call.obj))


def up(call: typer.Context, file: File, log: Log = False) -> None:
    """Create the subscriptions of FILE, or bring changed ones in line, and run."""
    from subscriber.commands.up import up as run_up

    _run(call.obj, log, lambda console: run_up(call.obj, file, console=console))


def run(call: typer.Context, log: Log = False) -> None:
    """Run the launcher for the subscriptions of the catalog."""
    from subscriber.commands.published import LOOK_MODULE
    from subscriber.launcher.launcher import ApplyLauncherMain

    _run(
        call.obj,
        log,
        lambda console: ApplyLauncherMain(call.obj, console=console, look_module=LOOK_MODULE),
    )


def _run(data_dir: Path, log: bool, launcher: Callable[[bool], int]) -> NoReturn:
    """Run the launcher: on a terminal with tables, unless the log is wanted."""
    from subscriber.cli.terminal import has_terminal, print_log_end, tables_on_terminal

    if log or not has_terminal():
        raise typer.Exit(launcher(True))
    with tables_on_terminal(data_dir):
        status = launcher(False)
    if status:
        print_log_end(data_dir)
    raise typer.Exit(status)
