"""The lists of what only we send: each is in the code, on connections that are made."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.docs.own_statements import CONNECTIONS, HOLE, STATEMENTS, WORDS, listed, patterns
from tests.docs.pages import ROOT


@cache
def _sent() -> str:
    """All text of the modules that talk to publishers, on one line."""
    found = []
    for package in ("workers", "subscriber"):
        found += [file.read_text() for file in sorted((ROOT / package).rglob("*.sql"))]
        for file in sorted((ROOT / package).rglob("*.py")):
            nodes = ast.walk(ast.parse(file.read_text()))
            found += [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    return " ".join(" ".join(found).split())


@pytest.mark.parametrize(
    ("on", "statement", "why"),
    listed(STATEMENTS) + listed(WORDS),
    ids=lambda part: str(part)[:40],
)
def test_the_code_can_send_it(on: str, statement: str, why: str) -> None:
    assert on == "all" or set(on.split(", ")) <= set(CONNECTIONS)
    missing = [part for part in statement.split(HOLE) if part.strip() not in _sent()]
    assert missing == []


@pytest.mark.parametrize("heading", [STATEMENTS, WORDS])
def test_none_is_lost_between_the_page_and_the_trace(heading: str) -> None:
    rows = listed(heading)
    sent = [len(CONNECTIONS) if on == "all" else len(on.split(", ")) for on, _, _ in rows]
    assert sum(map(len, patterns(heading).values())) == sum(sent) > 0
