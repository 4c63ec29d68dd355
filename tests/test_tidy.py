"""House rules that no linter knows. An exemption carries its reason and goes with its need."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.house_exemptions import (
    LONG_FUNCTIONS,
    LONG_MODULES,
    NO_MIRROR,
    NUMBERS,
    POINTER_LIMITS,
    SHORT_MODULES,
)

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("subscriber", "workers", "catalog", "config")

MIN_MODULE_LINES = 30
MAX_MODULE_LINES = 450
MAX_TEST_MODULE_LINES = 500
MAX_FOLDER_MODULES = 25
MAX_WITHOUT_MIRROR = 25
MAX_FUNCTION_LINES = 70
MAX_LINE = 100

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

MAX_POINTER_PERCENT = 6.0
POINTER_TOLERANCE = 1.0
"""A room above the general limit may exceed its own this much, when good text leaves the room."""
FEWEST_WORDS_MEASURED = 100
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
POINTER_WORDS = re.compile(
    r"\b(it|its|itself|this|that|these|those|what|whatever|which|whose|who|whom"
    r"|one|ones|other|others|another|them|they|their|theirs|there|so|such|same"
    r"|nobody|somebody|anybody|nothing|something|anything|ours|own|each|both|either|neither)\b",
    re.IGNORECASE,
)

SQLSTATE = re.compile(r"(0[0-9A-F]|2[0-9A-F]|3[4-9BDF]|4[024]|5[3-8]|F0|P0|XX)[0-9A-Z]{3}")

HOMES_OF_NUMBERS = ("config/guc.py", "config/limits.py", "config/monitor_limits.py")
UNIT_SUFFIX = re.compile(
    r"_(SECONDS|MILLISECONDS|MICROSECONDS|NANOSECONDS|MINUTES|HOURS|DAYS|TIMEOUT|INTERVAL|POLL"
    r"|WAIT|GRACE|DELAY|AGE|TTL|BYTES|SIZE|ROWS|FILES|ATTEMPTS|RETRIES|THREADS|CLIENTS|BATCHES"
    r"|CHUNK|BUFFER|BACKLOG|AT_ONCE)$"
)
UNIT_ARGUMENT = re.compile(r"(timeout|seconds|wait|poll|bytes|rows|attempts|memory|size)$")
WAITING_CALLS = ("sleep", "wait", "settimeout", "join", "result")


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


def test_each_module_has_its_test_module() -> None:
    """A test of ``workers/a/b.py`` is found at ``tests/workers/a/test_b.py``, without a search."""
    without = {
        _name(path)
        for path in PRODUCT
        if path.name != "__init__.py"
        and not (ROOT / "tests" / path.parent.relative_to(ROOT) / f"test_{path.name}").exists()
    }
    exempt = {f"{room}/{module}.py" for room, modules in NO_MIRROR.items() for module in modules}
    assert not without - exempt, "write tests/<folder>/test_<name>.py for these"
    assert not exempt - without, "take these out of NO_MIRROR"


def test_few_modules_are_without_a_test_module() -> None:
    assert sum(map(len, NO_MIRROR.values())) <= MAX_WITHOUT_MIRROR


def test_a_text_below_a_name_describes_the_name() -> None:
    """A text below anything but an assignment is one whose name has moved away."""
    lost = [
        f"{_name(path)}:{text.lineno}"
        for path in PRODUCT
        for above, text in pairwise(_tree(path).body)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if not isinstance(above, ast.Assign | ast.AnnAssign)
    ]
    assert not lost


def test_a_folder_holds_at_most_25_modules() -> None:
    sizes = Counter(_name(path.parent) for path in PRODUCT)
    assert not {folder: size for folder, size in sizes.items() if size > MAX_FOLDER_MODULES}


def test_no_product_module_is_longer_than_450_lines() -> None:
    sizes = {_name(path): _lines(path) for path in PRODUCT}
    long = {name for name, size in sizes.items() if size > MAX_MODULE_LINES}
    assert not {name: sizes[name] for name in long - set(LONG_MODULES)}, "split these"
    assert not set(LONG_MODULES) - long, "take these out of LONG_MODULES"


def test_no_test_module_is_longer_than_500_lines() -> None:
    sizes = {_name(path): _lines(path) for path in TESTS}
    assert not {name: size for name, size in sizes.items() if size > MAX_TEST_MODULE_LINES}


def test_no_module_is_shorter_than_30_lines() -> None:
    sizes = {_name(path): _lines(path) for path in PRODUCT if path.name != "__init__.py"}
    short = {name for name, size in sizes.items() if size < MIN_MODULE_LINES}
    assert not {name: sizes[name] for name in short - set(SHORT_MODULES)}, "join these"
    assert not set(SHORT_MODULES) - short, "take these out of SHORT_MODULES"


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_pointer_words_stay_rare() -> None:
    """A sentence of "it", "that" and "which" makes the reader search; one of names does not."""
    shares = _pointer_shares()
    limits = {room: POINTER_LIMITS.get(room, MAX_POINTER_PERCENT) for room in shares}
    above = [
        f"{room}: {share:.2f} % pointer words, limit {limits[room]} %"
        for room, share in shares.items()
        if share > limits[room] + (POINTER_TOLERANCE if room in POINTER_LIMITS else 0)
    ]
    assert not above, "say what the words point at:\n" + "\n".join(above)
    small = [room for room in POINTER_LIMITS if shares.get(room, 0.0) <= MAX_POINTER_PERCENT]
    assert not small, f"at or under {MAX_POINTER_PERCENT} % or gone: take out of POINTER_LIMITS"


def test_prose_is_docstrings_comments_and_pages_without_samples(tmp_path: Path) -> None:
    module, page = tmp_path / "module.py", tmp_path / "page.md"
    module.write_text('"""Is it?"""\ntext = "that"  # of its own\n')
    page.write_text("which\n```\nthat\n```\n")
    assert [POINTER_WORDS.findall(" ".join(_prose(each))) for each in (module, page)] == [
        ["it", "its", "own"],
        ["which"],
    ]


def _pointer_shares() -> dict[str, float]:
    """Room → percent of pointer words; rooms with too few words to measure are left out."""
    words: Counter[str] = Counter()
    pointers: Counter[str] = Counter()
    for path in [*PRODUCT, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]:
        room = "README.md" if path.parent == ROOT else _name(path.parent)
        for line in _prose(path):
            words[room] += len(WORD.findall(line))
            pointers[room] += len(POINTER_WORDS.findall(line))
    return {
        room: 100 * pointers[room] / count
        for room, count in sorted(words.items())
        if count >= FEWEST_WORDS_MEASURED
    }


def _prose(path: Path) -> Iterator[str]:
    """Docstrings and comments of a module; a page without its samples."""
    if path.suffix == ".md":
        yield re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        return
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for _, comment in _comments(path):
        yield comment


def test_an_sqlstate_has_a_name() -> None:
    """``catalog/errcodes.py`` names them; only ``copy_task`` travels without that module."""
    bare = [
        f"{_name(path)}:{node.lineno}: {node.value}"
        for path in PRODUCT
        if _name(path) not in ("catalog/errcodes.py", "workers/lake/copy_task.py")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if SQLSTATE.fullmatch(node.value)
    ]
    assert not bare


def test_a_number_with_a_unit_is_a_limit_or_a_setting() -> None:
    """Limits stand in ``config/limits.py``, settings in ``config/guc.py``, each with a reason."""
    found = {
        f"{_name(path)}::{number}"
        for path in PRODUCT
        if _name(path) not in HOMES_OF_NUMBERS
        for number in _numbers_with_a_unit(path)
    }
    assert not found - set(NUMBERS), "move these to config/limits.py"
    assert not set(NUMBERS) - found, "take these out of NUMBERS"


def test_the_rule_about_numbers_sees_constants_and_waits(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "A_TIMEOUT = 5.0\nROOM_BYTES: Final = 4 << 20\nNONE_ROWS = 0\nCODE = 7\n"
        "def f(a, rows=9, *, wait=1.5, n=3):\n"
        " lock.wait(2.5); run(x, timeout=3); run(x, timeout=A_TIMEOUT); path.join(a)\n"
    )
    assert sorted(_numbers_with_a_unit(module)) == [
        "A_TIMEOUT", "ROOM_BYTES", "f(rows)", "f(wait)", "lock.wait", "run",
    ]  # fmt: skip


def _numbers_with_a_unit(path: Path) -> Iterator[str]:
    """Constants whose names end in a unit, and literal times passed to a call."""
    for line in _tree(path).body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and _is_number(line.value):
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            yield from filter(UNIT_SUFFIX.search, map(ast.unparse, targets))
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            waits = called.rpartition(".")[2] in WAITING_CALLS
            given = [each.value for each in node.keywords if UNIT_ARGUMENT.search(each.arg or "")]
            if any(_is_number(each) for each in [*given, *(node.args[:1] if waits else [])]):
                yield called
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            defaults = [*node.args.defaults, *node.args.kw_defaults]
            for each, default in zip(reversed(arguments), reversed(defaults), strict=False):
                if UNIT_ARGUMENT.search(each.arg) and _is_number(default):
                    yield f"{node.name}({each.arg})"


def _is_number(node: ast.expr | None) -> bool:
    """True for a literal number other than 0, or for a calculation with literal numbers alone."""
    match node:
        case ast.Constant(value=bool() | 0):
            return False
        case ast.Constant(value=int() | float()) | ast.UnaryOp():
            return True
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
    return False


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
        if BANNED_NAMES.fullmatch(path.stem)
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
        if path.stem.endswith("_verbs"):
            docstrings -= {line.value for line in function.body if isinstance(line, ast.Expr)}
    said = [node for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
    return [(node.lineno, node.value) for node in said if isinstance(node.value, str)]


def test_what_a_test_reads_inside_a_destination_exists() -> None:
    """``dest`` is ``Any`` in the tests, so mypy does not see a renamed attribute."""
    tree = _tree(ROOT / "workers/lake/iceberg/destination.py")
    nodes = list(ast.walk(tree))
    has = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    stored = [node for node in nodes if isinstance(node, ast.Attribute)]
    has |= {node.attr for node in stored if isinstance(node.ctx, ast.Store)}
    read = {
        (name, _name(path))
        for path in TESTS
        for name in re.findall(r"\bdest\.(_[a-z]\w*)", path.read_text())
    }
    assert "_sessions" in {name for name, _ in read}
    assert not {(name, path) for name, path in read if name not in has}


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
