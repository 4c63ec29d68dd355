"""Verbs to run until a signal arrives: ``demo``, ``up`` and ``run``.

A docstring is the verb's ``--help``. A verb imports a command only when called:
``pgsub --help`` answers at once.
"""

from __future__ import annotations

import typer

from subscriber.cli.arguments import File


def demo(call: typer.Context) -> None:
    """Show everything: embedded publisher and lake, live workload, live status."""
    from subscriber.demo.demo import run_demo

    raise typer.Exit(run_demo(call.obj))


def up(call: typer.Context, file: File) -> None:
    """Create the subscriptions of FILE, or bring changed ones in line, and run."""
    from subscriber.commands.up import up as run_up

    raise typer.Exit(run_up(call.obj, file))


def run(call: typer.Context) -> None:
    """Run the launcher for the subscriptions of the catalog."""
    from subscriber.launcher.launcher import ApplyLauncherMain

    raise typer.Exit(ApplyLauncherMain(call.obj))
