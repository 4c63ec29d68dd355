"""Draws a reading of the terminal of ``pgsub up``: subscriptions, tables, copies, errors.

Everything drawn fits into the window, and nothing is cut off. First comes the room of the errors,
at most half of the window. The tables get the rest: rows are taken away until the drawing is low
enough. In a narrow window the words of the states go below the table. In a still narrower window
each table is a line of text, folded as need be. What has no room is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from catalog.namespace import printable
from config.quantities import pretty_size
from subscriber.printing import Row
from subscriber.status.live_reading import Reading, SubscriptionLine, TableLine

STATES: Final = {
    "": "not known yet",
    "i": "waits for its copy",
    "d": "is being copied",
    "f": "copied, is being published",
    "w": "copied, waits for the apply worker",
    "c": "catches up",
    "s": "synchronized",
    "r": "follows the stream",
}
STYLES: Final = {
    **{"i": "dim", "d": "yellow", "f": "cyan", "w": "cyan", "c": "cyan"},
    **{"s": "green", "r": "green"},
}
_UNBOUNDED: Final = 10_000
"""The width of a window in which every table has room."""
_COPY: Final = ("copied", "", "rows/s", "left")
_BAR: Final = 20
"""The characters of a copy's bar."""
_FRAME: Final = 5
"""The lines around the rows: the head with its rules, the last rule, the tables without room."""


def draw(reading: Reading, console: Console) -> Group:
    """What fits into the console's window."""
    height = console.height - 1  # the cursor's line
    errors = _fitting([_error(row) for row in reading.errors], height // 2, "errors", console)
    above: list[RenderableType] = [Text(f"pgsub {reading.phase}", "bold")]
    lines = [_subscription(line) for line in reading.subscriptions]
    above += _fitting(lines, height // 3, "subscriptions", console)
    room = height - _height([*above, *errors], console)
    return Group(*above, *_tables(reading, room, console), *errors)


def _height(parts: Sequence[RenderableType], console: Console) -> int:
    """The lines that the parts take in the window."""
    options = console.options.update(height=None)
    return len(console.render_lines(Group(*parts), options, pad=False)) if parts else 0


def _fitting(lines: list[Text], room: int, what: str, console: Console) -> list[Text]:
    """The first of the lines, at least one; a count stands for the others."""
    shown = lines[: max(room, 1)]
    while len(shown) > 1 and _height(shown, console) + (len(shown) < len(lines)) > room:
        shown.pop()
    if rest := len(lines) - len(shown):
        shown.append(Text(f"{rest:,} more {what}, see pgsub status", "dim"))
    return shown


def _tables(reading: Reading, room: int, console: Console) -> list[RenderableType]:
    """As many tables as have room, at least one, and a line that counts all."""
    count = min(len(reading.tables), max(room - _FRAME, 1))
    while count:
        parts = _rows(reading, count, console)
        height = _height(parts, console)
        if height <= room or count == 1:
            return parts
        count = max(min(count - 1, count * room // height), 1)
    return []


def _rows(reading: Reading, count: int, console: Console) -> list[RenderableType]:
    lines = reading.tables[:count]
    states = dict.fromkeys(line.state for line in lines)
    words = Text("; ".join(f"{state} {STATES[state]}" for state in states if state), "dim")
    parts: list[RenderableType]
    if _is_wide_enough(table := _table(lines, words=True), console):
        parts = [table]
    elif _is_wide_enough(table := _table(lines, words=False), console):
        parts = [table, words]
    else:
        parts = [*(_line(line, several=_are_of_several(lines)) for line in lines), words]
    if rest := len(reading.tables) - count:
        counts = ", ".join(f"{found:,} {state}" for state, found in sorted(reading.states.items()))
        parts.append(Text(f"{rest:,} more tables; all: {counts}", "dim"))
    return parts


def _subscription(line: SubscriptionLine) -> Text:
    if not line.is_enabled:
        return Text(f"{printable(line.name)}  disabled", "dim")
    lag = [] if line.lag_bytes is None else [pretty_size(line.lag_bytes)]
    lag += [] if line.lag_seconds is None else [f"{line.lag_seconds:,.1f} s"]
    behind = f", lag {', '.join(lag)}" if lag else ""
    return Text(f"{printable(line.name)}  {line.rate:,.0f} rows/s applied{behind}")


def _is_wide_enough(table: Table, console: Console) -> bool:
    """Has each row of the table room in a line of the window?"""
    unbounded = console.options.update(width=_UNBOUNDED)
    return Measurement.get(console, unbounded, table).maximum <= console.width


def _are_of_several(lines: tuple[TableLine, ...]) -> bool:
    """Do the tables belong to several subscriptions?"""
    return len({line.subscription for line in lines}) > 1


def _table(lines: tuple[TableLine, ...], *, words: bool) -> Table:
    """Without the states' words the columns of copies come with a copy, and the bar is half."""
    several = _are_of_several(lines)
    copies = words or any(line.rows is not None for line in lines)
    table = Table(*["subscription", "table", "state"][not several :], expand=False)
    for head in _COPY if copies else ():
        table.add_column(head)
    for line in lines:
        state = Text(line.state, STYLES.get(line.state, "dim"))
        if words:
            state.append(f"  {STATES[line.state]}", "dim")
        names = [line.subscription, line.name][not several :]
        figures = _copy(line, _BAR if words else _BAR // 2) if copies else []
        table.add_row(*map(printable, names), state, *figures)
    return table


def _copy(line: TableLine, bar: int) -> list[ProgressBar | str]:
    return [
        "" if line.rows is None else f"{line.rows:,}",
        "" if line.share is None else ProgressBar(total=1, completed=line.share, width=bar),
        f"{line.rate:,.0f}" if line.rate else "",
        "" if line.seconds_left is None else f"{line.seconds_left:,.0f} s",
    ]


def _line(line: TableLine, *, several: bool) -> Text:
    """A table in a line of text."""
    words = [printable(f"{line.subscription}: {line.name}" if several else line.name)]
    words += [] if line.rows is None else [f"{line.rows:,} rows"]
    words += [] if line.share is None else [f"{line.share:.0%}"]
    words += [f"{line.rate:,.0f} rows/s"] if line.rate else []
    words += [] if line.seconds_left is None else [f"{line.seconds_left:,.0f} s left"]
    return Text.assemble((line.state, STYLES.get(line.state, "dim")), "  ", ", ".join(words))


def _error(row: Row) -> Text:
    """An error as psql prints errors, with the table and the remedy."""
    where = f'table "{row["relation"]}"' if row["relation"] else f'subscription "{row["subname"]}"'
    lines = [f"ERROR:  {row['sqlstate']}: {where}: {row['message']}"]
    lines += [f"{key.upper()}:  {row[key]}" for key in ("detail", "hint") if row[key]]
    return Text("\n".join(printable(line) for line in lines), "red")
