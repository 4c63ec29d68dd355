"""Each limit has a name that ends in its unit, a reason, and a use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from config import limits, monitor_limits

UNITS = (
    "SECONDS|NANOSECONDS|BYTES|LINES|TEXTS|ROWS|CHANGES|VALUES|COMMITS|BATCHES|BLOCKS|FILES|TABLES"
    "|PARTITIONS|SNAPSHOTS"
    "|TRANSACTIONS|CLIENTS|PROBES|CONFIRMATIONS|ATTEMPTS|THREADS|SESSIONS|DIGESTS|POINTS|SHARE|FACTOR"
    "|TRANSACTIONS_PER_SECOND"
)
ROOT = Path(__file__).resolve().parents[2]
MODULES = (limits, monitor_limits)
PATHS = [Path(str(module.__file__)) for module in MODULES]
TREES = [ast.parse(path.read_text()) for path in PATHS]
VALUES = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if name.isupper() and not name.startswith("_")
}


@pytest.mark.parametrize("name", VALUES)
def test_a_limit_is_a_positive_number_named_with_its_unit(name: str) -> None:
    assert re.fullmatch(rf"[A-Z0-9_]+_({UNITS})|SMALL_FILES", name)
    assert isinstance(VALUES[name], int | float)
    assert VALUES[name] > 0


@pytest.mark.parametrize("tree", TREES)
def test_the_line_below_a_limit_says_why(tree: ast.Module) -> None:
    for line, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) in VALUES:
            assert isinstance(below, ast.Expr), ast.unparse(line.target)
            assert ast.unparse(below).rstrip("'\"").endswith("."), ast.unparse(line.target)


@pytest.mark.parametrize("tree", TREES)
def test_limits_import_nothing_but_names_of_types(tree: ast.Module) -> None:
    imported = [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(each) for each in imported} == {
        "from __future__ import annotations",
        "from typing import Final",
    }


def test_each_limit_is_used() -> None:
    used: set[str] = set()
    for package in ("subscriber", "workers", "config"):
        for path in (ROOT / package).rglob("*.py"):
            if any(map(path.samefile, PATHS)):
                continue
            used |= {
                alias.name
                for each in ast.walk(ast.parse(path.read_text()))
                if isinstance(each, ast.ImportFrom)
                and each.module in ("config.limits", "config.monitor_limits")
                for alias in each.names
            }
    assert set(VALUES) == used
