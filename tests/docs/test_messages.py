"""The list of errors in troubleshooting.md: each can be said by the code, and none is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from catalog import errcodes, remedies
from catalog.errcodes import ReplicationError
from tests.docs.pages import DOCS, ROOT, rows, section, text
from workers.lake.connect.errors import FileMissing, LakeFailure, SessionClosed

PACKAGES = ("subscriber", "workers", "catalog", "config")
HOLE = "…"
LEFT_OUT = {
    "workers/lake/memory/destination.py": "a twin for tests",
    "workers/lake/memory/rows.py": "the same",
    "workers/process/failpoints.py": "armed by tests only",
    "subscriber/demo/demo.py": "the demo",
    "subscriber/demo/embedded_postgres.py": "the demo's publisher",
    "subscriber/demo/postgres_programs.py": "the demo's publisher",
}
ONE_ROW_EACH = {"XX000": "unexpected … at …", "08P01": "no relation map entry for"}
"""A bug of ours, and bytes that are not the protocol: what to do is the same for all of them."""

PUBLISHERS = {'publication "…" does not exist'}
"""Words of the publisher's, to which we add the remedy."""

CLASSES = {
    kind.__name__: kind
    for kind in [*vars(errcodes).values(), LakeFailure, FileMissing, SessionClosed]
    if isinstance(kind, type) and issubclass(kind, ReplicationError)
}


class Raised(NamedTuple):
    """An error that is made somewhere; ``sqlstate`` None if it is not known before."""

    primary: str
    sqlstate: str | None
    place: str


def _shape(node: ast.expr) -> str | None:
    """A string as it is printed, with a hole for each value."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [
            str(part.value) if isinstance(part, ast.Constant) else _words_of(part)
            for part in node.values
        ]
        return re.sub(rf"{HOLE}(?:[.:]?{HOLE})+", HOLE, "".join(parts))  # a name may have parts
    return None


def _words_of(part: ast.expr) -> str:
    """The words of a name of ``remedies`` inside a string, or a hole for any other value."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    if isinstance(value, ast.Attribute) and ast.unparse(value.value) == "remedies":
        return str(vars(remedies)[value.attr])
    return HOLE


@cache
def _nodes() -> list[tuple[str, ast.expr]]:
    """Every expression of the code, with its file."""
    files: list[Path] = [path for each in PACKAGES for path in sorted((ROOT / each).rglob("*.py"))]
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.expr)
    ]


@cache
def _strings() -> frozenset[str]:
    return frozenset(shape for _, node in _nodes() if (shape := _shape(node)))


@cache
def _raised() -> list[Raised]:
    """Every error whose words stand where it is made."""
    found = []
    for file, node in _nodes():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        kind, primary = CLASSES.get(node.func.id), _shape(node.args[0])
        if kind is None or primary is None or file in LEFT_OUT:
            continue
        given = [word.value for word in node.keywords if word.arg == "sqlstate"]
        code = _named_code(given[0]) if given else None
        known = str(code) if code else None if given else kind.sqlstate
        found.append(Raised(primary, known, f"{file}:{node.lineno}"))
    return found


@cache
def _listed() -> list[tuple[str, list[str]]]:
    table = rows(section(text("troubleshooting.md"), "## Errors by message"))
    return [(row[0].strip("`"), row[1].split(", ")) for row in table]


def _says(listed: str, primary: str) -> bool:
    """Whether a row is about an error; the row may leave out how it goes on."""
    words = re.escape(listed.rstrip(HOLE).rstrip(": ")).replace(HOLE, ".+")
    return re.match(words, primary) is not None


@cache
def _row(primary: str) -> str | None:
    """The row that is about an error: of several the one that says most."""
    return max((row for row, _ in _listed() if _says(row, primary)), key=len, default=None)


def _named_code(node: ast.expr) -> str | None:
    """The SQLSTATE that a name of ``catalog.errcodes`` stands for."""
    return vars(errcodes).get(node.id) if isinstance(node, ast.Name) else None


@pytest.mark.parametrize(("message", "codes"), _listed(), ids=lambda part: str(part)[:50])
def test_the_code_can_say_it(message: str, codes: list[str]) -> None:
    said = message.rstrip(HOLE).rstrip(": ").lstrip(HOLE)
    assert message in PUBLISHERS or any(said in string for string in _strings())
    raised = {each.sqlstate for each in _raised() if _row(each.primary) == message}
    assert raised - {None, *ONE_ROW_EACH} <= {*codes}
    assert all(re.fullmatch("[0-9A-Z]{5}|NOTICE|WARNING", code) for code in codes)


def test_no_error_is_left_out() -> None:
    missing = [
        each
        for each in _raised()
        if each.sqlstate not in ONE_ROW_EACH and _row(each.primary) is None
    ]
    assert missing == []
    listed = [message for message, _ in _listed()]
    assert all(any(message.startswith(row) for message in listed) for row in ONE_ROW_EACH.values())
    assert all((ROOT / file).is_file() for file in LEFT_OUT)


def test_what_libpq_says_is_what_is_recognised() -> None:
    table = rows(section(text("troubleshooting.md"), "## When it cannot connect"))
    listed = [tuple(re.findall("`([^`]+)`", row[0])) for row in table]
    assert listed == [parts for parts, _ in remedies._CONNECT]


@pytest.mark.parametrize("page", sorted((DOCS / "commands").glob("*.md")), ids=lambda p: p.stem)
def test_errors_on_the_command_pages_are_listed(page: Path) -> None:
    codes = dict(_listed())
    for code, primary in re.findall(r"ERROR:  (\w{5}): (.+)", page.read_text()):
        row = _row(primary)
        assert row is not None, primary
        assert code in codes[row]


def test_the_list_is_sorted() -> None:
    keys = [re.sub("[^a-z0-9 ]", "", message.lower()).strip() for message, _ in _listed()]
    assert keys == sorted(keys)
    assert len(keys) == len(set(keys))


def test_a_remedy_can_be_copied() -> None:
    """What is left out of a command is ``...``, as in PostgreSQL's messages."""
    page = text("troubleshooting.md")
    tables = [
        section(page, f"## {name}") for name in ("Errors by message", "When it cannot connect")
    ]
    assert [row[-1] for table in tables for row in rows(table) if HOLE in row[-1]] == []


def test_a_remedy_names_commands_that_there_are() -> None:
    from subscriber.cli import app

    verbs = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    named = set(re.findall(r"`pgsub ([a-z-]+)", text("troubleshooting.md")))
    assert named <= verbs
