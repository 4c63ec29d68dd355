"""Rows as text: psql's table, JSON or CSV. LSNs are ``X/X``, times have an offset.

A table that is wider than the window is folded as by psql's ``\\x auto``: a line for each column of
each row, and a long value goes on below its beginning. Nothing is cut off.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

from catalog.namespace import printable
from catalog.pg_lsn import LSN

Row = dict[str, Any]


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def json_value(value: Any) -> Any:
    """A value for JSON: LSNs and times as text, lists as arrays."""
    if isinstance(value, LSN):
        return str(value)
    if isinstance(value, datetime):
        return timestamptz(value)
    if isinstance(value, tuple | list):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    return value


def text_value(value: Any) -> str | None:
    """A value in PostgreSQL's text form; None for NULL."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, tuple | list):
        return "{" + ",".join(_array_element(item) for item in value) + "}"
    if isinstance(value, datetime):
        return timestamptz(value)
    if isinstance(value, dict):
        return json.dumps(json_value(value), ensure_ascii=False)
    return str(value)


def _array_element(value: Any) -> str:
    text = text_value(value)
    if text is None:
        return "NULL"
    if text and text.upper() != "NULL" and not any(c in '{}",\\' or c.isspace() for c in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def moment(microseconds: int) -> datetime | None:
    """Microseconds since 1970 as a time; 0 stands for never."""
    if not microseconds:
        return None
    seconds, rest = divmod(microseconds, 10**6)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def timestamptz(value: datetime) -> str:
    """A time with an offset, in PostgreSQL's form."""
    text = value.isoformat(" ", "microseconds" if value.microsecond else "seconds")
    return text.removesuffix(":00") if text[-6] in "+-" else text


def window_width(stream: TextIO | None = None) -> int | None:
    """The characters in a line of the terminal; None if the stream leads to no terminal."""
    try:
        return os.get_terminal_size((stream or sys.stdout).fileno()).columns or None
    except (OSError, ValueError):
        return None


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Row],
    form: Format,
    stream: TextIO | None = None,
    *,
    width: int | None = None,
) -> None:
    """Print rows; NULL is null in JSON, an empty field in CSV, an empty cell in a table.

    ``width`` is that of the window, None to fold no table.
    """
    out = stream or sys.stdout
    if form is Format.JSON:
        shown = [{name: json_value(row[name]) for name in columns} for row in rows]
        print(json.dumps(shown, indent=2, ensure_ascii=False), file=out)
    elif form is Format.CSV:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([text_value(row[name]) for name in columns] for row in rows)
    else:
        out.write(as_text_table(columns, list(rows), width))
    out.flush()


def as_text_table(columns: Sequence[str], rows: Sequence[Row], width: int | None = None) -> str:
    """Rows as psql's table: aligned, numbers to the right, a count below; folded to ``width``."""
    cells = [[_cell(row[name]) for name in columns] for row in rows]
    names = [_cell(name) for name in columns]
    widths = [max([len(name), *(len(line[n]) for line in cells)]) for n, name in enumerate(names)]
    right = [bool(rows) and all(_is_number(row[name]) for row in rows) for name in columns]
    head = " | ".join(_centred(name, width) for name, width in zip(names, widths, strict=True))
    lines = [f" {head}".rstrip(), "-+-".join("-" * width for width in widths).join("--")]
    for line in cells:
        shown = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        lines.append(f" {' | '.join(shown)}".rstrip())
    count = f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
    if width is not None and rows and max(map(len, lines)) > width:
        lines = _folded(names, cells, width)
    return "\n".join([*lines, count]) + "\n"


def _folded(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A line for each column, under a line with the number of the row."""
    label = max(map(len, names))
    room = max(width - label - len(" | "), 1)
    lines = []
    for number, cells in enumerate(rows, 1):
        title = f"-[ RECORD {number} ]"
        lines.append(title.ljust(label + 1, "-")[:width].ljust(width, "-"))
        for name, cell in zip(names, cells, strict=True):
            for at, part in enumerate(_pieces(cell, room)):
                lines.append(f"{('' if at else name).ljust(label)} | {part}".rstrip())
    return lines


def _pieces(text: str, room: int) -> list[str]:
    """The text in pieces of at most ``room`` characters, between words if that is possible."""
    return textwrap.wrap(text, room, break_on_hyphens=False) or [""]


def _cell(value: Any) -> str:
    return printable(text_value(value) or "").replace("\n", "\\n").replace("\t", "\\t")


def _centred(text: str, width: int) -> str:
    """Centre like psql: an odd space goes to the right."""
    return (" " * ((width - len(text)) // 2) + text).ljust(width)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool | LSN))
