"""``--conformance=FILE``: how each numbered test ended, on which version of the publisher.

A plugin of pytest. What a run found is put beside what FILE holds of other tests and versions, so
that a run of one file, or of one version, renews its own part.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.docs.pages import script

SERVER = "conformance_server"
"""The property of a report that says on which version its test ran."""

page = script("make_conformance")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Both options, under a heading of their own."""
    group = parser.getgroup("conformance")
    group.addoption("--conformance", metavar="FILE", help="renew FILE by the numbered tests")
    group.addoption("--numbered", action="store_true", help="run numbered tests only")


def pytest_configure(config: pytest.Config) -> None:
    """Record only when asked to, and in the process that hears of all tests."""
    file = config.getoption("--conformance")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(file).resolve()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report travels from the process that ran the test; the item does not."""
    report = yield
    if _numbered(item):
        report.user_properties.append((SERVER, version(item)))
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what shows no id, if asked to."""
    if config.getoption("--numbered"):
        others = [item for item in items if not _numbered(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _numbered(item)]


def _numbered(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    return function is not None and bool(page.numbers(function.__name__, function.__doc__))


def version(item: pytest.Item) -> str:
    """``pg16`` in the test's parameters says 16; else what talks to a server does to the newest."""
    named = re.search(r"\bpg(\d+)\b", item.name.partition("[")[2])
    if named:
        return named[1]
    return str(page.VERSIONS[-1] if item.get_closest_marker("postgres") else page.NO_SERVER)


class Recorder:
    """Collects outcomes and writes them at the end."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[tuple[str, str], list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has passed if its call has and neither set-up nor tear-down failed."""
        server = dict(report.user_properties).get(SERVER)
        if server and (report.when == "call" or report.outcome != "passed"):
            self.found[report.nodeid.partition("[")[0], str(server)].append(report.outcome)

    def pytest_sessionfinish(self) -> None:
        """Put this run's outcomes beside those of others."""
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        for (test, server), outcomes in self.found.items():
            known.setdefault(test, {})[server] = page.worst(outcomes)
        self.file.write_text(page.as_text(known))
