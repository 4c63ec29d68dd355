"""Where a password and a row's value are after a whole run, and who may read what is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.harness import Pgsub
from tests.security.planted_run import LIMITS, PASSWORD, SURELY_THERE, VALUE, Found, PlantedRun

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.timeout(400),  # the first test waits for the whole run
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """What a run left, on a data directory that everybody may look into."""
    folder = tmp_path_factory.mktemp("planted")
    before = os.umask(0o022)
    try:
        pgsub = Pgsub(folder / "data")
        pgsub.data_dir.chmod(0o755)
        with EmbeddedPublisher(18, password=PASSWORD) as server:
            pgsub.up({"subscriptions": {}, "settings": LIMITS})
            try:
                yield PlantedRun(pgsub, server).play()
            finally:
                assert pgsub.stop() == 0, pgsub.log_tail()
    finally:
        os.umask(before)


def test_it_replicated(found: Found) -> None:
    publisher, lake = found.rows
    assert lake == publisher
    assert len(lake) > 10_000


# Named, because the name of the first test that runs is in the environment of all processes.
@pytest.mark.parametrize("secret", [PASSWORD, VALUE], ids=["password", "value"])
def test_nothing_said_it(found: Found, secret: str) -> None:
    assert len(found.said) > 30
    assert [text for text in found.said if secret in text] == []


def test_errors_say_what_is_wrong_and_not_with_which_value(found: Found) -> None:
    errors = found.errors
    assert "08006: could not connect to the publisher" in errors["wrong password"]
    assert "password authentication failed" in errors["check"]
    assert "42601" in errors["no conninfo"]
    assert 'sqlstate=22003 column "v" of lake table "planted.typed"' in errors["workers"]
    assert "sqlstate=23505 conflict detected" in errors["workers"]
    assert 'sqlstate=22003 column "v" of lake table "planted.ranged"' in errors["workers"]
    for what, words in errors.items():
        assert PASSWORD not in words, what
        assert VALUE not in words, what


def test_no_process_is_given_it(found: Found) -> None:
    assert len(found.arguments) >= 8, "launcher, fork server, worker, lake server: two of each"
    for text in found.arguments:
        assert PASSWORD not in text
        assert VALUE not in text


def test_spark_is_never_told_the_password(found: Found) -> None:
    """Its plans, its listeners' events, its log's buffers: whatever it keeps is in its memory."""
    if found.in_memory is None:
        pytest.skip("the memory of another process may not be read here")
    assert found.in_memory == [SURELY_THERE], "the password is not"


def test_no_file_but_the_password_file_holds_the_password(found: Found) -> None:
    holders = [name for name, data in found.bytes_left.items() if PASSWORD.encode() in data]
    assert holders
    assert {Path(name).parts[0] for name in holders} == {"passfile"}


def test_no_file_outside_the_lake_holds_a_row(found: Found) -> None:
    """Logs, catalogs with their WAL, spool, staging, the JVM's scratch."""
    names = set(found.bytes_left)
    assert {"catalog.db", "lake/catalog.db", "log/pgsub.log", "log/lake-server.log"} <= names
    assert [name for name, data in found.bytes_left.items() if VALUE.encode() in data] == []
    assert not [name for name in names if name.startswith(("spool/", "staging/"))]


def test_nothing_under_way_may_be_read_by_others(found: Found) -> None:
    """``lake/`` is closed; what lies in it may follow the umask."""
    inside = {n: m for n, m in found.modes.items() if not n.startswith("lake/")}
    open_to_others = {name: oct(mode) for name, mode in inside.items() if mode & 0o077}
    assert open_to_others == {}
    tops = {"catalog.db", "lake", "log", "log/pgsub.log", "passfile", "spool", "staging"}
    assert {*tops, "pgsub.lock", ".s.pgsub"} <= set(inside)
    private = {n: m for n, m in found.modes.items() if Path(n).parent == Path("lake")}
    for name in ("lake/server.properties", "lake/log4j2.properties", "lake/tmp"):
        assert private[name] & 0o077 == 0, name
    assert found.staged
    assert set(found.spooled) == {0o600}


def test_what_was_under_way_is_gone_after_a_crash(found: Found) -> None:
    assert found.staged_after_crash == []


def test_drop_removes_the_password(found: Found) -> None:
    def passwords(names: Iterable[str]) -> int:
        return len([name for name in names if name.startswith("passfile/")])

    assert passwords(found.bytes_left) == 4
    assert passwords(found.files_left) == 3
