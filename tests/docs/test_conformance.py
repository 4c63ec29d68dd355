"""Nothing is forgotten: each scenario and pitfall has a test, a reason, or stands in "not yet"."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, rows, script, section, text

PAGE = "conformance.md"
page = script("make_conformance")
ids = page.listed()
SCENARIOS = {id_: file for file, entries in ids.scenarios.items() for id_ in entries}


def test_generated_part_is_up_to_date() -> None:
    """If not: ``python -P docs/make_conformance.py``."""
    assert page.updated(text(PAGE)) == text(PAGE)


def test_the_list_is_whole() -> None:
    assert len(SCENARIOS) == 315
    assert list(ids.pitfalls) == [f"H-{number}" for number in range(1, 46)]
    for id_, file in SCENARIOS.items():
        assert id_.split("-")[1] == ("P" if file == "extra" else file.split("_")[0])


def test_every_id_has_a_test_or_a_reason_or_is_known_to_have_none() -> None:
    cannot_happen = in_fidelity()
    excused = {id_ for id_ in ids.entries() if ids.out(id_)} | cannot_happen
    assert set(ids.entries()) - set(page.tests()) - excused - set(ids.not_yet) == set()
    assert cannot_happen <= set(ids.pitfalls)


def in_fidelity() -> set[str]:
    """Pitfalls that cannot happen here, and the page says why."""
    return {row[0] for row in rows(section(text("fidelity.md"), "## Pitfalls"))}


def test_not_yet_lists_only_what_is_missing() -> None:
    """Has a test come? Delete the line."""
    assert set(ids.not_yet) <= set(ids.entries())
    assert set(ids.not_yet) & set(page.tests()) == set()
    assert [id_ for id_ in ids.not_yet if ids.out(id_) or id_ in in_fidelity()] == []
    assert all(ids.not_yet.values())


def test_anywhere_lists_only_scenarios_that_ran_on_no_version_they_have_to() -> None:
    """Has it run there since? Delete the line."""
    assert set(ids.anywhere) <= set(SCENARIOS) & set(page.tests())
    assert [id_ for id_ in ids.anywhere if ids.out(id_)] == []
    assert all(ids.anywhere.values())
    strict = ids._replace(anywhere={})
    found = page.results()
    assert [id_ for id_ in ids.anywhere if not page.not_run_on(id_, strict, found)] == []


def test_a_test_names_only_ids_that_there_are() -> None:
    assert set(page.tests()) <= set(ids.entries())
    unread = [
        test
        for test, function in page.functions()
        if function.name.startswith("test_s_") and not page.numbers(function.name, None)
    ]
    assert unread == []


def test_a_pitfall_in_a_name_is_in_the_docstring_too() -> None:
    """Only there it counts."""
    named = [
        (test, f"H-{number}")
        for test, function in page.functions()
        for number in re.findall(r"(?:^test|_and)_h_(\d+)(?=_|$)", function.name)
    ]
    assert named
    assert [test for test, id_ in named if test not in page.tests().get(id_, [])] == []


def test_every_id_that_a_test_shows_has_passed() -> None:
    """In the last run of each test, a scenario on 18 and on the oldest version that has it. Else:
    ``make conformance``, with ``TESTS=`` their files."""
    assert page.unproven(ids, page.results()) == []


def test_only_these_may_go_without_a_test() -> None:
    allowed: dict[str, Callable[[str, dict[str, Any]], object]] = {
        "pg19": lambda _, entry: entry["needs"] == 19,
    }
    entries = ids.entries()
    excused = {id_: entry for id_, entry in entries.items() if "out" in entry}
    wrong = [
        id_
        for id_, entry in excused.items()
        if not allowed.get(entry["out"], does_not_fit)(id_, entry)
    ]
    assert wrong == []
    assert {id_ for id_, entry in entries.items() if does_not_fit(id_, entry)} <= set(excused)


def does_not_fit(_: str, entry: dict[str, Any]) -> object:
    return entry.get("fit") == "N"


def test_every_line_says_what_it_is_about() -> None:
    for id_, entry in ids.entries().items():
        assert set(entry) <= {"fit", "does", "needs", "out"}, id_
        assert entry["does"], id_
        assert ("fit" in entry) == (id_ in SCENARIOS), id_
        assert entry.get("fit", "Y") in ("P" if SCENARIOS.get(id_) == "extra" else "YAWN"), id_


@pytest.mark.parametrize(
    ("name", "docstring", "found"),
    [
        ("test_s_004_7_refresh_copies_it", None, ["S-004-7"]),
        ("test_s_028_15_17_18_changes", "H-5: words.", ["S-028-15", "S-028-17", "S-028-18", "H-5"]),
        ("test_s_026_7_8_and_9_a_reset", None, ["S-026-7", "S-026-8", "S-026-9"]),
        ("test_s_p_10_rows", "H-1, H-20: words.", ["S-P-10", "H-1", "H-20"]),
        ("test_s_001_19_a_value_of_500000_bytes", None, ["S-001-19"]),
        ("test_s_001_19", None, ["S-001-19"]),
        ("test_a_slot_of_16_bytes", "S-001-1", []),
    ],
)
def test_what_a_test_shows(name: str, docstring: str | None, found: list[str]) -> None:
    assert page.numbers(name, docstring) == found


RECORDED = '''
import pytest

@pytest.fixture
def broken(): raise OSError

@pytest.mark.parametrize("server", [18, 16], ids=["pg18", "pg16"])
def test_s_001_1_copied(server):
    """H-3."""
    assert server == 18

@pytest.mark.postgres
@pytest.mark.parametrize("n", [1, 2])
def test_s_001_2_some_skipped(n):
    if n == 1: pytest.skip("no")

@pytest.mark.postgres
def test_s_001_3_passes(): ...

def test_s_001_4_set_up_fails(broken): ...

def test_without_a_number(): assert False

def test_a_pitfall():
    """H-5: of old."""
'''


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_run_is_recorded(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_recorded.py").write_text(RECORDED)
    results = tmp_path / "results.json"
    old = {"test_recorded.py::test_s_001_1_copied": {"15": "passed", "16": "passed"}}
    results.write_text(json.dumps(old))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conformance", "-c", os.devnull]
    command += ["-p", "no:randomly", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command += ["--numbered", f"--conformance={results}", "-n", processes, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "1 failed, 4 passed, 1 skipped" in ran.stdout, ran.stdout + ran.stderr
    assert json.loads(results.read_text()) == {
        "test_recorded.py::test_s_001_1_copied": {
            "15": "passed",
            "16": "failed",
            "18": "passed",
        },
        "test_recorded.py::test_s_001_2_some_skipped": {"18": "skipped"},
        "test_recorded.py::test_s_001_3_passes": {"18": "passed"},
        "test_recorded.py::test_s_001_4_set_up_fails": {"none": "failed"},
        "test_recorded.py::test_a_pitfall": {"none": "passed"},
    }


def test_the_worst_outcome_counts() -> None:
    assert page.worst(["passed", "skipped", "failed"]) == "failed"
    assert page.worst(["passed", "skipped"]) == "skipped"
    assert page.worst([]) == ""


OF_TWO = {"H-1": ["a.py::test_a", "a.py::test_b"], "H-2": ["a.py::test_b"]}
OF_VERSIONS = {"S-001-1": ["a.py::test_a", "a.py::test_b"], "S-030-4": ["a.py::test_c"]}
OF_NONE = {"S-020-6": ["a.py::test_b"]}


@pytest.mark.parametrize(
    ("tests", "found", "left"),
    [
        (
            OF_TWO,
            {"a.py::test_a": {"16": "passed", "18": "passed"}, "a.py::test_b": {"18": "passed"}},
            [],
        ),
        (
            OF_TWO,
            {"a.py::test_a": {"none": "passed"}},
            ["H-1: a.py::test_b: not run", "H-2: a.py::test_b: not run"],
        ),
        (
            OF_TWO,
            {
                "a.py::test_a": {"16": "failed", "18": "passed"},
                "a.py::test_b": {"none": "passed"},
            },
            ["H-1: a.py::test_a: failed on 16"],
        ),
        (
            OF_TWO,
            {"a.py::test_a": {"18": "passed"}, "a.py::test_b": {"none": "skipped"}},
            ["H-1: a.py::test_b: skipped", "H-2: a.py::test_b: skipped"],
        ),
        (
            OF_VERSIONS,
            {
                "a.py::test_a": {"18": "passed"},
                "a.py::test_b": {"none": "passed"},
                "a.py::test_c": {"16": "passed", "18": "passed"},
            },
            [],
        ),
        (
            OF_VERSIONS,
            {
                "a.py::test_a": {"17": "passed"},
                "a.py::test_b": {"none": "passed"},
                "a.py::test_c": {"18": "passed"},
            },
            ["S-001-1: not run on 18", "S-030-4: not run on 16"],
        ),
        (
            OF_VERSIONS,
            {
                "a.py::test_a": {"18": "passed"},
                "a.py::test_b": {"none": "passed"},
                "a.py::test_c": {"16": "failed"},
            },
            ["S-030-4: a.py::test_c: failed on 16", "S-030-4: not run on 18"],
        ),
        (OF_NONE, {"a.py::test_b": {"none": "passed"}}, []),
    ],
)
def test_the_check_lists_what_has_not_passed(
    tests: dict[str, list[str]],
    found: dict[str, dict[str, str]],
    left: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(page, "tests", lambda: tests)
    known = ids._replace(anywhere=dict.fromkeys(OF_NONE, "it needs none"))
    monkeypatch.setattr(page, "listed", lambda: known)
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results.json")
    page.RESULTS.write_text(json.dumps(found))
    assert page.main(["--check"]) == bool(left)
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == left
    not_passed = {line.partition(":")[0] for line in left}
    assert last == f"{len(not_passed)} of {len(tests)} ids have not passed"
    assert {id_ for id_ in tests if page.ended(id_, known, found) != "passed"} == not_passed


@pytest.mark.parametrize("target", ["conformance", "test-full"])
def test_the_check_ends_a_run(target: str) -> None:
    """Whatever the tests said; and what they said is the status if it finds nothing."""
    recipe = re.search(
        rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert recipe is not None
    last = recipe[1].splitlines()[-1].strip()
    assert last == "ended=$$?; $(CONFORMANCE) && $(CONFORMANCE) --check && exit $$ended"
