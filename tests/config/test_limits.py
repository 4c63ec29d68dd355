"""Each limit has a name that ends in its unit, a reason, and a use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from config import limits

UNITS = (
    "SECONDS|NANOSECONDS|BYTES|LINES|TEXTS|ROWS|CHANGES|VALUES|COMMITS|BATCHES|BLOCKS|FILES|TABLES|SNAPSHOTS"
    "|TRANSACTIONS|CLIENTS|PROBES|CONFIRMATIONS|ATTEMPTS|THREADS|POINTS|SHARE|FACTOR"
    "|TRANSACTIONS_PER_SECOND"
)
ROOT = Path(__file__).resolve().parents[2]
TREE = ast.parse(Path(limits.__file__).read_text())
NAMES = [name for name in vars(limits) if name.isupper() and not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_is_a_positive_number_named_with_its_unit(name: str) -> None:
    assert re.fullmatch(rf"[A-Z0-9_]+_({UNITS})|SMALL_FILES", name)
    assert isinstance(getattr(limits, name), int | float)
    assert getattr(limits, name) > 0


def test_the_line_below_a_limit_says_why() -> None:
    for line, below in zip(TREE.body, [*TREE.body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) in NAMES:
            assert isinstance(below, ast.Expr), ast.unparse(line.target)
            assert ast.unparse(below).rstrip("'\"").endswith("."), ast.unparse(line.target)


def test_limits_import_nothing_but_names_of_types() -> None:
    imported = [each for each in ast.walk(TREE) if isinstance(each, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(each) for each in imported} == {
        "from __future__ import annotations",
        "from typing import Final",
    }


def test_each_limit_is_used() -> None:
    used: set[str] = set()
    for package in ("subscriber", "workers", "config"):
        for path in (ROOT / package).rglob("*.py"):
            if path.samefile(limits.__file__):
                continue
            used |= {
                alias.name
                for each in ast.walk(ast.parse(path.read_text()))
                if isinstance(each, ast.ImportFrom) and each.module == "config.limits"
                for alias in each.names
            }
    assert set(NAMES) == used
