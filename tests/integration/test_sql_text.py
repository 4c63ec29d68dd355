"""SQL text beside PostgreSQL's own: what it refuses we refuse, with its words, at its place.

It takes a server, which is its own publisher where one is needed; no lake.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from catalog import keywords
from catalog.errcodes import ReplicationError
from catalog.namespace import quote_identifier, quote_literal, quote_literal_list
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.subscriber.bad_input import ERRORS, MISSING, MISSING_ONE, ORIGINS
from tests.subscriber.commands.test_run_sql import prepared, session
from tests.subscriber.statements import GOOD, IN_A_BLOCK, OPTIONS, STATE, SYNTAX
from tests.subscriber.twins import around

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def native(publisher: EmbeddedPublisher) -> Iterator[Database]:
    """A database with subscriptions that do nothing, and publications of its own table."""
    made = new_database(publisher, "sql_text")
    create, with_ = "CREATE SUBSCRIPTION", "WITH (connect = false, slot_name"
    idle = "WITH (enabled = false, create_slot = false, slot_name = NONE, copy_data = false)"
    itself = quote_literal(made.dsn)
    made.run(
        "CREATE TABLE a (id int PRIMARY KEY, v int)",
        "CREATE PUBLICATION p FOR TABLE a",
        "CREATE PUBLICATION part FOR TABLE a (id)",
        f"{create} s CONNECTION 'dbname=nowhere' PUBLICATION p {with_} = NONE)",
        f"{create} with_slot CONNECTION 'dbname=nowhere' PUBLICATION p, r {with_} = x)",
        f"{create} enabled CONNECTION 'host=127.0.0.1 port=1' PUBLICATION p, r {with_} = y)",
        "ALTER SUBSCRIPTION enabled ENABLE",
        f"{create} slot_is_gone CONNECTION {itself} PUBLICATION p {with_} = x)",
        f"{create} feeds CONNECTION {itself} PUBLICATION p {idle}",
    )
    yield made
    made.run("ALTER SUBSCRIPTION enabled DISABLE")
    for name in ("enabled", "with_slot", "slot_is_gone"):
        made.run(f"ALTER SUBSCRIPTION {name} SET (slot_name = NONE)")
    for name in ("s", "with_slot", "enabled", "slot_is_gone", "feeds"):
        made.run(f"DROP SUBSCRIPTION {name}")
    made.drop()


def ours(text: str, folder: Path, file: str | None = None) -> ReplicationError | None:
    """The error of a session on twins of publisher and lake."""
    world = prepared(around(folder))
    try:
        session(world, [], file).run(text)
    except ReplicationError as error:
        return error
    finally:
        world.store.close()
    return None


AT_A_POSITION = b"""
SELECT pg_replication_origin_advance('pg_' || oid, '0/1F4')
  FROM pg_subscription WHERE subname = 's' AND subdbid = (
       SELECT oid FROM pg_database WHERE datname = current_database())
"""
"""Said before each statement: a DROP takes the position away, though it is rolled back."""


def theirs(text: str, native: Database) -> psycopg.errors.Diagnostic | None:
    """The server's error; what it takes is rolled back."""
    try:
        with native.connect() as connection:
            connection.execute(AT_A_POSITION)
            connection.execute(text.encode())
            connection.execute(b"ROLLBACK")
    except psycopg.Error as error:
        return error.diag
    return None


def psql(file: Path, native: Database) -> list[str]:
    """What psql says about a file, without the place in the server's source."""
    words = [str(native.server.bin_dir / "psql"), "-X", "-q", "-d", native.dsn, "-f", str(file)]
    words += ["-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=1"]
    done = subprocess.run(words, capture_output=True, check=False)
    lines = done.stderr.decode().split("\n")
    return [line for line in lines if line and not line.startswith("LOCATION:")]


def as_psql(error: ReplicationError | None) -> list[str]:
    """Our report with psql's name in it."""
    return [] if error is None else error.report().replace("pgsub:", "psql:", 1).split("\n")


def test_a_file_s_syntax_errors_look_as_psql_prints_them(native: Database, tmp_path: Path) -> None:
    file = tmp_path / "statements.sql"
    pointed = [text for _, text, _, said in OPTIONS if said.startswith("conflicting")]
    before = "-- a comment\n\nDROP SUBSCRIPTION IF EXISTS\n  t; "
    different = {}
    for text in [*(text for text, _ in SYNTAX), *pointed, before + "ALTER SUBSCRIPTION s FOO;"]:
        file.write_bytes(text.encode())
        mine, native_s = as_psql(ours(text, tmp_path, str(file))), psql(file, native)
        said = [line for line in native_s if "NOTICE" not in line]
        if not mine or mine != said:
            different[text] = (mine, said)
    assert not different


def test_options_are_refused_as_by_the_server(native: Database, tmp_path: Path) -> None:
    different = {}
    for _, text, _, _ in [*OPTIONS, *STATE]:
        mine, diag = ours(text, tmp_path), theirs(text, native)
        assert mine is not None, text
        assert diag is not None, text
        place = None if mine.cursorpos is None else str(mine.cursorpos + 1)
        said = (mine.code, mine.primary, place)
        wanted = (diag.sqlstate, (diag.message_primary or "").strip(), diag.statement_position)
        hint = diag.message_hint in (None, mine.hint)
        # libpq names the word, which may be part of a password.
        same = said == wanted or (mine.primary.startswith("invalid connection string syntax"))
        if not same or not hint or mine.code != diag.sqlstate:
            different[text] = (said, mine.hint, wanted, diag.message_hint)
    assert not different


def test_blocks_are_refused_as_by_the_server(native: Database, tmp_path: Path) -> None:
    for _, text, _ in IN_A_BLOCK:
        mine, diag = ours(f"BEGIN; {text}", tmp_path), theirs(f"BEGIN; {text}", native)
        assert mine is not None
        assert diag is not None
        assert (mine.code, mine.primary) == (diag.sqlstate, diag.message_primary)


AS_A_ROLE = (
    "BEGIN; CREATE ROLE {role}; GRANT pg_create_subscription TO {role};"
    " GRANT CREATE ON DATABASE {database} TO {role};"
)
"""The role is gone with the transaction, which the error ends."""

NEEDS_A_ROLE = {
    ("C-7", "42501"): "SET ROLE {role};"
    " CREATE SUBSCRIPTION t CONNECTION 'dbname=nowhere' PUBLICATION p"
    " WITH (connect = false, password_required = false)",
    ("C-9", "2F003"): "SET ROLE {role};"
    " CREATE SUBSCRIPTION t CONNECTION 'dbname=nowhere' PUBLICATION p WITH (create_slot = false)",
    ("A-1", "42501"): "ALTER SUBSCRIPTION s SET (password_required = false);"
    " ALTER SUBSCRIPTION s OWNER TO {role}; SET ROLE {role}; ALTER SUBSCRIPTION s SET (binary)",
}
"""What the server is asked, as one who is no superuser, where the twins have ``is_superuser``."""


@pytest.mark.parametrize(("code", "sqlstate"), NEEDS_A_ROLE)
def test_errors_about_a_role_are_the_server_s(code: str, sqlstate: str, native: Database) -> None:
    """The unit tests have ours say the same."""
    [said] = [each[2] for each in ERRORS if each[:2] == (code, sqlstate)]
    names = {"role": f"weak_{native.name}", "database": native.name}
    diag = theirs((AS_A_ROLE + NEEDS_A_ROLE[code, sqlstate]).format_map(names), native)
    assert diag is not None
    assert (diag.sqlstate, diag.message_primary) == (sqlstate, said)


def test_a_worker_that_still_runs_is_the_server_s_error(native: Database) -> None:
    """A-6: the worker waits for a publisher that never answers, and its disabling is not committed.

    The unit tests have ours say the same.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        there = f"host=127.0.0.1 port={listener.getsockname()[1]}"
        native.run(
            f"CREATE SUBSCRIPTION lives CONNECTION '{there}' PUBLICATION p"
            " WITH (connect = false, slot_name = z)",
            "ALTER SUBSCRIPTION lives ENABLE",
        )
        worker, _ = listener.accept()
        with worker:
            # To turn it off alters the slot, which is refused in a transaction block.
            alter = "ALTER SUBSCRIPTION lives"
            diag = theirs(f"BEGIN; {alter} DISABLE; {alter} SET (two_phase = on)", native)
    native.run(f"{alter} DISABLE", f"{alter} SET (slot_name = NONE)", "DROP SUBSCRIPTION lives")
    wanted = {each[1:3] for each in ERRORS if each[0] == "A-6"}
    assert diag is not None
    assert {(diag.sqlstate, diag.message_primary)} == wanted
    assert diag.message_hint == "Try again after some time."


NEEDS_A_PUBLISHER = {
    "C-14": "CREATE SUBSCRIPTION t CONNECTION 'host=127.0.0.1 port=1' PUBLICATION p",
    "C-16": "CREATE SUBSCRIPTION t CONNECTION {itself} PUBLICATION p, part WITH"
    " (enabled = false, create_slot = false, slot_name = NONE)",
    "D-2": "DROP SUBSCRIPTION with_slot",
    "D-4": "DROP SUBSCRIPTION slot_is_gone",
}
"""What the server is asked where ``bad_input`` has a statement for the twins."""


WITH_TWO_PHASE = ("A-7", "A-10")
"""What is refused while two-phase commit is enabled, which takes a publisher to bring about."""


@pytest.fixture
def native_with_two_phase(native: Database) -> Iterator[Database]:
    """As if enabled, with a prepared transaction of ``with_slot``."""
    enabled = "UPDATE pg_subscription SET subtwophasestate = '{}' WHERE subdbid = {}"
    here = "(SELECT oid FROM pg_database WHERE datname = current_database())"
    oid = f"SELECT oid FROM pg_subscription WHERE subname = 'with_slot' AND subdbid = {here}"
    gid = f"pg_gid_{native.value(oid)}_5"
    native.run(enabled.format("e", here), f"BEGIN; PREPARE TRANSACTION '{gid}'")
    yield native
    native.run(f"ROLLBACK PREPARED '{gid}'", enabled.format("d", here))


@pytest.mark.parametrize(
    ("sqlstate", "said", "text"),
    [
        (sqlstate, said, ways["sql"].words[1])
        for code, sqlstate, said, ways in ERRORS
        if code in WITH_TWO_PHASE
    ],
)
def test_errors_with_two_phase_are_the_server_s(
    sqlstate: str, said: str, text: str, native_with_two_phase: Database
) -> None:
    """A-7, A-10: the unit tests have ours say the same, by each way to ask."""
    diag = theirs(text, native_with_two_phase)
    assert diag is not None
    assert (diag.sqlstate, said in str(diag.message_primary)) == (sqlstate, True), (
        diag.message_primary
    )


AS_IT_STANDS = [
    pytest.param(sqlstate, said, ways["sql"].words[1], id=f"{code} {number}")
    for number, (code, sqlstate, said, ways) in enumerate(ERRORS)
    if code not in ("A-6", *WITH_TWO_PHASE, *NEEDS_A_PUBLISHER)
    and (code, sqlstate) not in NEEDS_A_ROLE
]


@pytest.mark.parametrize(("sqlstate", "said", "text"), AS_IT_STANDS)
def test_errors_by_every_way_are_the_server_s(
    sqlstate: str, said: str, text: str, native: Database
) -> None:
    """The unit tests have ours say the same, by each way to ask."""
    diag = theirs(text, native)
    assert diag is not None
    assert (diag.sqlstate, said in str(diag.message_primary)) == (sqlstate, True), (
        diag.message_primary
    )


@pytest.mark.parametrize("code", NEEDS_A_PUBLISHER)
def test_errors_about_a_publisher_are_the_server_s(code: str, native: Database) -> None:
    """The unit tests have ours say the same."""
    text = NEEDS_A_PUBLISHER[code].format(itself=quote_literal(native.dsn))
    [(sqlstate, said)] = [(each[1], each[2]) for each in ERRORS if each[0] == code]
    diag = theirs(text, native)
    assert diag is not None
    assert (diag.sqlstate, said in str(diag.message_primary)) == (sqlstate, True), (
        diag.message_primary
    )


@pytest.mark.parametrize(
    ("words", "warning", "sqlstate"),
    [("x, p, y", MISSING, "42704"), ("p, x", MISSING_ONE, "42704"), ("p", ORIGINS, "55000")],
    ids=["C-17 several", "C-17 one", "C-18"],
)
def test_warnings_about_a_publisher_are_the_server_s(
    words: str, warning: str, sqlstate: str, native: Database
) -> None:
    """A warning of ours has no SQLSTATE; its words are the server's."""
    idle = "enabled = false, create_slot = false, slot_name = NONE, copy_data = true"
    text = f"CREATE SUBSCRIPTION t CONNECTION {quote_literal(native.dsn)} PUBLICATION {words}"
    noticed: list[tuple[str | None, ...]] = []

    def notice(diag: psycopg.errors.Diagnostic) -> None:  # it is empty when this has returned
        noticed.append((diag.severity_nonlocalized, diag.sqlstate, diag.message_primary))

    with native.connect() as connection:
        connection.add_notice_handler(notice)
        connection.execute(f"BEGIN; {text} WITH ({idle}, origin = none)".encode())
        connection.execute(b"ROLLBACK")
    found = [each[:2] for each in noticed if warning in str(each[2])]
    assert found == [("WARNING", sqlstate)], noticed


@pytest.mark.parametrize("text", GOOD)
def test_what_the_server_takes_is_taken(text: str, native: Database, tmp_path: Path) -> None:
    error, diag = ours(text, tmp_path), theirs(f"BEGIN; {text}", native)
    assert (error, diag and diag.message_primary) == (None, None)


def test_identifiers_are_quoted_as_by_the_server(native: Database) -> None:
    words = [word for (word,) in native.execute("SELECT word FROM pg_get_keywords()")]
    words += ["_", "a_1", "1a", "a$", "a.b", "A", "a b", 'a"b', "a'b", "a\\b", "é", "a\n", ""]
    rows = native.execute(
        f"SELECT quote_ident(word) FROM unnest(ARRAY[{quote_literal_list(words)}])"
        " WITH ORDINALITY AS each (word, place) ORDER BY place"
    )
    assert [quote_identifier(word) for word in words] == [quoted for (quoted,) in rows]


def test_keywords_are_the_server_s(native: Database) -> None:
    rows = native.execute("SELECT catcode::text, word FROM pg_get_keywords()")
    kinds = {"R": keywords.RESERVED, "T": keywords.TYPE_FUNC_NAME, "C": keywords.COL_NAME}
    assert {code: {word for kind, word in rows if kind == code} for code in kinds} == kinds
