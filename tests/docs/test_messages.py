"""The list of errors in operations.md: every message is one that the code can print."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import ROOT, rows, section, text

PACKAGES = ("subscriber", "workers", "catalog", "config")
HOLE = "…"


def _shape(node: ast.expr) -> str | None:
    """A string as it is printed, with a hole for each value."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [
            str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values
        ]
        return re.sub(rf"{HOLE}(?:[.:]?{HOLE})+", HOLE, "".join(parts))  # a name may have parts
    return None


@cache
def _strings() -> frozenset[str]:
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                shape = _shape(node) if isinstance(node, ast.expr) else None
                if shape:
                    found.add(shape)
    return frozenset(found)


def _listed() -> list[tuple[str, str]]:
    table = rows(section(text("operations.md"), "### By message"))
    return [(row[0], message) for row in table for message in re.findall(r"`([^`]+)`", row[1])]


@pytest.mark.parametrize(("sqlstate", "message"), _listed())
def test_the_code_can_say_it(sqlstate: str, message: str) -> None:
    said = message.rstrip(HOLE).rstrip()
    assert any(said in string for string in _strings())
    assert all(re.fullmatch("[0-9A-Z]{5}", code) for code in sqlstate.split(", "))


def test_the_list_is_sorted_enough_to_be_searched() -> None:
    codes = [row[0].split(",")[0] for row in rows(section(text("operations.md"), "### By message"))]
    firsts = list(dict.fromkeys(codes))
    regrouped = [code for first in firsts for code in codes if code == first]
    assert codes == regrouped
