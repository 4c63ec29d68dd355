"""versitygw: an S3 store that keeps objects in files, and answers as fast as a disk.

The program is built once, which takes five minutes of a core, and kept in the cache; its modules
are those that the pinned sum names. The store knows one pair of keys, and rights of nobody else.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from subscriber.demo.postgres_programs import cache_dir, locked
from tests.object_store import REGION, Keys, ObjectStore
from tests.ports import free_port
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

_VERSION: Final = "v1.8.0"
_SUM: Final = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
_MODULE: Final = "github.com/versity/versitygw"
_BUCKET: Final = "lake"
KEYS: Final = Keys("tests", "tests-secret")


def can_be_had() -> bool:
    """Is the program in the cache, or can the program be built?"""
    return _program().exists() or shutil.which("go") is not None


def versitygw() -> Path:
    """The store's program, built at the first use."""
    program = _program()
    home = program.parent
    with locked(home.with_name(f"{home.name}.lock")):
        if not program.exists():
            _build(home)
    return program


def _program() -> Path:
    return cache_dir() / f"versitygw-{_VERSION}" / "versitygw"


def _build(home: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise SystemExit(f"{_MODULE} {_VERSION} is built once, which needs Go, 1.24 or later")
    work = home.with_name(f"{home.name}.build")
    env = {"GOPATH": str(work / "path"), "GOCACHE": str(work / "cache"), "GOBIN": str(work)}
    words = ["install", "-modcacherw", f"{_MODULE}/cmd/versitygw@{_VERSION}"]
    subprocess.run([go, *words], check=True, env={**os.environ, **env})
    told = subprocess.run(
        [go, "version", "-m", str(work / "versitygw")], check=True, capture_output=True, text=True
    ).stdout
    if f"{_MODULE}\t{_VERSION}\t{_SUM}" not in told:
        raise SystemExit(f"{_MODULE} {_VERSION} is not what it was: {_SUM} was expected\n{told}")
    home.mkdir(exist_ok=True)
    shutil.move(work / "versitygw", home / "versitygw")
    shutil.rmtree(work)


@contextmanager
def file_store(folder: Path) -> Iterator[ObjectStore]:
    """A running store with a bucket; the objects are below ``folder``."""
    program, files, port = versitygw(), folder / "store", free_port()
    (files / _BUCKET).mkdir(parents=True)
    env = {
        "ROOT_ACCESS_KEY": KEYS.key,
        "ROOT_SECRET_KEY": KEYS.secret,
        # Most of the processor time went into the collection of garbage, 2 ms a request.
        "GOGC": "800",
    }
    words = ["--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet", "posix", str(files)]
    with (folder / "store.log").open("wb") as log:
        server = subprocess.Popen(
            dying_with_parent([str(program), *words]),
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: _listens(port), 60, f"the store listens; see {log.name}")
        yield ObjectStore(f"http://127.0.0.1:{port}", _BUCKET)
    finally:
        server.terminate()
        server.wait(30)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
