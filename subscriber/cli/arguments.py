"""Arguments and options of several verbs, and errors about an argument's text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from catalog.errcodes import ConfigFileError, ReplicationError
from subscriber.cli.completion import subscription_names, table_names
from subscriber.printing import Format

File = Annotated[Path, typer.Argument(help="Configuration file (YAML).", metavar="FILE")]
"""The configuration file, read by the verb."""

Name = Annotated[
    str,
    typer.Argument(
        help="Name of the subscription.", metavar="NAME", autocompletion=subscription_names
    ),
]
"""A subscription of the data directory."""

Tables = Annotated[
    list[str] | None,
    typer.Argument(
        help="Tables (schema.table) to copy again.",
        metavar="[TABLE]...",
        autocompletion=table_names,
    ),
]
"""Tables of the subscription NAME."""

FormatOption = Annotated[Format, typer.Option("--format", help="How rows are printed.")]


@contextmanager
def argument_errors() -> Iterator[None]:
    """PostgreSQL's error about an argument's text becomes a mistake of the command line."""
    try:
        yield
    except ReplicationError as error:
        raise ConfigFileError(error.primary, sqlstate=error.code) from None
