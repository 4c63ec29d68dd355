"""Bad input by each way it can be asked: PostgreSQL's error, and nothing has changed afterwards.

By call, where the error's fields are seen, and as it is typed: the status and what is printed. What
``up`` does with a file that can be read it does in the launcher, so it is typed only where the
file is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog.errcodes import ReplicationError
from tests.shell import Shell
from tests.subscriber.bad_input import (
    BEFORE,
    CANNOT,
    CODES,
    ERRORS,
    IN_THE_FILE,
    NOTHING_LIKE_IT,
    WARNINGS,
    WAYS,
    Arrange,
)
from tests.subscriber.test_execute import prepared
from tests.subscriber.twins import Around
from tests.subscriber.ways import Ask

EACH_ERROR = [
    pytest.param(sqlstate, said, ask, id=f"{code} {number} {way}")
    for number, (code, sqlstate, said, ways) in enumerate(ERRORS)
    for way, ask in ways.items()
]
TYPED_ERRORS = [
    pytest.param(
        sqlstate,
        said,
        ask,
        2 if ask.file and said in IN_THE_FILE else 1,
        id=f"{code} {number} {way}",
    )
    for number, (code, sqlstate, said, ways) in enumerate(ERRORS)
    for way, ask in ways.items()
    if ask.words[0] != "up" or said in IN_THE_FILE
]


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path / "data", monkeypatch, capfd)


@pytest.mark.parametrize(("sqlstate", "said", "ask"), EACH_ERROR)
def test_refused(world: Around, sqlstate: str, said: str, ask: Ask) -> None:
    prepared(world)
    if said in BEFORE:
        BEFORE[said](world)
    before = world.store.subscriptions()
    with pytest.raises(ReplicationError) as caught:
        ask(world)
    assert (caught.value.code, said in caught.value.primary) == (sqlstate, True), caught.value
    assert "Traceback" not in caught.value.report()
    unchanged(world, before)


@pytest.mark.parametrize(("sqlstate", "said", "ask", "status"), TYPED_ERRORS)
def test_refused_on_the_command_line(
    world: Around, shell: Shell, sqlstate: str, said: str, ask: Ask, status: int
) -> None:
    prepared(world)
    if said in BEFORE:
        BEFORE[said](world)
    before = world.store.subscriptions()
    ran = ask.typed(world, shell)
    assert ran.status == status, ran
    assert "SUBSCRIPTION" not in ran.out
    (line,) = re.findall(r"^ERROR:  (.*)$", ran.err, re.MULTILINE)
    assert line.startswith(f"{sqlstate}: ")
    assert said in line
    assert ('configuration file "' in line) is (status == 2)
    unchanged(world, before)


def unchanged(world: Around, before: object) -> None:
    assert world.store.subscriptions() == before
    assert (world.publisher.slots, world.lake.tables) == ({}, {})
    assert not list(world.site.data_dir.rglob("passfile/*"))


EACH_WARNING = [
    pytest.param(arrange, warning, ask, id=f"{code} {way}")
    for code, arrange, warning, ways in WARNINGS
    for way, ask in ways.items()
]


@pytest.mark.parametrize(("arrange", "warning", "ask"), EACH_WARNING)
def test_taken_with_a_warning_or_without(
    world: Around, arrange: Arrange, warning: str, ask: Ask
) -> None:
    before = len(prepared(world).store.subscriptions())
    arrange(world)
    ask(world)
    assert len(world.store.subscriptions()) != before
    said = [line for line in world.said() if line.startswith("WARNING: ")]
    assert bool(said) is bool(warning)
    assert any(warning in line for line in said) is bool(warning)


@pytest.mark.parametrize(
    ("arrange", "warning", "ask"),
    [each for each in EACH_WARNING if "file" not in str(each.id)],
)
def test_warned_on_the_command_line(
    world: Around, shell: Shell, arrange: Arrange, warning: str, ask: Ask
) -> None:
    before = len(prepared(world).store.subscriptions())
    arrange(world)
    ran = ask.typed(world, shell)
    done = "CREATE" if warning else "DROP"
    assert (ran.status, ran.out) == (0, f"{done} SUBSCRIPTION\n")
    said = [line for line in ran.err.splitlines() if line.startswith("WARNING:  ")]
    assert bool(said) is bool(warning)
    assert any(warning in line for line in said) is bool(warning)
    assert len(world.store.subscriptions()) != before


def test_every_code_by_every_way_or_why_not() -> None:
    asked = {(code, way) for code, _, _, ways in ERRORS for way in ways}
    asked |= {(code, way) for code, _, _, ways in WARNINGS for way in ways}
    every = {(code, way) for code in CODES for way in WAYS}
    nothing = {(code, way) for code in NOTHING_LIKE_IT for way in WAYS}
    assert not asked & nothing
    # A-1 has a second error, which a file can meet.
    assert asked | nothing | set(CANNOT) == every
    assert asked & set(CANNOT) == {("A-1", "file")}
