"""House rules that no linter knows. An exemption carries its reason and goes with its need."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("subscriber", "workers", "catalog", "config")

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_LINE = 100

LONG_MODULES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
MAY_SLEEP = {
    "tests/waiting.py": "the one place that pauses",
    "tests/workload.py": "the pace of a workload",
    "tests/chaos/slow_storage.py": "how slow it is",
}

NOT_SAID = {
    "catalog/namespace.py": "control characters that are not printed",
    "subscriber/demo/workload.py": "a value of the demo's rows",
}

# Processes have state that moves; messages, rows, options and decisions have none.
HOLDS_STATE = ("workers/", "subscriber/")

BANNED_NAMES = re.compile(r"(.*_)?(utils?|common|helpers?|types|misc)")
PG_NAMES = {"syncutils": "PostgreSQL's own name"}


def _sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "__pycache__" not in path.parts]


PRODUCT = _sources(*PACKAGES)
TESTS = _sources("tests")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef):
            yield f"{_name(path)}::{node.name}", node


def test_no_module_is_longer_than_500_lines() -> None:
    sizes = {_name(path): len(path.read_text().splitlines()) for path in PRODUCT + TESTS}
    long = {name for name, size in sizes.items() if size > MAX_MODULE_LINES}
    assert long == set(LONG_MODULES), {name: sizes.get(name) for name in long}


def test_no_function_is_longer_than_70_lines() -> None:
    long = {
        name
        for path in PRODUCT
        for name, node in _functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert long == set(LONG_FUNCTIONS)


def test_no_line_of_sql_or_shell_is_longer_than_100_characters() -> None:
    """Python's lines are ruff's (E501)."""
    long = [
        f"{_name(path)}:{number}"
        for path in [*_rest("*.sql"), ROOT / ".ci/run"]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_LINE
    ]
    assert not long


def _rest(pattern: str) -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob(pattern)]


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = [
        _name(path)
        for path in [*PRODUCT, *(path for path in TESTS if not path.stem.startswith("test_"))]
        if BANNED_NAMES.fullmatch(path.stem) and path.stem not in PG_NAMES
    ]
    assert not drawers


def test_data_classes_are_slotted_and_values_frozen() -> None:
    loose = []
    for path in PRODUCT:
        name = _name(path)
        moves = name.startswith(HOLDS_STATE) and not name.startswith("workers/proto/")
        wanted = {"slots"} if moves else {"slots", "frozen"}
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                loose += [
                    f"{_name(path)}::{node.name}"
                    for decorator in node.decorator_list
                    if _is_dataclass(decorator) and not wanted <= _switches(decorator)
                ]
    assert not loose


def _is_dataclass(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(target) in ("dataclass", "dataclasses.dataclass")


def _switches(decorator: ast.expr) -> set[str | None]:
    if not isinstance(decorator, ast.Call):
        return set()
    return {word.arg for word in decorator.keywords if ast.unparse(word.value) == "True"}


def test_tests_and_the_decoder_never_sleep() -> None:
    tests = [path for path in TESTS if "bench" not in path.parts]
    sleepers = {
        _name(path)
        for path in [*tests, *_sources("workers/proto", "workers/columnar")]
        if re.search(r"\btime\.sleep\(|from time import .*\bsleep\b", path.read_text())
    }
    assert sleepers - {"tests/test_tidy.py"} <= set(MAY_SLEEP)


def test_a_position_in_a_signature_is_an_lsn() -> None:
    bare = [
        f"{name}({argument.arg})"
        for path in PRODUCT
        for name, node in _functions(path)
        for argument in [*node.args.args, *node.args.kwonlyargs]
        if argument.arg.endswith("_lsn")
        and argument.annotation is not None
        and ast.unparse(argument.annotation) in ("int", "int | None")
    ]
    assert not bare


def test_the_gate_is_defined_once() -> None:
    homes = [
        name
        for path in PRODUCT
        for name, node in _functions(path)
        if node.name == "should_apply_changes_for_rel"
    ]
    assert homes == ["workers/apply/gate.py::should_apply_changes_for_rel"]


def test_only_the_catalog_writes_a_table_s_state() -> None:
    writers = {
        _name(path)
        for path in [*PRODUCT, *_rest("*.sql")]
        if re.search(r"\bsrsubstate\s*=\s*(\?|:|\$)", path.read_text(), re.IGNORECASE)
    }
    assert {Path(name).parts[0] for name in writers} <= {"catalog"}


def test_what_is_said_is_plain_ascii() -> None:
    """A user copies it and greps for it: ``...``, not an ellipsis."""
    found = [
        (_name(path), line, text)
        for path in PRODUCT
        for line, text in _said(path)
        if not text.isascii()
    ]
    assert {name for name, _, _ in found} == set(NOT_SAID), found


def _said(path: Path) -> list[tuple[int, str]]:
    """Lines and strings, without docstrings; but that of a command is its ``--help``."""
    nodes = list(ast.walk(_tree(path)))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for _, function in _functions(path):
        if any(ast.unparse(each).startswith("app.") for each in function.decorator_list):
            docstrings -= {line.value for line in function.body if isinstance(line, ast.Expr)}
    said = [node for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
    return [(node.lineno, node.value) for node in said if isinstance(node.value, str)]


@pytest.mark.parametrize("path", PRODUCT + TESTS, ids=_name)
def test_an_exemption_says_why_on_its_line(path: Path) -> None:
    silent = [
        f"line {number}: {comment}"
        for number, comment in _comments(path)
        if re.fullmatch(r"#\s*(noqa(:\s*[A-Z0-9, ]+)?|type:\s*ignore(\[[^]]*\])?)\s*", comment)
    ]
    assert not silent


def test_no_text_names_a_place_on_somebody_s_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path == Path(__file__).resolve() or not path.is_file():
            continue
        text = path.read_text(errors="ignore")
        found += [name for place in ("/work/", "/root/", "/home/") if place in text]
    assert not found
