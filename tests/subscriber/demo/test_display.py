"""The demo's display."""

from __future__ import annotations

import io

from rich.console import Console

from subscriber.demo.display import DemoView
from subscriber.demo.progress import Reading, TableProgress
from subscriber.demo.proof import Digest, Verdict


def test_without_a_terminal_lines_are_plain() -> None:
    text = io.StringIO()
    view = DemoView(Console(file=text, width=200))
    tables = (
        TableProgress("orders", "d", 50, 100, 25.0, 2.0),
        TableProgress("products", "r", 10, 10, None, None),
    )
    with view:
        view.show(Reading(4.0, "running", tables, 12.0, 2048, 0.5), "60 transactions/s")
        view.show(Reading(4.5, "running", tables, 12.0, 2048, 0.5), "too soon")
    view.verdict([Verdict("orders", Digest(1, "5"), Digest(1, "6"))])
    first, second = text.getvalue().splitlines()
    assert "[  4.0 s] orders d 50%  products r" in first
    assert "12 rows/s applied, lag 2,048 B, 0.5 s" in first
    assert "DIFFERENT" in second
    assert "\x1b" not in text.getvalue()


def test_the_last_error_is_shown_when_it_changes() -> None:
    text = io.StringIO()
    view = DemoView(Console(file=text, width=200))
    tables = (TableProgress("orders", "d", 0, 100, None, None),)
    denied = 'table "orders": 42501: permission denied for "a[b]" (HINT: Grant it.)'
    with view:
        for moment, error in enumerate([None, denied, denied, None, denied]):
            view.show(Reading(float(moment), "running", tables, 0.0, 0, 0.0, error), "shop")
    assert text.getvalue().count(f"ERROR:  {denied}\n") == 2
    on_terminal = io.StringIO()
    with DemoView(Console(file=on_terminal, width=120, force_terminal=True)) as view:
        view.show(Reading(1.0, "running", tables, 0.0, 0, 0.0, denied), "shop")
    assert f"ERROR:  {denied}" in on_terminal.getvalue()


def test_on_a_terminal_there_is_a_table_with_bars() -> None:
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True)
    tables = (TableProgress("orders", "d", 50, 100, 25.0, 2.0),)
    with DemoView(console) as view:
        view.show(Reading(4.0, "running", tables, 12.0, 20480, 0.5), "60 transactions/s")
    assert "is being copied" in text.getvalue()
    assert "━" in text.getvalue()
