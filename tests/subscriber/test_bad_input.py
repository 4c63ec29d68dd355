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
from catalog.pg_subscription import TwoPhaseState
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
from tests.subscriber.commands.test_run_sql import prepared
from tests.subscriber.statements import OFFLINE
from tests.subscriber.twins import Around
from tests.subscriber.ways import Ask, alter, create, sql, up

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
    assert not list(world.context.data_dir.rglob("passfile/*"))


EACH_WARNING = [
    pytest.param(arrange, warning, ask, id=f"{code} {number} {way}")
    for number, (code, arrange, warning, ways) in enumerate(WARNINGS)
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


TWO_PHASE = "publication: p, with: {connect: false, slot_name: NONE, two_phase: true}"
WITH_TWO_PHASE = {
    "sql, new": ("t", sql(f"{OFFLINE}, two_phase)")),
    "sql": ("s", sql("ALTER SUBSCRIPTION s SET (two_phase = true)")),
    "command, new": ("t", create(TWO_PHASE)),
    "command": ("with_slot", alter("with_slot", "SET", "(two_phase=true)")),
    "file, new": ("t", up(TWO_PHASE)),
    "file": ("s", up(TWO_PHASE, name="s")),
}
"""``two_phase = true`` by each way where PostgreSQL takes it."""


@pytest.mark.parametrize(("name", "ask"), WITH_TWO_PHASE.values(), ids=WITH_TWO_PHASE)
def test_two_phase_is_pending_at_first(world: Around, name: str, ask: Ask) -> None:
    prepared(world)
    ask(world)
    sub = world.store.subscription_by_name(name)
    assert sub is not None
    assert sub.subtwophasestate is TwoPhaseState.PENDING
    assert not world.publisher.altered


VERBS = [
    *(("t", verb, "42704", 'subscription "t" does not exist') for verb in
      ("enable", "disable", "refresh", "drop", "skip --lsn 0/1F4")),
    ("s", "enable", "55000", "cannot enable subscription that does not have a slot name"),
    ("s", "refresh", "55000",
     "ALTER SUBSCRIPTION ... REFRESH is not allowed for disabled subscriptions"),
    ("s", "skip --lsn 0/1F3", "22023",
     "skip WAL location (LSN 0/1F3) must be greater than origin LSN 0/1F4"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "verb", "sqlstate", "said"), VERBS)
def test_a_verb_is_refused_as_its_statement(
    world: Around, shell: Shell, name: str, verb: str, sqlstate: str, said: str
) -> None:
    """A-1, A-8, A-9, A-13."""
    before = prepared(world).store.subscriptions()
    verb, *options = verb.split()
    ran = Ask(lambda _: None, (verb, name, *options)).typed(world, shell)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"ERROR:  {sqlstate}: {said}\n")
    unchanged(world, before)


def test_every_condition_by_every_way_or_why_not() -> None:
    """Each error and warning has each way, or a reason; no reason is for nothing."""
    conditions = [(code, said, ways) for code, _, said, ways in ERRORS]
    conditions += [(code, said, ways) for code, _, said, ways in WARNINGS]
    assert {code for code, _, _ in conditions} | set(NOTHING_LIKE_IT) == set(CODES)
    used = set()
    for code, said, ways in conditions:
        assert code not in NOTHING_LIKE_IT
        for way in WAYS:
            reasons = {(code, way), (said, way)} & set(CANNOT)
            assert (way in ways) is not bool(reasons), (code, said, way)
            used |= reasons
    assert used == set(CANNOT)
