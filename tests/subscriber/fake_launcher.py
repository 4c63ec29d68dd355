"""The launcher as a process, with workers and a lake server that do nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from catalog.errcodes import ConnectionFailure, ObjectNotInPrerequisiteState, ReplicationError
from config.guc import Settings
from config.lake import LakeConfig, SparkConfig
from config.load import Config
from subscriber.launcher import daily_probe, lake_errors, lake_process
from subscriber.launcher.launcher import Launcher
from workers.parent_death import die_with_parent, dying_with_parent
from workers.process.worker_slots import LogicalRepWorker

IDLE = "import signal; signal.pause()"
COUNT = "lake_starts"
PROBES = "probes"


@dataclass
class FakeLake:
    """A process that is up at once, or never if it has no URL."""

    process: subprocess.Popen[bytes]
    url: str | None

    def poll_ready(self) -> str | None:
        if self.process.poll() is not None:
            raise ConnectionFailure("the lake server ended")
        return self.url

    def stop(self, timeout: float = 10) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class FakeStarter:
    """Counts its starts in a file; fails where the test asks for it."""

    data_dir: Path
    fails: bool
    hangs: bool

    def prepare(self) -> None:
        if self.fails:
            raise ObjectNotInPrerequisiteState("no Java", hint="Install one.")

    def start(self, pass_fds: Sequence[int]) -> FakeLake:
        counter = self.data_dir / COUNT
        number = int(counter.read_text()) + 1 if counter.exists() else 1
        counter.write_text(str(number))
        process = subprocess.Popen(
            dying_with_parent([sys.executable, "-c", IDLE]),
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
        return FakeLake(process, None if self.hangs else f"sc://localhost:{number}")


def fake_argv(data_dir: Path, row: LogicalRepWorker) -> list[str]:
    return [
        *(sys.executable, "-m", "tests.subscriber.fake_worker"),
        *("--data-dir", str(data_dir)),
        *("--subid", str(row.subid), "--relid", str(row.relid)),
        *("--slot", str(row.slot), "--generation", str(row.generation)),
    ]


def watch(_words: list[str]) -> subprocess.Popen[bytes]:
    """A watching process that asks nobody; a test reports in its place."""
    return subprocess.Popen(dying_with_parent([sys.executable, "-c", IDLE]))


def probe(data_dir: Path, status: int) -> Callable[[list[str]], subprocess.Popen[bytes]]:
    """Processes that end as a probe of the catalog would, and are counted in a file."""
    count = f"open({str(data_dir / PROBES)!r}, 'a').write('.')"
    words = [sys.executable, "-c", f"{count}; raise SystemExit({status})"]
    return lambda _words: subprocess.Popen(dying_with_parent(words))


def main() -> int:
    options = json.loads(sys.argv[1])
    data_dir = Path(options["data_dir"])
    applied = data_dir / "applied"
    real_workers = bool(options.get("real_workers"))

    def apply_file(url: str, held: Sequence[int]) -> None:
        os.fstat(*held)
        if options.get("bad_file"):
            raise ObjectNotInPrerequisiteState("the file is wrong", detail="Seen by apply_file.")
        with applied.open("a") as out:
            out.write(url + "\n")

    vars(lake_process)["LAKE_REPLACE_FIRST_SECONDS"] = options.get("lake_replace_first", 60)
    vars(lake_errors).update(options.get("lake_errors", {}))
    settings = Settings.model_validate(options.get("settings", {}))
    probed = options.get("probed")
    catalog = {} if probed is None else {"type": "rest", "uri": "http://nowhere"}
    vars(daily_probe)["CATALOG_PROBE_SECONDS"] = 0.2
    spark = SparkConfig(remote=options.get("remote"), staging=options.get("staging"))
    launcher = Launcher(
        data_dir,
        config=Config([], LakeConfig(catalog=catalog), spark, settings),
        apply_file=apply_file,
        lake_starter=FakeStarter(data_dir, bool(options.get("no_java")), real_workers),
        argv=None if real_workers else fake_argv,
        attach_timeout=options.get("attach_timeout", 60),
        lock_wait=options.get("lock_wait", 30),
        lake_watch=watch if options.get("lake_watch") else None,
        catalog_probe=None if probed is None else probe(data_dir, probed),
    )
    try:
        return launcher.run()
    except ReplicationError as error:
        sys.stderr.write(error.report() + "\n")
        return 1


if __name__ == "__main__":
    die_with_parent()  # nothing is left behind by a killed test run
    sys.exit(main())
