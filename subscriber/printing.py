"""Rows as text: psql's table, JSON or CSV. LSNs are ``X/X``, times have an offset."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
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


def timestamptz(value: datetime) -> str:
    """A time with an offset, in PostgreSQL's form."""
    text = value.isoformat(" ", "microseconds" if value.microsecond else "seconds")
    return text.removesuffix(":00") if text[-6] in "+-" else text


def print_rows(
    columns: Sequence[str], rows: Iterable[Row], form: Format, stream: TextIO | None = None
) -> None:
    """Print rows; NULL is null in JSON, an empty field in CSV, an empty cell in a table."""
    out = stream or sys.stdout
    if form is Format.JSON:
        shown = [{name: json_value(row[name]) for name in columns} for row in rows]
        print(json.dumps(shown, indent=2, ensure_ascii=False), file=out)
    elif form is Format.CSV:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([text_value(row[name]) for name in columns] for row in rows)
    else:
        out.write(as_text_table(columns, list(rows)))
    out.flush()


def as_text_table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Rows as psql's table: aligned, numbers to the right, a count below."""
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
    count = len(rows)
    lines.append(f"({count} row{'' if count == 1 else 's'})")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return printable(text_value(value) or "").replace("\n", "\\n").replace("\t", "\\t")


def _centred(text: str, width: int) -> str:
    """Centre like psql: an odd space goes to the right."""
    return (" " * ((width - len(text)) // 2) + text).ljust(width)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool | LSN))
