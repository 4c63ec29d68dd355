"""Draws a reading of the terminal of ``pgsub up``: subscriptions, tables, copies, errors."""

from __future__ import annotations

from typing import Final

from rich.console import Group
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
_BAR: Final = 20
"""The characters of a copy's bar."""
_FRAME: Final = 7
"""The lines around the tables: the phase, the head with its rules, the last rule, the tables
without room, and the cursor's line."""


def draw(reading: Reading, height: int) -> Group:
    """What fits into ``height`` lines: the errors whole, then as many tables as have room."""
    errors = [_error(row) for row in reading.errors]
    taken = len(reading.subscriptions) + sum(text.plain.count("\n") + 1 for text in errors)
    room = max(height - taken - _FRAME, 1)
    shown = reading.tables[:room]
    parts: list[Text | Table] = [Text(f"pgsub {reading.phase}", "bold")]
    parts += [_subscription(line) for line in reading.subscriptions]
    if shown:
        parts.append(_tables(shown))
    if rest := len(reading.tables) - len(shown):
        counts = ", ".join(f"{count:,} {state}" for state, count in sorted(reading.states.items()))
        parts.append(Text(f"{rest:,} more tables; all: {counts}", "dim"))
    return Group(*parts, *errors)


def _subscription(line: SubscriptionLine) -> Text:
    if not line.is_enabled:
        return Text(f"{printable(line.name)}  disabled", "dim")
    words = [f"{line.rate:,.0f} rows/s applied"]
    if line.lag_bytes is not None:
        words.append(f"lag {pretty_size(line.lag_bytes)}")
    if line.lag_seconds is not None:
        words.append(f"{line.lag_seconds:,.1f} s")
    return Text(f"{printable(line.name)}  {', '.join(words)}")


def _tables(lines: tuple[TableLine, ...]) -> Table:
    several = len({line.subscription for line in lines}) > 1
    heads = ["table", "state", "copied", "", "rows/s", "left"]
    table = Table(*(["subscription"] if several else []), *heads, expand=False)
    for line in lines:
        state = Text.assemble(
            (line.state, STYLES.get(line.state, "dim")), "  ", (STATES[line.state], "dim")
        )
        cells: list[Text | ProgressBar | str] = [printable(line.name), state]
        cells.append("" if line.rows is None else f"{line.rows:,}")
        cells.append(
            "" if line.share is None else ProgressBar(total=1, completed=line.share, width=_BAR)
        )
        cells.append(f"{line.rate:,.0f}" if line.rate else "")
        cells.append("" if line.seconds_left is None else f"{line.seconds_left:,.0f} s")
        table.add_row(*([printable(line.subscription)] if several else []), *cells)
    return table


def _error(row: Row) -> Text:
    """An error as psql prints errors, with the table and the remedy."""
    where = f'table "{row["relation"]}"' if row["relation"] else f'subscription "{row["subname"]}"'
    lines = [f"ERROR:  {row['sqlstate']}: {where}: {row['message']}"]
    lines += [f"{key.upper()}:  {row[key]}" for key in ("detail", "hint") if row[key]]
    return Text("\n".join(printable(line) for line in lines), "red")
