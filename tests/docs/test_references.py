"""What a page names is there: tests, files, functions, links, commands, views."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, prose, rows, section, text

TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FILE = re.compile(
    r"`((?:subscriber|workers|catalog|config|tests|docs)/[\w/.-]+\.(?:py|sql|yaml|md))`"
)
PLACE = re.compile(r"`([\w/]+\.py)`((?: `[\w.]+`,?)+)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"pgsub(?: --?[\w-]+(?: DIR)?)? ([a-z-]+)")
REMOVAL = re.compile(r"remove_orphan_files *\(([^)]*)\)")
RULES = range(1, 24)


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_named_exists(page: Path) -> None:
    missing = [
        f"{file}::{name}"
        for file, name in TEST.findall(page.read_text())
        if not (ROOT / file).is_file() or name not in _functions(ROOT / file)
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_named_exists(page: Path) -> None:
    missing = [name for name in FILE.findall(prose(page)) if not (ROOT / name).exists()]
    assert not missing


def test_places_of_the_rules_are_in_their_files() -> None:
    missing = [
        f"{file} {name}"
        for file, names in PLACE.findall(text("reliability.md"))
        for name in re.findall(r"[\w.]+", names)
        if not re.search(rf"\b{re.escape(name.split('.')[-1])}\b", (ROOT / file).read_text())
    ]
    assert not missing


def test_every_rule_has_one_row() -> None:
    page = text("reliability.md")
    numbers = re.findall(r"^### Rule ([0-9]+)$", page, re.MULTILINE)
    assert sorted(map(int, numbers)) == list(RULES)
    for number in numbers:
        assert TEST.search(section(page, f"### Rule {number}")), number


def test_the_eight_requirements_each_have_a_row() -> None:
    table = rows(section(text("fidelity.md"), "## The eight requirements"))
    assert [row[0] for row in table] == [str(number) for number in range(1, 9)]


def test_no_page_has_files_removed_that_nobody_has_looked_at() -> None:
    """Where the table's files have another name than they are listed by, all of them would go."""
    calls = [call for page in PAGES for call in REMOVAL.findall(page.read_text())]
    assert calls
    assert [call for call in calls if "dry_run => true" not in call] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        if target.startswith("http") or (page == ROOT / "README.md" and "docs/" not in target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        if not found.exists() or (anchor and anchor not in _anchors(found)):
            broken.append(target)
    assert not broken


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    linked = {(DOCS / target).resolve() for target in LINK.findall(text("README.md"))}
    assert {page for page in PAGES if page != DOCS / "README.md"} <= linked


def test_commands_are_the_command_line_s() -> None:
    from subscriber.cli import app

    verbs = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    table = rows(section(text("operations.md"), "## Commands"))
    described = {verb for row in table for verb in COMMAND.findall(row[0])}
    assert described == verbs


def test_views_are_the_command_line_s() -> None:
    from subscriber.status.views import VIEWS

    table = rows(section(text("operations.md"), "## What to watch"))
    assert {row[0].strip("`") for row in table} == set(VIEWS)


def test_decisions_are_short() -> None:
    long = [
        p.name for p in (DOCS / "decisions").glob("*.md") if len(p.read_text().splitlines()) > 60
    ]
    assert not long
