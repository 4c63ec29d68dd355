"""What Spark starts as its Python: where the daemon comes from, and what Spark hears."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.workers.process.launcher_peer import Peer
from tests.workers.process.spark_peer import port_of, started, task_at
from workers.lake.server.spark_python import LENGTH, READY, STREAMS

HOME = Path(pyspark.__file__).parent

_IMPORTERS = """
import sys, zipimport, workers.process.python_daemon
print(*(e for e, f in sys.path_importer_cache.items() if isinstance(f, zipimport.zipimporter)))
"""
_FORKED = """
import json, os, sys
from workers.lake.server import spark_python
seen = lambda: print(json.dumps([os.getpid(), sys.argv, os.environ["WORD"], os.getcwd()]))
spark_python.run = seen
sys.exit(spark_python.main(sys.argv[1:]))
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "lake" / "tmp").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def launcher(data_dir: Path) -> Iterator[Peer]:
    made = Peer(data_dir)
    yield made
    made.close()


_IMPATIENT = """
from workers.process import launcher_client, python_daemon
python_daemon.PYTHON_FORK_SECONDS = launcher_client.PYTHON_ASK_SECONDS = 0.5
python_daemon.main()
"""


def is_daemon(port: int) -> bool:
    """Does a worker answer there?"""
    with task_at(port) as pid:
        return pid > 0


def test_no_archive_is_left_that_each_task_would_read_again() -> None:
    [path] = HOME.glob("jars/spark-core_*.jar")  # what Spark puts there for a daemon of its own
    environ = os.environ | {"PYTHONPATH": str(path)}
    found = subprocess.run(
        [sys.executable, "-c", _IMPORTERS], env=environ, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == []


def test_a_forked_process_gets_all_that_spark_gave(
    data_dir: Path, launcher: Peer, tmp_path: Path
) -> None:
    with started(data_dir, cwd=tmp_path, WORD="given") as program:
        launcher.accept()
        path = launcher.answer(forked=True)["socket"]
        with subprocess.Popen([sys.executable, "-c", _FORKED, path]) as forked:
            assert program.stdout is not None
            pid, words, word, directory = json.loads(program.stdout.readline())
            assert forked.wait(30) == 0
        assert program.wait(30) == 0  # it lives as long as the other
    assert (pid, word, directory) == (forked.pid, "given", str(tmp_path))
    assert words[1:] == ["pyspark.worker"]
    assert list((data_dir / "lake" / "tmp").iterdir()) == []


def test_a_folder_with_a_long_name_is_no_obstacle(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long" * 40)
    (data_dir / "lake" / "tmp").mkdir(parents=True)
    (tmp_path / "s").mkdir()
    launcher = Peer(tmp_path / "s")
    (tmp_path / "s" / "pgsub.lock").rename(data_dir / "pgsub.lock")
    with started(data_dir, WORD="given") as program:
        launcher.accept()
        path = launcher.answer(forked=True)["socket"]
        with subprocess.Popen([sys.executable, "-c", _FORKED, path]) as forked:
            assert program.stdout is not None
            assert json.loads(program.stdout.readline())[0] == forked.pid
    launcher.close()


@pytest.mark.timeout(60)
def test_without_a_launcher_the_program_is_the_daemon(data_dir: Path) -> None:
    with started(data_dir) as program:
        assert is_daemon(port_of(program))


@pytest.mark.timeout(60)
def test_a_refusal_of_the_launcher_is_not_waited_for(data_dir: Path, launcher: Peer) -> None:
    with started(data_dir) as program:
        launcher.accept()
        launcher.answer(forked=False)
        assert is_daemon(port_of(program))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("answers", [True, False])
def test_a_launcher_or_a_fork_server_that_stands_still_is_not_waited_for(
    data_dir: Path, launcher: Peer, answers: bool
) -> None:
    with started(data_dir, program=("-c", _IMPATIENT)) as program:
        launcher.accept()
        if answers:
            launcher.answer(forked=True)
        assert is_daemon(port_of(program))
    assert list((data_dir / "lake" / "tmp").iterdir()) == []


@contextmanager
def taking_over(launcher: Peer) -> Iterator[socket.socket]:
    """The connection of a forked process that has taken the streams, played by the test."""
    launcher.accept()
    with socket.socket(socket.AF_UNIX) as forked:
        forked.connect(launcher.answer(forked=True)["socket"])
        _, streams, _, _ = socket.recv_fds(forked, LENGTH.size, len(STREAMS))
        for stream in streams:
            os.close(stream)
        yield forked


@pytest.mark.timeout(60)
def test_a_process_that_dies_before_it_is_ready_is_replaced(data_dir: Path, launcher: Peer) -> None:
    with started(data_dir) as program:
        with taking_over(launcher):
            pass
        assert is_daemon(port_of(program))


@pytest.mark.timeout(60)
def test_a_process_that_ends_when_it_is_ready_is_replaced(data_dir: Path, launcher: Peer) -> None:
    with started(data_dir) as program:
        with taking_over(launcher) as forked:
            program.send_signal(signal.SIGSTOP)
            forked.sendall(READY)
        program.send_signal(signal.SIGCONT)
        assert is_daemon(port_of(program))


@pytest.mark.timeout(60)
def test_spark_s_end_of_the_program_is_the_end_of_the_daemon(
    data_dir: Path, launcher: Peer
) -> None:
    with started(data_dir) as program:
        launcher.accept()
        path = launcher.answer(forked=True)["socket"]
        forking = "from workers.lake.server.spark_python import load, main; load(); main(['{}'])"
        command = [sys.executable, "-c", forking.format(path)]
        with subprocess.Popen(command, start_new_session=True) as forked:
            try:
                assert is_daemon(port_of(program))
                program.kill()
                assert program.stdin is not None
                program.stdin.close()  # as Java does it
                forked.wait(30)
            finally:
                forked.kill()
