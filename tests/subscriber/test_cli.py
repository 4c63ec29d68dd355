import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from tests.shell import Ran, Shell, run_apart


@pytest.fixture
def pgsub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path / "data", monkeypatch, capfd)


@pytest.fixture
def stored(pgsub: Shell) -> Subscription:
    store = CatalogStore.open(pgsub.data_dir)
    sub = store.insert_subscription(
        Subscription(
            "mysub", "host=db", ("pub",), subuuid="u", subcreate=SubCreate.READY, subslotname="s"
        )
    )
    store.close()
    return sub


VERBS = [
    "demo",
    "up",
    "run",
    "create",
    "drop",
    "enable",
    "disable",
    "skip",
    "refresh",
    "alter",
    "exec",
    "status",
    "reset-stats",
    "wait",
    "sql",
    "check",
]


def test_help_names_every_verb(pgsub: Shell) -> None:
    ran = pgsub("--help")
    assert ran.status == 0
    assert [verb for verb in VERBS if f"  {verb} " not in ran.out] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(pgsub: Shell, verb: str) -> None:
    ran = pgsub(verb, "--help")
    assert ran.status == 0
    assert "Usage" in ran.out


def test_help_and_version_are_fast_and_load_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['pgsub', '--version']; from subscriber.cli import main; main();"
        "heavy = {'pyspark', 'pyarrow', 'numba', 'psycopg', 'pydantic_core', 'yaml', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, heavy = done.stdout.splitlines()
    assert version.startswith("pgsub ")
    assert json.loads(heavy.replace("'", '"')) in ([], ["pydantic_core"])


@pytest.mark.parametrize(
    "words",
    [
        ["nosuch"],
        ["status", "--format", "xml"],
        ["drop"],
        ["run", "--nosuch"],
        ["wait", "mysub", "--lsn", "zz"],
        ["wait", "mysub", "--timeout", "-1"],
        ["skip", "mysub"],
        ["skip", "mysub", "--lsn"],
        ["create", "no such file.yaml"],
        ["exec", "-f", "no such file.sql"],
        ["exec", "-f", "a.sql", "DROP SUBSCRIPTION s"],
        ["alter", "mysub"],
        ["up", "no such file.yaml"],
        ["check", "no such file.yaml"],
    ],
)
def test_mistakes_in_the_arguments(pgsub: Shell, words: list[str]) -> None:
    ran = pgsub(*words)
    assert (ran.status, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    assert not pgsub.data_dir.exists()


@pytest.mark.parametrize("verb", ["create", "up", "check"])
def test_mistakes_in_the_file(pgsub: Shell, tmp_path: Path, verb: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("subscriptions: {s: {connection: password=hidden x, publication: p}}")
    ran = pgsub(verb, str(file))
    assert ran.status == 2
    assert ran.err.startswith(f'ERROR:  42601: configuration file "{file}", line 1, key ')
    assert "hidden" not in ran.err
    assert not pgsub.data_dir.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["drop", "x"],
        ["enable", "x"],
        ["wait", "x"],
        ["skip", "x", "--lsn", "0/1"],
        ["alter", "x", "ENABLE"],
        [
            "exec",
            "DROP SUBSCRIPTION IF EXISTS x; CREATE SUBSCRIPTION x CONNECTION '' PUBLICATION p",
        ],
    ],
)
def test_no_data_directory(pgsub: Shell, words: list[str]) -> None:
    ran = pgsub(*words)
    assert ran.status == 1
    assert "is not a data directory" in ran.err
    assert not pgsub.data_dir.exists()


@pytest.mark.parametrize("verb", ["drop", "enable", "disable", "reset-stats", "wait"])
def test_unknown_subscription(pgsub: Shell, stored: Subscription, verb: str) -> None:
    ran = pgsub(verb, "nobody")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == 'ERROR:  42704: subscription "nobody" does not exist\n'


def test_status_without_a_launcher(pgsub: Shell, stored: Subscription) -> None:
    rows = json.loads(pgsub("status", "pg_stat_subscription", "--format", "json").out)
    assert [(row["subname"], row["pid"]) for row in rows] == [("mysub", None)]
    assert pgsub("status", "pg_replication_origin", "--format", "csv").out == "roident,roname\n"
    assert "mysub" in pgsub("status").out
    ran = pgsub("status", "pg_nothing")
    assert (ran.status, ran.out) == (1, "")
    assert "42P01" in ran.err


@pytest.mark.parametrize("words", [[], ["mysub"]])
def test_reset_stats(pgsub: Shell, stored: Subscription, words: list[str]) -> None:
    assert pgsub("reset-stats", *words).out == "RESET STATS\n"
    shown = pgsub("status", "pg_stat_subscription_stats", "--format", "json").out
    assert json.loads(shown)[0]["stats_reset"]


def test_disable_and_enable(pgsub: Shell, stored: Subscription) -> None:
    assert pgsub("disable", "mysub").out == "ALTER SUBSCRIPTION\n"
    rows = json.loads(pgsub("status", "pg_subscription", "--format", "json").out)
    assert rows[0]["subenabled"] is False
    assert "is not enabled" in pgsub("wait", "mysub").err
    assert pgsub("enable", "mysub").out == "ALTER SUBSCRIPTION\n"
    ran = pgsub("wait", "mysub", "--lsn", "0/1")
    assert ran.status == 1
    assert "no launcher is running" in ran.err


def test_skip(pgsub: Shell, stored: Subscription) -> None:
    def set_by(lsn: str) -> str:
        assert pgsub("skip", "mysub", "--lsn", lsn) == Ran(0, "ALTER SUBSCRIPTION\n", "")
        rows = json.loads(pgsub("status", "pg_subscription", "--format", "json").out)
        return str(rows[0]["subskiplsn"])

    assert set_by("16/b374d848") == "16/B374D848"
    assert set_by("none") == "0/0"
    assert set_by("0/1") == "0/1"
    assert set_by("NONE") == "0/0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["skip", "mysub", "--lsn", "Zz"], '22P02: invalid input syntax for type pg_lsn: "Zz"'),
        (["skip", "mysub", "--lsn", ""], '22P02: invalid input syntax for type pg_lsn: ""'),
        (["skip", "mysub", "--lsn", "0/0"], "22023: invalid WAL location (LSN): 0/0"),
        (["wait", "mysub", "--lsn", "none"], '22P02: invalid input syntax for type pg_lsn: "none"'),
    ],
)
def test_what_is_no_position(pgsub: Shell, words: list[str], said: str) -> None:
    """SQL's errors, seen before anything is opened."""
    assert pgsub(*words) == Ran(2, "", f"ERROR:  {said}\n")
    assert not pgsub.data_dir.exists()


def test_publisher_unreachable(pgsub: Shell, tmp_path: Path) -> None:
    file = tmp_path / "sub.yaml"
    file.write_text(
        "subscriptions: {s: {connection: host=127.0.0.1 port=1 password=hidden, publication: p}}"
    )
    for verb in ("create", "check", "up"):
        ran = pgsub(verb, str(file))
        assert ran.status == 1
        assert "08006" in ran.err
        assert "hidden" not in ran.err
        assert "Traceback" not in ran.err
    assert json.loads(pgsub("status", "pg_subscription", "--format", "json").out) == []
    assert not list(pgsub.data_dir.rglob("passfile/*"))


def test_create_without_connecting_and_drop(pgsub: Shell, tmp_path: Path) -> None:
    file = tmp_path / "sub.yaml"
    file.write_text(
        "subscriptions: {s: {connection: host=nowhere.invalid, publication: p,"
        " with: {connect: false, slot_name: NONE}}}\nsettings: {copy_workers: 3}\n"
    )
    ran = pgsub("create", str(file))
    assert (ran.status, ran.out) == (0, "CREATE SUBSCRIPTION\n")
    assert "WARNING:  subscription was created, but is not connected" in ran.err
    assert pgsub("create", str(file)).err.startswith('ERROR:  42710: subscription "s" already')
    assert pgsub("check", str(file)).out == 'subscription "s" could be created\n'
    store = CatalogStore.open(pgsub.data_dir)
    assert store.settings()["settings"] == {"copy_workers": 3}
    store.close()
    assert "does not have a slot name" in pgsub("enable", "s").err
    assert pgsub("drop", "s").out == "DROP SUBSCRIPTION\n"


def test_statements_as_sql(pgsub: Shell, tmp_path: Path) -> None:
    create = (
        "CREATE SUBSCRIPTION s CONNECTION 'host=nowhere.invalid password=hidden' PUBLICATION p"
        " WITH (connect = false, slot_name = NONE, %s)"
    )
    ran = pgsub("exec", create % "nosuch")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == 'ERROR:  42601: unrecognized subscription parameter: "nosuch"\n'
    ran = pgsub("exec", create % "origin = NONE")
    assert (ran.status, ran.out) == (0, "CREATE SUBSCRIPTION\n")
    assert "WARNING:  subscription was created, but is not connected" in ran.err
    assert len(list(pgsub.data_dir.rglob("passfile/*"))) == 1
    ran = pgsub("alter", "s", "SET", "PUBLICATION", "a", "b")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        'ERROR:  42601: syntax error at or near "b"',
        'LINE 1: ALTER SUBSCRIPTION "s" SET PUBLICATION a b',
        " " * 49 + "^",
    ]
    ran = pgsub("alter", "s", "SET (copy_data = false)")
    assert ran.err == 'ERROR:  42601: unrecognized subscription parameter: "copy_data"\n'
    file = tmp_path / "drop.sql"
    file.write_text("-- both\nDROP SUBSCRIPTION IF EXISTS t;\n\nDROP SUBSCRIPTION s;\nDROP\ns;\n")
    ran = pgsub("exec", "--file", str(file))
    assert (ran.status, ran.out) == (1, "DROP SUBSCRIPTION\nDROP SUBSCRIPTION\n")
    assert ran.err.splitlines() == [
        'NOTICE:  subscription "t" does not exist, skipping',
        f'pgsub:{file}:6: ERROR:  42601: syntax error at or near "s"',
        "LINE 2: s;",
        "        ^",
    ]
    assert json.loads(pgsub("status", "pg_subscription", "--format", "json").out) == []


@pytest.mark.parametrize("words", [[], ["-"], ["-f", "-"]])
def test_statements_from_standard_input(
    pgsub: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    def run(content: bytes) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        return pgsub("exec", *words)

    ran = run(b"\n\\d\n")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("pgsub:<stdin>:2: ERROR:  0A000: psql command \\d is not supported\n")
    for content in (b"\0", b"\xff"):
        ran = run(content)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err == "ERROR:  22021: standard input is not UTF-8 text\n"
    assert run(b"\xef\xbb\xbf;").status == 0
    assert not pgsub.data_dir.exists()


def test_the_command_itself() -> None:
    done = run_apart(["nosuch"])
    assert done.returncode == 2
