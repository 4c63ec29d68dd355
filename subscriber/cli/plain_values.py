"""Reads plain arguments without pydantic: text, paths, and words of an enumeration.

typer converts every argument with pydantic. The import of pydantic alone costs a third of the
processor time of a short command such as ``pgsub status``. A plain value needs no conversion. Any
other value (a number, a list, an unknown word, an unreadable file) still goes through typer, and so
does a missing argument: the messages about mistakes stay typer's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

_NOT_PLAIN: Final = object()


def read_plain_values(command: Any) -> None:
    """Have the parameters of typer's ``command`` and its verbs take plain values as they are."""
    for each in (command, *getattr(command, "commands", {}).values()):
        each.get_params = partial(_parameters, each.get_params)


def _parameters(get_params: Callable[[Any], list[Any]], context: Any) -> list[Any]:
    """The parameters of a command, ``--help`` among them; typer creates ``--help`` at the call."""
    parameters = get_params(context)
    for parameter in parameters:
        if not isinstance(parameter.process_value, partial):
            parameter.process_value = partial(_process, parameter, parameter.process_value)
    return parameters


def _process(parameter: Any, convert: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    plain = _plain(parameter, value)
    if plain is _NOT_PLAIN:
        return convert(context, value)
    callback = parameter.callback
    return plain if callback is None else callback(context, parameter, plain)


def _plain(parameter: Any, value: Any) -> Any:
    """The value of a parameter, or ``_NOT_PLAIN``."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if parameter.nargs != 1 or getattr(parameter, "multiple", False):
        return _NOT_PLAIN
    if value is None:
        return _NOT_PLAIN if parameter.required else None
    if annotation is str and isinstance(value, str):
        return value
    if annotation is Path and isinstance(value, str | Path):
        return Path(value) if _may_be_opened(value) else _NOT_PLAIN
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return next((word for word in annotation if value == word.value), _NOT_PLAIN)
    return _NOT_PLAIN


def _may_be_opened(path: str | Path) -> bool:
    """Is the file missing or readable? About an unreadable file typer has a message."""
    try:
        os.stat(path)
    except OSError:
        return True
    return os.access(path, os.R_OK)
