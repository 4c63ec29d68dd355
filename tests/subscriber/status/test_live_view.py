"""The terminal of ``pgsub up``, drawn."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from catalog.pg_subscription_rel import SubRelState
from subscriber.printing import Row
from subscriber.status.live_reading import Reading, SubscriptionLine, TableLine
from subscriber.status.live_view import STATES, STYLES, draw

SHOP = SubscriptionLine("shop", True, 1204.4, 2184, 0.61)


def drawn(reading: Reading, height: int = 40, width: int = 120) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height)
    console.print(draw(reading, console))
    return out.getvalue()


def failed(number: int) -> Row:
    """An error longer than a window is wide."""
    error: Row = {"relation": f"shop.t{number}", "subname": "shop", "sqlstate": "42501"}
    said = {"message": f"permission denied for table t{number} of the schema shop, see the owner"}
    return error | said | {"detail": None, "hint": f"Grant SELECT on t{number} to the role."}


def test_a_copy_a_stream_and_an_error_with_its_remedy() -> None:
    copying = TableLine("shop", "shop.orders", "d", 60_000, 0.5, 25_000.0, 2.4)
    following = TableLine("shop", "shop.customers", "r")
    error: Row = {"relation": "shop.orders", "subname": "shop", "sqlstate": "42501"}
    error |= {"message": "permission denied", "detail": None, "hint": "Grant it."}
    shown = drawn(Reading("running", (SHOP,), (copying, following), (error,)))
    assert "shop  1,204 rows/s applied, lag 2184 bytes, 0.6 s" in shown
    assert "is being copied" in shown
    assert "60,000" in shown
    assert "25,000" in shown
    assert "2 s" in shown
    assert "follows the stream" in shown
    assert 'ERROR:  42501: table "shop.orders": permission denied\nHINT:  Grant it.' in shown
    assert "subscription" not in shown, "one subscription needs no column"


def test_several_subscriptions_have_a_column_and_a_disabled_one_is_said() -> None:
    off = SubscriptionLine("off", False, 0.0, None, None)
    starting = SubscriptionLine("starting", True, 0.0, None, 10.74)
    tables = (TableLine("shop", "a", "r"), TableLine("off", "b", "i"))
    shown = drawn(Reading("running", (SHOP, off, starting), tables))
    assert "off  disabled" in shown
    assert "starting  0 rows/s applied, lag 10.7 s" in shown
    assert "subscription" in shown


@pytest.mark.parametrize("height", [10, 24, 50])
def test_what_has_no_room_is_counted(height: int) -> None:
    tables = tuple(TableLine("shop", f"t{n}", "d" if n < 3 else "r") for n in range(1000))
    shown = drawn(Reading("running", (SHOP,), tables), height)
    assert len(shown.splitlines()) < height
    assert "all: 3 d, 997 r" in shown
    assert " t0 " in shown


@pytest.mark.parametrize("width", [30, 50, 66, 80, 100, 200])
@pytest.mark.parametrize("subscriptions", [("shop",), ("shop", "stock")])
def test_a_narrow_window_cuts_nothing_off(width: int, subscriptions: tuple[str, ...]) -> None:
    copying = TableLine("shop", "shop.orders", "d", 60_000, 0.5, 25_000.0, 2.4)
    others = [
        TableLine(subscriptions[-1], f"shop.a_table_with_a_long_name_{n}", "r") for n in range(90)
    ]
    shown = drawn(Reading("running", (SHOP,), (copying, *others), (failed(1),)), 24, width)
    assert len(shown.splitlines()) < 24
    assert max(map(len, shown.splitlines())) <= width
    assert "\u2026" not in shown, "an ellipsis"
    said = re.sub("[^!-~]", "", shown)
    for text in (
        "shop 1,204 rows/s applied, lag 2184 bytes, 0.6 s",
        "60,000",
        "25,000",
        "is being copied",
        "shop.a_table_with_a_long_name_0",
        "more tables; all: 1 d, 90 r",
        "see the owner",
        "HINT: Grant SELECT on t1 to the role.",
    ):
        assert text.replace(" ", "") in said
    assert subscriptions[-1] in said


def test_many_errors_and_subscriptions_leave_room_for_a_table() -> None:
    lines = tuple(SubscriptionLine(f"shop{n}", True, 0.0, 0, 0.0) for n in range(50))
    errors = tuple(failed(n) for n in range(20))
    shown = drawn(Reading("running", lines, (TableLine("shop0", "t", "r"),), errors), 30, 60)
    assert len(shown.splitlines()) < 30
    assert "42 more subscriptions, see pgsub status" in shown
    assert "16 more errors, see pgsub status" in shown
    assert "t1 to the role." in shown
    assert "follows the stream" in shown


def test_control_characters_of_a_name_are_not_printed() -> None:
    shown = drawn(Reading("running", (), (TableLine("s", "a\x1b[2J", "r"),)))
    assert "\x1b[2J" not in shown


def test_every_state_has_words() -> None:
    assert {str(state) for state in SubRelState} <= STATES.keys()
    assert STYLES.keys() <= STATES.keys()
