"""Who dies where, and how: the parameters of every test that plays it.

The table in ``docs/reliability.md`` is made from them, so that what it says is what is played.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final

import pytest

VERSIONS: Final = (
    pytest.param(18, id="pg18"),
    pytest.param(16, id="pg16", marks=pytest.mark.matrix_only),
)
"""Publishers that every case is played on."""

ON_S3: Final = "S3"
LAKES: Final = (*VERSIONS, pytest.param(ON_S3, id="pg18-s3", marks=pytest.mark.lake))
"""Publishers with the lake on the local disk, and one with the lake on S3 behind a REST catalog.

Who imports the name plays on both, as ``docs/make_crash_table.py`` says.
"""

_FIRST_TO_STREAM: Final = pytest.param(14, id="pg14", marks=pytest.mark.matrix_only)

STREAMING: Final = (
    *VERSIONS,
    pytest.param(17, id="pg17", marks=pytest.mark.matrix_only),
    _FIRST_TO_STREAM,
)
"""Publishers that transactions in progress are played on."""

FILES_BEFORE: Final = (*VERSIONS, _FIRST_TO_STREAM)
"""Publishers that files before the commit are played on."""

PREPARING: Final = (*VERSIONS, pytest.param(15, id="pg15", marks=pytest.mark.matrix_only))
"""Publishers that prepared transactions are played on; 15 is the first that sends any."""

ALWAYS: Final = (
    "test_background_sync.py",
    "test_chaos.py",
    "test_die.py",
    "test_disk_full.py",
    "test_fence.py",
    "test_hand_over.py",
    "test_kill.py",
    "test_other_worlds.py::test_a_standby_that_has_everything_takes_over",
    "test_permanent_slot.py",
    "test_streamed.py::test_no_row_is_lost_doubled_or_seen_early",
    "test_suspend.py",
    "test_publisher.py::test_a_rewrite_before_the_lock_is_noticed",
)
"""The modules and tests here that run with every other; the rest is for ``make test-full``."""

Way = tuple[str, str]
"""Who dies at a place, and how."""

ITSELF: Final[tuple[Way, ...]] = (("itself", "kill"), ("itself", "raise"))
LAKE_SERVER: Final[Way] = ("lake server", "kill")
LAUNCHER: Final[Way] = ("launcher", "kill")

Case = tuple[str, str, str]
"""Victim, action, place."""


def cases_of(places: Iterable[str], *ways: Way) -> list[Case]:
    """Each way at each place."""
    return [(*way, place) for way in ways for place in places]


def each(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """One test per case; what ``cases_in`` finds."""
    cases = list(cases)
    ids = ["-".join(case).replace(" ", "_") for case in cases]
    return pytest.mark.parametrize("case", cases, ids=ids)


def tests_in(module: ModuleType) -> Iterator[tuple[str, Case]]:
    """The tests of a module, each with every case that it plays."""
    for name, function in vars(module).items():
        for mark in getattr(function, "pytestmark", ()):
            if mark.name == "parametrize" and mark.args[0] == "case":
                yield from ((name, case) for case in mark.args[1])


def cases_in(module: ModuleType) -> list[Case]:
    """The cases that the tests of a module play."""
    return [case for _, case in tests_in(module)]


@dataclass
class Findings:
    """What a flow through many cases has found out about each of them."""

    found: dict[Case, str] = field(default_factory=dict)
    reached: set[Case] = field(default_factory=set)

    def blame(self, cases: Iterable[Case], what: str) -> None:
        """Something went wrong, in one of these cases."""
        for case in cases:
            self.found[case] = f"{self.found[case]}\n{what}" if case in self.found else what

    def outcome(self, case: Case) -> str | None:
        """What went wrong in a case; None if nothing did."""
        if case in self.found:
            return self.found[case]
        return None if case in self.reached else "not reached"


def assert_right(findings: Findings, case: Case) -> None:
    """Fails with what was found in the case."""
    what = findings.outcome(case)
    if what is not None:
        pytest.fail(what, pytrace=False)
