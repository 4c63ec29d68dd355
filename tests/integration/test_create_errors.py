"""Bad input, by the command line against real servers: what is said, and that nothing is left.

Each refusal has its SQLSTATE and a HINT with the remedy, ends with the status of its kind, and
leaves no slot on the publisher and no row in the catalog. What ``create`` refuses, ``check`` lists
and ``up`` refuses before it starts anything.
"""

import json
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database
from tests.shell import COMMAND, NAME, PASSWORD, ROLE_PASSWORD, Shell, run_apart
from tests.subscriber.launcher_family import Family
from tests.twin import NativeTwin
from tests.waiting import wait_until
from workers.publisher.connect import connect

pytestmark = pytest.mark.postgres

NATIVE = f"{NAME}_native"
"""The twin's subscription, and so its slot."""


@pytest.fixture
def pgsub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path / "data", monkeypatch, capfd)


def slots(server: EmbeddedPublisher) -> list[str]:
    """Ours on a server; there is at most one test at a time."""
    found = server.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s", [NAME]
    )
    return [name for (name,) in found]


@pytest.fixture
def shop(database: Database) -> Iterator[Database]:
    """A published table on the server that all tests share; no slot of ours is left there."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    yield database
    assert slots(database.server) == []


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedPublisher]:
    """A server that asks for a password and has one slot and one walsender."""
    conf = {"max_replication_slots": 1, "max_wal_senders": 1}
    with EmbeddedPublisher(18, conf=conf, password=PASSWORD) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("CREATE PUBLICATION pub FOR TABLE t")
        yield server
        assert slots(server) == []


# -- the file: status 2, and nobody is contacted -------------------------------------------------


NOWHERE = "connection: host=127.0.0.1 port=1, publication: p"


@pytest.mark.parametrize(
    ("content", "sqlstate", "said"),
    [
        ("subscriptions: {s: [", "F0000", "line 1: not YAML"),
        ("subscriptions:\n\ts: 1\n", "F0000", "line 2: not YAML"),
        ("\0\1", "F0000", "not YAML"),
        ("", "F0000", "the file is empty"),
        ("- s\n", "F0000", 'key "top level": must be a mapping'),
        (
            f"subscriptions: {{s: {{{NOWHERE}, conection: x}}}}",
            "F0000",
            'unrecognized key "conection"',
        ),
        (
            f"subscriptions: {{s: {{{NOWHERE}}}}}\nsetings: {{}}",
            "F0000",
            'unrecognized key "setings"',
        ),
        (
            f"subscriptions: {{s: {{{NOWHERE}, with: {{enabled: 7}}}}}}",
            "42601",
            "enabled requires a Boolean value",
        ),
        (
            f"subscriptions: {{s: {{{NOWHERE}}}}}\nsettings: {{copy_workers: many}}",
            "F0000",
            'line 2, key "settings.copy_workers": must be a whole number',
        ),
        (
            f"subscriptions:\n  s: {{{NOWHERE}}}\n  s: {{{NOWHERE}}}\n",
            "42710",
            'line 3, key "subscriptions.s": subscription "s" already exists',
        ),
        (
            f"subscriptions: {{s: {{{NOWHERE}, tables: {{a.b: {{to: x.y}}, c.d: {{to: x.y}}}}}}}}",
            "42P07",
            'tables "a.b" and "c.d" are both mapped to lake table "x.y"',
        ),
    ],
    ids=[
        "bracket",
        "tab",
        "bytes",
        "empty",
        "list",
        "key",
        "top",
        "bool",
        "int",
        "twice",
        "mapped",
    ],
)
def test_a_wrong_file(pgsub: Shell, content: str, sqlstate: str, said: str) -> None:
    file = pgsub.file(content)
    for verb in ("create", "check", "up"):
        ran = pgsub(verb, file)
        assert (ran.status, ran.out) == (2, ""), ran
        assert ran.err.startswith(f'ERROR:  {sqlstate}: configuration file "{file}"'), ran
        assert said in ran.err, ran
    assert not pgsub.data_dir.exists()


# -- the connection ------------------------------------------------------------------------------


def test_publisher_unreachable(pgsub: Shell) -> None:
    pgsub.refused("08006", "Connection refused", "host or port", "host=127.0.0.1 port=1")


def test_wrong_password(pgsub: Shell, strict: EmbeddedPublisher) -> None:
    wrong = strict.conninfo(password="wrong")
    pgsub.refused("08006", "password authentication failed", "password_env", wrong)


def test_no_password(pgsub: Shell, strict: EmbeddedPublisher, monkeypatch: Any) -> None:
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    none = f"host=127.0.0.1 port={strict.port} user=postgres dbname=postgres"
    pgsub.refused("08006", "no password supplied", "password_env", none)


def test_wrong_database(pgsub: Shell, strict: EmbeddedPublisher) -> None:
    wrong = strict.conninfo("nosuch")
    pgsub.refused("08006", 'database "nosuch" does not exist', "dbname", wrong)


def test_no_free_walsender(pgsub: Shell, strict: EmbeddedPublisher) -> None:
    with closing(connect(strict.dsn, "the only one")):
        pgsub.refused("08006", '"max_wal_senders"', "Increase max_wal_senders", strict.dsn)


STRANGER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
held = []
while True:
    client, _ = listener.accept()
    held.append(client)
    if sys.argv[1] == "talks":
        client.recv(100)
        client.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
    elif sys.argv[1] == "hangs up":
        client.close()
"""
"""A server that is no PostgreSQL, in a process of its own: libpq holds our interpreter's lock."""


@pytest.mark.parametrize(
    ("does", "options", "said", "hint"),
    [
        ("talks", "", "invalid response to SSL negotiation", "does not speak PostgreSQL"),
        ("talks", "sslmode=disable gssencmode=disable", "from server", "does not speak"),
        ("hangs up", "", "closed the connection unexpectedly", "Check host, port"),
        ("says nothing", "connect_timeout=2", "timeout expired", "host or port"),
    ],
)
def test_what_answers_is_no_postgresql(
    pgsub: Shell, does: str, options: str, said: str, hint: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", STRANGER, does], stdout=subprocess.PIPE, text=True
    ) as stranger:
        assert stranger.stdout is not None
        port = stranger.stdout.readline().strip()
        ran = pgsub.create(f"host=127.0.0.1 port={port} {options}")
        stranger.kill()
    assert ran.status == 1
    assert "ERROR:  08006: could not connect to the publisher" in ran.err
    assert said in ran.err
    assert hint in ran.err.partition("HINT:")[2]
    pgsub.holds_nothing()


# -- the publisher's configuration ---------------------------------------------------------------


def test_wal_level(pgsub: Shell) -> None:
    with EmbeddedPublisher(18, conf={"wal_level": "replica"}) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("CREATE PUBLICATION pub FOR TABLE t")
        pgsub.refused("55000", "wal_level", "Set wal_level = logical", server.dsn)
        assert slots(server) == []


def test_no_free_slot(pgsub: Shell, strict: EmbeddedPublisher) -> None:
    strict.execute("SELECT pg_create_physical_replication_slot('taken')")
    try:
        pgsub.refused("53400", "replication slots", "max_replication_slots", strict.dsn)
    finally:
        strict.execute("SELECT pg_drop_replication_slot('taken')")


@pytest.mark.parametrize("active", [False, True])
def test_slot_name_taken(pgsub: Shell, shop: Database, active: bool) -> None:
    shop.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [NAME])
    with closing(connect(shop.dsn, "reader")) as reader:
        if active:
            options = {"proto_version": "1", "publication_names": "pub"}
            reader.start_streaming(NAME, reader.identify_system().xlogpos, options)
        said = f'replication slot "{NAME}" already exists'
        pgsub.refused("42710", said, "slot_name", shop.dsn)
        assert slots(shop.server) == [NAME]  # it is not ours to drop
        ran = pgsub.create(shop.dsn, with_={"create_slot": False, "enabled": False})
        assert ran.status == 0
        assert ("is active for PID" in ran.err) == active
    assert pgsub("drop", NAME).status == 0


def test_slot_that_should_be_there_is_not(pgsub: Shell, shop: Database) -> None:
    ran = pgsub.create(shop.dsn, with_={"create_slot": False})
    assert ran.status == 0
    assert f'WARNING:  replication slot "{NAME}" does not exist on the publisher' in ran.err
    assert "HINT:  On the publisher: SELECT pg_create_logical_replication_slot(" in ran.err
    ran = pgsub("drop", NAME)
    assert (ran.status, ran.out) == (1, "")
    assert f'ERROR:  08006: could not drop replication slot "{NAME}" on publisher' in ran.err
    assert "--leave-slot" in ran.err.partition("HINT:")[2]
    assert pgsub("drop", "--leave-slot", NAME).status == 0


# -- privileges ----------------------------------------------------------------------------------


@pytest.fixture
def role(shop: Database) -> Iterator[str]:
    """A role that may log in and read the table, and may not replicate."""
    name = f"weak_{shop.name}"
    shop.run(
        f"CREATE ROLE {name} LOGIN PASSWORD '{ROLE_PASSWORD}'",
        f"GRANT SELECT ON t TO {name}",
        f"REVOKE CONNECT ON DATABASE {shop.name} FROM PUBLIC",
        f"GRANT CONNECT ON DATABASE {shop.name} TO {name}",
    )
    yield name
    shop.run(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_role_without_replication(pgsub: Shell, shop: Database, role: str) -> None:
    own = shop.server.conninfo(shop.name, user=role, password=ROLE_PASSWORD)
    pgsub.refused("08006", "REPLICATION attribute", "ALTER ROLE ... REPLICATION", own)


def test_role_without_connect(pgsub: Shell, shop: Database, role: str) -> None:
    own = shop.server.conninfo(shop.name, user=role)
    shop.run(
        f"ALTER ROLE {role} REPLICATION", f"REVOKE CONNECT ON DATABASE {shop.name} FROM {role}"
    )
    pgsub.refused("08006", "CONNECT privilege", "GRANT CONNECT", own)


def test_role_without_select(pgsub: Shell, shop: Database, role: str) -> None:
    own = shop.server.conninfo(shop.name, user=role)
    shop.run(f"ALTER ROLE {role} REPLICATION", f"REVOKE SELECT ON t FROM {role}")
    said = 'permission denied for table "public.t"'
    pgsub.refused("42501", said, "GRANT SELECT", own)
    assert slots(shop.server) == []
    shop.run(f"GRANT SELECT (id) ON t TO {role}")  # all that is published
    assert pgsub.create(own, verb="check").status == 0


# -- publications and tables ---------------------------------------------------------------------


def test_missing_publication_is_a_warning(pgsub: Shell, shop: Database) -> None:
    ran = pgsub.create(shop.dsn, publication=["pub", "nosuch"])
    assert (ran.status, ran.out) == (0, "CREATE SUBSCRIPTION\n")
    assert 'WARNING:  publication "nosuch" does not exist on the publisher' in ran.err
    assert pgsub("drop", NAME).status == 0


def test_table_without_replica_identity_is_a_warning(pgsub: Shell, shop: Database) -> None:
    shop.run("CREATE TABLE keyless (id int)", "ALTER PUBLICATION pub SET TABLE keyless")
    ran = pgsub.create(shop.dsn)
    assert ran.status == 0
    assert 'WARNING:  table "public.keyless" has no replica identity' in ran.err
    assert "REPLICA IDENTITY FULL" in ran.err.partition("HINT:")[2]
    assert pgsub("drop", NAME).status == 0


def test_s_001_8_a_table_without_columns(
    pgsub: Shell, shop: Database, twin: NativeTwin, make_database: Callable[..., Database]
) -> None:
    """H-31: natively its rows are copied and follow; a lake table needs a column."""
    add = "INSERT INTO bare DEFAULT VALUES"
    shop.run("CREATE TABLE bare ()", add, "ALTER PUBLICATION pub SET TABLE bare")
    here = make_database(twin.server, "bare")
    here.run("CREATE TABLE bare ()")
    twin.subscribe(here, shop, NATIVE, ["pub"])
    try:
        twin.wait_synced(here)
        shop.run(add)
        twin.wait_caught_up(shop, NATIVE)
        assert here.value("SELECT count(*) FROM bare") == 2
    finally:
        here.execute(f"DROP SUBSCRIPTION {NATIVE}")
    said = 'table "public.bare" has no published columns'
    pgsub.refused("0A000", said, "add a column to it", shop.dsn)


def test_two_tables_mapped_to_one_lake_table(pgsub: Shell, shop: Database) -> None:
    shop.run("CREATE TABLE u (id int PRIMARY KEY)", "ALTER PUBLICATION pub ADD TABLE u")
    said = 'tables "public.t" and "public.u" are both mapped to lake table "public.u"'
    tables = {"public.t": {"to": "public.u"}}
    pgsub.refused("42P07", said, "to:", shop.dsn, tables=tables)


def test_subscription_exists(pgsub: Shell, shop: Database) -> None:
    assert pgsub.create(shop.dsn).status == 0
    before = pgsub("status", "pg_subscription", "--format", "json").out
    ran = pgsub.create(shop.dsn)
    assert (ran.status, ran.out) == (1, "")
    assert f'ERROR:  42710: subscription "{NAME}" already exists\nHINT:  pgsub up' in ran.err
    assert pgsub("status", "pg_subscription", "--format", "json").out == before
    assert slots(shop.server) == [NAME]
    other = {"connection": shop.dsn, "publication": ["pub"]}
    ran = pgsub("create", pgsub.file({"subscriptions": {"other": other}}))
    assert ran.status == 1
    assert f'ERROR:  55006: lake table "public.t" belongs to subscription "{NAME}"' in ran.err
    assert pgsub("drop", NAME).status == 0


# -- the data directory --------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/dev/null/x", "/proc/nope", "file"])
def test_data_directory_that_cannot_be_made(pgsub: Shell, shop: Database, path: str) -> None:
    place = pgsub.data_dir.parent / path
    if path == "file":
        place.touch()
    body = {"connection": shop.dsn, "publication": ["pub"]}
    file = pgsub.file({"subscriptions": {NAME: body}})
    ran = replace(pgsub, data_dir=place)("create", file)
    assert ran.status == 1
    assert f'ERROR:  58030: could not open data directory "{place}"' in ran.err
    assert "HINT:  Name a directory you may write to" in ran.err


_SPACE = 36 * 2**10


def test_lake_server_that_is_not_there(pgsub: Shell, shop: Database) -> None:
    subscriptions = {NAME: {"connection": shop.dsn, "publication": ["pub"]}}
    content = {"subscriptions": subscriptions, "spark": {"remote": "sc://127.0.0.1:1"}}
    for verb in ("create", "check"):
        ran = pgsub(verb, pgsub.file(content))
        assert ran.status == 1
        assert "ERROR:  08006: the lake server does not answer\nDETAIL:  " in ran.err
        assert "HINT:  spark.remote of the configuration" in ran.err
    pgsub.holds_nothing()


def test_disk_full(pgsub: Shell, shop: Database) -> None:
    """The catalog can be opened, but no file can grow beyond a few pages."""
    assert pgsub("create", pgsub.file("subscriptions: {}")).status == 0
    file = pgsub.file({"subscriptions": {NAME: {"connection": shop.dsn, "publication": ["pub"]}}})

    def no_space() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_SPACE, _SPACE))

    done = run_apart(["--data-dir", str(pgsub.data_dir), "create", file], preexec_fn=no_space)
    assert done.returncode == 1
    assert "ERROR:  58030: could not use the catalog" in done.stderr
    assert "HINT:  Is there space on the disk" in done.stderr
    assert "Traceback" not in done.stderr
    pgsub.holds_nothing()


@pytest.mark.parametrize("verb", ["create", "check", "up"])
def test_lake_folder_that_cannot_be_written(pgsub: Shell, shop: Database, verb: str) -> None:
    """A file stands where the lake's folder would be: root may write anywhere else."""
    assert pgsub("create", pgsub.file("subscriptions: {}")).status == 0
    place = pgsub.data_dir / "lake"
    place.write_text("")
    file = pgsub.file({"subscriptions": {NAME: {"connection": shop.dsn, "publication": ["pub"]}}})
    done = run_apart(["--data-dir", str(pgsub.data_dir), verb, file], timeout=120)
    assert done.returncode == 1
    assert re.search(f'ERROR: .*58030:? could not use the lake folder "{place}"', done.stderr)
    assert "HINT:  " in done.stderr
    assert "Traceback" not in done.stderr
    pgsub.holds_nothing()


@pytest.fixture(scope="module")
def second_launcher(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A launcher without a lake on a data directory, and ``pgsub run`` on the same one."""
    with Family(tmp_path_factory.mktemp("family") / "data") as family:
        first = family.start()
        words = ["--data-dir", str(family.data_dir), "run"]
        with subprocess.Popen(
            [*COMMAND, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as second:
            yield first.pid, second
            second.kill()


@pytest.fixture(scope="module", autouse=True)
def _in_time(second_launcher: object) -> None:
    """It waits for half a minute, so it begins first."""


def test_second_launcher(second_launcher: tuple[int, subprocess.Popen[str]]) -> None:
    first, second = second_launcher
    _, said = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "ERROR:  55006: data directory " in said
    assert f"DETAIL:  The lock is held by the launcher with PID {first}." in said
    assert "HINT:  Stop that launcher first" in said
    assert "Traceback" not in said


# -- a publisher that goes away ------------------------------------------------------------------


def test_publisher_goes_away_while_the_slot_is_made(pgsub: Shell, shop: Database) -> None:
    """A transaction that writes keeps the slot from being made until the walsender is ended."""
    making = "query LIKE 'CREATE_REPLICATION_SLOT%%' AND application_name = %s"
    end = f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {making}"

    def cut() -> None:
        wait_until(lambda: shop.execute(end, [NAME]), 60, "the slot is being made")

    cutter = threading.Thread(target=cut)
    with shop.connect() as writer, writer.transaction():
        writer.execute("INSERT INTO t VALUES (1)")
        cutter.start()
        ran = pgsub.create(shop.dsn)
        cutter.join()
    assert (ran.status, ran.out) == (1, "")
    assert "ERROR:  08006: lost the connection to the publisher" in ran.err
    assert "terminating connection due to administrator command" in ran.err
    assert "HINT:  Try again when the publisher is up." in ran.err
    assert f'CONTEXT:  creating replication slot "{NAME}" on the publisher' in ran.err
    pgsub.holds_nothing()


def test_publisher_is_gone_at_drop(pgsub: Shell) -> None:
    with EmbeddedPublisher(18) as server:
        server.execute("CREATE PUBLICATION pub")
        assert pgsub.create(server.dsn).status == 0
        server.halt()
        ran = pgsub("drop", NAME)
        assert (ran.status, ran.out) == (1, "")
        assert "ERROR:  08006: could not connect to publisher when attempting to drop" in ran.err
        assert "--leave-slot" in ran.err.partition("HINT:")[2]
        (row,) = json.loads(pgsub("status", "pg_subscription", "--format", "json").out)
        assert (row["subcreate"], row["subenabled"]) == ("ready", True)
        ran = pgsub("drop", "--leave-slot", NAME)
        assert (ran.status, ran.out) == (0, "DROP SUBSCRIPTION\n")
        assert f"HINT:  On the publisher: SELECT pg_drop_replication_slot('{NAME}')" in ran.err
        pgsub.holds_nothing()
        (leaked,) = json.loads(pgsub("status", "leaked_slots", "--format", "json").out)
        assert leaked["slot_name"] == NAME
        server.start()
        other = {"connection": server.dsn, "publication": ["pub"]}
        assert pgsub("create", pgsub.file({"subscriptions": {"other": other}})).status == 0
        assert pgsub("drop", "other").status == 0  # it tries the leaked one again
        assert slots(server) == []
        assert json.loads(pgsub("status", "leaked_slots", "--format", "json").out) == []
