"""The embedded PostgreSQL server."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from catalog.errcodes import ConnectionFailure, InvalidParameterValue
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.demo.postgres_programs import INSTALLS
from tests.servers import every_version, programs
from tests.waiting import wait_until

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("version", every_version(16, 18))
def test_answers_as_the_version_asked_for_with_logical_wal(version: int) -> None:
    conf: dict[str, str | int] = {"work_mem": "7MB"}
    with EmbeddedPublisher(version, conf=conf, programs=programs(version)) as server:
        [(number, wal_level, work_mem)] = server.execute(
            "SELECT current_setting('server_version_num')::int / 10000,"
            " current_setting('wal_level'), current_setting('work_mem')"
        )
        assert (number, wal_level, work_mem) == (version, "logical", "7MB")
        if version in INSTALLS:
            assert server.psql("SELECT 1, 'a'") == "1|a"


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(InvalidParameterValue, match="no embedded PostgreSQL 9"):
        EmbeddedPublisher(9).start()


def test_data_survive_restart_crash_and_kill_and_go_with_stop() -> None:
    server = EmbeddedPublisher()
    server.start()
    port, folder = server.port, server.data_dir
    server.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    server.restart()
    server.restart("immediate")
    server.kill()
    server.start()
    assert server.execute("SELECT a FROM t") == [(1,)]
    assert server.port == port
    server.stop()
    server.stop()
    assert not folder.exists()


def test_a_given_data_directory_is_kept() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to the server's user
        Path(folder).chmod(0o755)
        with EmbeddedPublisher(data_dir=Path(folder, "pg")) as server:
            server.execute("CREATE TABLE t (a int)")
        with EmbeddedPublisher(data_dir=Path(folder, "pg")) as server:
            assert server.execute("SELECT a FROM t") == []


SYSTEM = "SELECT system_identifier FROM pg_control_system()"


def test_every_server_is_a_system_of_its_own(publisher: EmbeddedPublisher) -> None:
    with EmbeddedPublisher() as other:
        assert other.execute(SYSTEM) != publisher.execute(SYSTEM)


def test_named_programs_make_a_system_of_its_own_without_others(
    publisher: EmbeddedPublisher,
) -> None:
    """As where there are but ``initdb`` and ``postgres``."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        named = EmbeddedPublisher(
            18, programs=publisher.bin_dir, data_dir=Path(folder, "new", "pg")
        )
        with named:
            first = named.execute(SYSTEM)
            assert first != publisher.execute(SYSTEM)
        with named:
            assert named.execute(SYSTEM) == first


def test_a_password_is_asked_for() -> None:
    with EmbeddedPublisher(password="it's secret") as server:
        assert server.execute("SELECT 1") == [(1,)]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.conninfo(password="wrong")).close()


def test_a_bad_setting_is_reported_with_the_server_s_words() -> None:
    with pytest.raises(ConnectionFailure) as caught:
        EmbeddedPublisher(conf={"no_such_setting": 1}).start()
    assert "no_such_setting" in (caught.value.detail or "")


def test_a_killed_owner_leaves_no_server_and_its_folder_goes_with_the_next_start() -> None:
    script = (
        "import sys\nfrom subscriber.demo.embedded_postgres import EmbeddedPublisher\n"
        "server = EmbeddedPublisher()\nserver.start()\n"
        "print(server.pid, server.data_dir.parent, flush=True)\nsys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-P", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().decode().split()
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30, "the postmaster has gone")
    with EmbeddedPublisher():
        assert not Path(folder).exists()
