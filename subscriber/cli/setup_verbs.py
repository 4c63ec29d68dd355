"""The verbs to prepare a machine and a publisher: ``fetch`` and ``ddl-capture``.

After an installation the first start resolves the lake server's jars, each process compiles kernels
for most of a minute, and the lake server starts without its class archive. ``fetch`` does all this
ahead, for example while an image is built. For a machine without a network, ``--to`` writes the
jars to a folder, and ``--from`` takes the jars from there.

A docstring is the verb's ``--help``. A verb imports a command only when called:
``pgsub --help`` answers at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from catalog.errcodes import ConfigFileError
from subscriber.cli.completion import subscription_names
from subscriber.cli.opening import open_context
from subscriber.commands.ddl_capture import Action
from subscriber.messages import notice, print_notice


def fetch(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Configuration file: its catalog may need more jars.", metavar="[FILE]"
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--to", help="Only write the jars to this folder.", metavar="DIR"),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Take the jars from this folder.", metavar="DIR"),
    ] = None,
) -> None:
    """Get what a first start would fetch or make: jars, kernels, the class archive."""
    if target is not None and source is not None:
        raise ConfigFileError("options --to and --from cannot be used together")
    from config.load import load
    from workers.lake.server.jar_folder import save_jars, take_jars
    from workers.lake.server.jars import ivy_home

    config = None if file is None else load(file)
    conf = {} if config is None else config.spark.conf
    catalog = {} if config is None else config.lake.catalog
    if source is not None:
        take_jars(source, ivy_home(), catalog)
    jars = _resolved(conf, catalog)
    if target is not None:
        save_jars(jars, target)
        given = "" if file is None else f"{file} "
        print(f"On the other machine: pgsub fetch {given}--from {target}")
        return
    _timed("kernels", _compile)
    _timed("class archive", _archive)


def ddl_capture(
    call: typer.Context,
    action: Annotated[
        Action, typer.Argument(help="Make or remove the event triggers.", metavar="ACTION")
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            help="Subscription on whose publisher the SQL is run, with --execute.",
            metavar="[NAME]",
            autocompletion=subscription_names,
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Run the SQL.")] = False,
) -> None:
    """Print the SQL of event triggers that tell of changed tables, or run it on a publisher."""
    from subscriber.commands.ddl_capture.run import RIGHT, run_on_publisher, script_of

    if execute != (name is not None):
        raise ConfigFileError("option --execute and the name of a subscription go together")
    if name is None:
        print_notice(notice("run the SQL in the database of the tables", detail=RIGHT))
        print(script_of(action), end="")
        return
    with open_context(call) as context:
        run_on_publisher(name, action, context)
    print(f"DDL CAPTURE {action.upper()}")


def _resolved(conf: Mapping[str, str], catalog: Mapping[str, str]) -> tuple[Path, ...]:
    from workers.lake.server.jars import resolved_jars
    from workers.lake.server.java import find_java

    jars = resolved_jars(find_java(), conf, catalog)
    size = sum(path.stat().st_size for path in jars) / 1_000_000
    print(f"jars: {len(jars)} files, {size:.0f} MB in {jars[0].parent}")
    return jars


def _compile() -> None:
    from workers.columnar.warm import warm

    warm()


def _archive() -> None:
    from workers.lake.server.warm_archive import warm

    warm()


def _timed(what: str, work: Callable[[], None]) -> None:
    print(f"{what}: ", end="", flush=True)
    before = time.monotonic()
    work()
    print(f"ready after {time.monotonic() - before:.0f} s")
