"""Where passwords and a row's value are after a whole run, and who may read what is there."""

from __future__ import annotations

import hmac
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.security.planted_run import (
    CONTROL,
    ENV_PASSWORD,
    ODD,
    PASSWORD,
    SECRETS,
    SURELY_THERE,
    TABLES,
    VALUE,
    Found,
    memory_is_closed,
    run_in,
)

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.timeout(600),  # the first test waits for the whole run
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]


# Named, because the name of the first test that runs is in the environment of all processes.
each_secret = pytest.mark.parametrize("secret", SECRETS, ids=["password", "environment", "value"])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What a run left, on a data directory that everybody may look into."""
    return run_in(tmp_path_factory.mktemp("planted"))


def test_it_replicated(found: Found) -> None:
    assert set(found.rows) == {*TABLES, "apart", "told"}
    for publisher, lake in found.rows.values():
        assert lake == publisher
    assert len(found.rows["big"][1]) > 10_000
    assert min(len(lake) for _, lake in found.rows.values()) > 5


def test_a_mask_hides_values_under_the_key(found: Found) -> None:
    key = f"{ENV_PASSWORD}{ODD}".encode()
    hashes = [hmac.new(key, f"{VALUE}{n}".encode(), "sha256").hexdigest() for n in (1, 2)]
    assert sorted(found.hidden) == sorted((each,) for each in hashes)


@each_secret
def test_nothing_said_it(found: Found, secret: str) -> None:
    assert len(found.said) > 30
    assert [text for text in found.said if secret in text] == []


def test_errors_say_what_is_wrong_and_not_with_which_value(found: Found) -> None:
    errors = found.errors
    assert "08006: could not connect to the publisher" in errors["wrong password"]
    assert "password authentication failed" in errors["check"]
    assert "42601" in errors["no conninfo"]
    assert "password authentication failed" in errors["wrong environment"]
    assert '42601: syntax error at or near "PUBLIKATION"' in errors["no SQL"]
    assert 'sqlstate=22003 column "v" of lake table "planted.typed"' in errors["workers"]
    assert "sqlstate=23505 conflict detected" in errors["workers"]
    assert 'sqlstate=22003 column "v" of lake table "planted.ranged"' in errors["workers"]
    for what, words in errors.items():
        assert not [secret for secret in SECRETS if secret in words], what


def test_no_process_is_given_it(found: Found) -> None:
    """But the password that is in the environment because the user put it there."""
    assert len(found.environments) >= 4, "launcher, fork server, worker, lake server"
    for text in found.environments:
        assert PASSWORD not in text
        assert VALUE not in text


def test_no_argument_list_ever_had_it(found: Found) -> None:
    """Those of the whole machine, from before the publisher's start to after its end."""
    watch = found.watch
    assert watch is not None
    assert watch.told == []
    own = watch.below(os.getpid())
    assert {found.launcher, *found.lake_servers} <= own
    assert len(found.lake_servers) == 1
    assert len(found.workers & own) >= 10, "apply and sync workers, before and after a crash"
    assert len(watch.below(os.getpid(), "tests.commands")) > 10
    [lake_server] = found.lake_servers
    assert watch.below(lake_server, "python"), "Spark's Python"


@each_secret
def test_the_launcher_s_socket_never_carried_it(found: Found, secret: str) -> None:
    assert found.tap is not None
    said = found.tap.messages()
    worker = {"attach", "set_relstate", "report", "wakeup", "catalog_seen"}
    assert {*worker, "status", "notify"} <= {message.get("op") for message in said}
    assert {"catalog", "wakeup"} <= {message.get("push") for message in said}
    assert len(found.tap.streams) > 30
    assert [stream for stream in found.tap.streams if secret.encode() in stream] == []


@each_secret
def test_spark_s_plans_do_not_show_it(found: Found, secret: str) -> None:
    """Small batches travel inside a plan, and passwords beside one; neither is part of its text.

    What goes by files and the gateway alone, as a whole table may, has no plan.
    """
    execution = b"SparkListenerSQLExecutionStart"
    control = CONTROL.encode()
    assert [line for line in found.events if control in line and execution in line]
    plans = b"\n".join(found.events)
    assert b"SparkListenerConnectOperationStarted" in plans
    assert b"LocalTableScan" in plans, "a batch inside the plan"
    assert b"MapInArrow" in plans, "a copy in ranges"
    names = [f"planted.{table}" for table in TABLES] + [f"`planted`.`{table}`" for table in TABLES]
    assert any(name.encode() in plans for name in names)
    assert [line[:300] for line in found.events if secret.encode() in line] == []


def test_spark_is_never_told_the_password(found: Found) -> None:
    """Its plans, its listeners' events, its log's buffers: whatever it keeps is in its memory."""
    if found.in_memory is None:
        assert memory_is_closed(), "the memory of a child can be read, but not the lake server's"
        pytest.skip("the memory of another process may not be read here")
    assert found.in_memory == [SURELY_THERE], "the password is not"


def test_a_crash_leaves_what_it_held_to_nobody_else(found: Found) -> None:
    """Though the machine keeps cores, and a worker and the lake server crashed."""
    assert found.core_limits <= {0, 1}
    assert found.core_limits
    mode, report = found.crash_report
    assert "SIGSEGV" in report
    assert mode == 0o600
    assert found.crash_files == []


def test_the_password_of_the_environment_is_in_a_file_while_tables_are_copied(found: Found) -> None:
    [(name, mode)] = found.env_password_files.items()
    folder, *_, file = Path(name).parts
    assert (folder, file, mode) == ("staging", "passfile", 0o600)
    left = [name for name, data in found.bytes_left.items() if ENV_PASSWORD.encode() in data]
    assert left == []


def test_spark_s_tasks_copy_with_the_password_that_a_command_prints(found: Found) -> None:
    log = found.bytes_left["log/pgsub.log"].decode()
    [ranges] = re.findall(r'action=copied .* ranges=(\d+) table "planted.told"', log)
    assert int(ranges) > 1


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
    assert {*tops, "pgsub.lock", ".s.pgsub.launcher"} <= set(inside), "the launcher's own socket"
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
