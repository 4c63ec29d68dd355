"""Displays the demo: a live table on a terminal, plain lines everywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from config.monitor_limits import DEMO_PLAIN_LINE_SECONDS
from subscriber.demo.progress import Reading, TableProgress
from subscriber.demo.proof import Verdict
from subscriber.status.live_view import STATES, STYLES


class DemoView:
    """Displays readings; the live display lasts from entry to exit of the context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._last_line = float("-inf")
        self._last_error: str | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def print_line(self, text: str) -> None:
        """Print a line about the demo's next step."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def show(self, reading: Reading, workload: str) -> None:
        """Display the latest reading; ``workload`` describes the shop's work."""
        if self._live is not None:
            self._live.update(_panel(reading, workload))
            return
        if reading.elapsed - self._last_line >= DEMO_PLAIN_LINE_SECONDS:
            self._last_line = reading.elapsed
            self.print_line(_plain(reading, workload))
        if reading.error != self._last_error:
            self._last_error = reading.error
            if reading.error is not None:
                self.print_line(escape(f"ERROR:  {reading.error}"))

    def verdict(self, verdicts: Sequence[Verdict]) -> None:
        """Print the proof, table by table."""
        table = Table("table", "rows", "sum of md5 on the publisher", "sum of md5 in the lake", "")
        for verdict in verdicts:
            here, there = verdict.publisher, verdict.lake
            rows = f"{here.rows:,}"
            if here.rows != there.rows:
                rows += f" != {there.rows:,}"
            word = Text("equal", "green") if verdict.is_equal else Text("DIFFERENT", "bold red")
            if self._console.is_terminal:
                table.add_row(verdict.table, rows, here.total, there.total, word)
            else:
                self.print_line(f"{verdict.table}: {rows} rows, {here.total} {there.total}: {word}")
        if self._console.is_terminal:
            self._console.print(table)


def _panel(reading: Reading, workload: str) -> Group:
    table = Table("table", "state", "copied", "", "rows/s", "left", expand=False)
    for progress in reading.tables:
        letter = Text(progress.state or "-", STYLES.get(progress.state, "dim"))
        bar = ProgressBar(total=max(1, progress.total), completed=progress.copied, width=30)
        table.add_row(
            progress.name,
            Text.assemble(letter, "  ", (STATES[progress.state], "dim")),
            f"{progress.copied:,} of {progress.total:,}",
            bar,
            f"{progress.rate:,.0f}" if progress.rate else "",
            f"{progress.eta:.0f} s" if progress.eta is not None else "",
        )
    lines: list[Text | Table] = [Text(f"publisher  {workload}"), table, Text(_stream(reading))]
    if reading.error is not None:
        lines.append(Text(f"ERROR:  {reading.error}", "red"))
    return Group(*lines)


def _stream(reading: Reading) -> str:
    if reading.lag_bytes is None or reading.lag_seconds is None:
        return f"subscriber  {reading.phase}, {reading.elapsed:.0f} s"
    return (
        f"subscriber  {reading.applied_rate:,.0f} rows/s applied, lag {_bytes(reading.lag_bytes)},"
        f" {reading.lag_seconds:.1f} s"
    )


def _plain(reading: Reading, workload: str) -> str:
    tables = "  ".join(_short(progress) for progress in reading.tables)
    return f"[{reading.elapsed:5.1f} s] {tables} | {_stream(reading)} | {workload}".replace(
        "[", "\\["
    )


def _short(progress: TableProgress) -> str:
    share = f" {100 * progress.copied // max(1, progress.total)}%" if progress.state == "d" else ""
    return f"{progress.name} {progress.state or '-'}{share}"


def _bytes(number: int) -> str:
    if number < 10_000:
        return f"{number:,} B"
    return f"{number / 1024:,.0f} kB" if number < 10 * 2**20 else f"{number / 2**20:,.0f} MB"
