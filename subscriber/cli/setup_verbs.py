"""The verb to prepare a machine: ``fetch``.

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
