from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Stream, SubCreate, Subscription
from subscriber.commands import run_sql
from subscriber.commands.context import CommandContext
from subscriber.commands.run_sql import Session, altering
from subscriber.commands.subscription_row import must_have
from tests.subscriber.alter_twin import AlterTwin
from tests.subscriber.statements import GOOD, IN_A_BLOCK, OFFLINE, OPTIONS, STATE
from tests.subscriber.twins import Around, nothing_is_left


def prepared(world: Around) -> Around:
    """Three subscriptions: ``s`` disabled without a slot, ``with_slot`` disabled, ``enabled``.

    The origin of ``s`` stands at 0/1F4.
    """
    row = Subscription(
        "s",
        "dbname=nowhere",
        ("p",),
        subenabled=False,
        subcreate=SubCreate.READY,
        subuuid=str(UUID(int=1)),
    )
    for stored in (
        row,
        replace(
            row,
            subname="with_slot",
            subslotname="x",
            subuuid=str(UUID(int=2)),
            subpublications=("p", "r"),
        ),
        replace(
            row,
            subname="enabled",
            subslotname="y",
            subenabled=True,
            subuuid=str(UUID(int=3)),
            subpublications=("p", "r"),
        ),
    ):
        world.store.insert_subscription(stored)
    origin = origin_name(must_have("s", world.context).oid)
    world.store.origin_create(origin)
    world.store.origin_advance(origin, LSN.parse("0/1F4"), "x")
    return world


def session(world: Around, said: list[str], file: str | None = None) -> Session:
    """A session on the twins; ``said`` takes the tags and the NOTICEs."""

    @contextmanager
    def context(make: bool) -> Iterator[CommandContext]:
        yield world.context

    return Session(
        open_command_context=context,
        done=said.append,
        notify=lambda notice: said.append(f"{notice.severity}: {notice.primary}"),
        file=file,
    )


@contextmanager
def twin() -> Iterator[AlterTwin]:
    """What ALTER asks for is kept, and not carried out."""
    asked = AlterTwin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_sql, "alter", asked)
        yield asked


def run(world: Around, text: str) -> tuple[list[str], AlterTwin]:
    said: list[str] = []
    with twin() as asked:
        session(world, said).run(text)
    return said, asked


def refused(world: Around, text: str) -> ReplicationError:
    with pytest.raises(ReplicationError) as caught:
        run(world, text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "sqlstate", "said"),
    [pytest.param(*case, id=f"{code} {number}") for number, (code, *case) in enumerate(OPTIONS)],
)
def test_refused_options(world: Around, text: str, sqlstate: str, said: str) -> None:
    error = refused(prepared(world), text)
    assert (error.code, error.primary[: len(said)]) == (sqlstate, said)
    assert len(world.store.subscriptions()) == 3


@pytest.mark.parametrize(
    ("text", "sqlstate", "said"),
    [pytest.param(*case, id=f"{code} {number}") for number, (code, *case) in enumerate(STATE)],
)
def test_refused_by_the_command(world: Around, text: str, sqlstate: str, said: str) -> None:
    before = prepared(world).store.subscriptions()
    with pytest.raises(ReplicationError) as caught:
        session(world, []).run(text)
    assert (caught.value.code, caught.value.primary) == (sqlstate, said)
    assert world.store.subscriptions() == before


@pytest.mark.parametrize("text", [text for text in GOOD if text.startswith("ALTER")])
def test_good_statements_are_carried_out_by_the_commands(world: Around, text: str) -> None:
    before = prepared(world).store.subscriptions()
    said: list[str] = []
    session(world, said).run(text)
    assert said[-1] == "ALTER SUBSCRIPTION"
    unchanged = ("DISABLE", "OWNER", "none")
    assert (world.store.subscriptions() == before) is any(word in text for word in unchanged)


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [(text, sqlstate) for _, text, sqlstate, _ in OPTIONS if text.startswith("ALTER")],
)
def test_refused_options_of_the_command_line(world: Around, text: str, sqlstate: str) -> None:
    _, _, name, *words = text.split(" ")
    assert refused(prepared(world), altering(name.strip('"'), words)).code == sqlstate


@pytest.mark.parametrize(("code", "text", "said"), IN_A_BLOCK)
def test_refused_in_a_transaction_block(world: Around, code: str, text: str, said: str) -> None:
    error = refused(prepared(world), f"START TRANSACTION; {text}")
    assert (error.code, error.primary) == ("25001", said)


@pytest.mark.parametrize(
    "words",
    [
        "DISABLE",
        "CONNECTION ''",
        "SET (binary = off)",
        "SET PUBLICATION q WITH (refresh = false)",
        "SKIP (lsn = NONE)",
        "RENAME TO t",
        "OWNER TO me",
    ],
)
def test_nothing_can_be_rolled_back(world: Around, words: str) -> None:
    error = refused(prepared(world), f"BEGIN; ALTER SUBSCRIPTION s {words}")
    assert error.report() == (
        "ERROR:  25001: ALTER SUBSCRIPTION cannot run inside a transaction block\n"
        "HINT:  Leave BEGIN and COMMIT out."
    )
    assert run(world, f"BEGIN; COMMIT; ALTER SUBSCRIPTION s {words}")[1].asked


@pytest.mark.parametrize("text", GOOD)
def test_good_statements_are_carried_out(world: Around, text: str) -> None:
    said, _ = run(prepared(world), text)
    assert said[-1].split()[0].lower() == text.split()[0].lower()


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("CONNECTION 'host=x password=y'", ("connection", "s", "host=x password=y")),
        ("SET PUBLICATION a, B", ("publications", "s", "set", ("a", "b"), True, True)),
        (
            "ADD PUBLICATION a WITH (copy_data = off)",
            ("publications", "s", "add", ("a",), True, False),
        ),
        (
            "DROP PUBLICATION a WITH (refresh = false)",
            ("publications", "s", "drop", ("a",), False, True),
        ),
        ("REFRESH PUBLICATION", ("refresh", "s", True)),
        ("REFRESH PUBLICATION WITH (copy_data = false)", ("refresh", "s", False)),
        ("ENABLE", ("enabled", "s", True)),
        ("DISABLE", ("enabled", "s", False)),
        (
            "SET (slot_name = NONE, streaming, origin = 'None', synchronous_commit = yes)",
            (
                "options",
                "s",
                {
                    "slot_name": None,
                    "streaming": Stream.ON,
                    "origin": "none",
                    "synchronous_commit": "on",
                },
            ),
        ),
        ("SET (failover, two_phase = 0)", ("options", "s", {"failover": True, "two_phase": False})),
        ("SKIP (lsn = '1/2')", ("skip", "s", LSN.parse("1/2"))),
        ("SKIP (lsn = NONE)", ("skip", "s", None)),
        ("RENAME TO Other", ("rename", "s", "other")),
        ('OWNER TO "Me"', ("owner", "s", "Me")),
        ("OWNER TO CURRENT_ROLE", ("owner", "s", None)),
    ],
)
def test_alter_asks_for(world: Around, words: str, asked: tuple[Any, ...]) -> None:
    said, twin = run(prepared(world), f"ALTER SUBSCRIPTION s {words}")
    assert (said, twin.asked) == (["ALTER SUBSCRIPTION"], [asked])


def test_create_and_drop(world: Around) -> None:
    text = (
        "CREATE SUBSCRIPTION mysub CONNECTION 'host=db dbname=shop password=hidden'\n"
        "  PUBLICATION pub WITH (copy_data = false, streaming = off, run_as_owner);"
    )
    said, _ = run(world, text)
    sub = must_have("mysub", world.context)
    assert said == ["CREATE SUBSCRIPTION"]
    assert (sub.subslotname, sub.substream, sub.subrunasowner) == ("mysub", Stream.OFF, True)
    assert (sub.subconninfo, sub.tables) == ("host=db dbname=shop", {})
    assert sub.passfile is not None
    assert list(world.publisher.slots) == ["mysub"]
    assert [rel.srsubstate for rel in world.store.rels(sub.oid)] == ["r"]
    world.lake.tables.clear()
    said, _ = run(world, "DROP SUBSCRIPTION mysub; DROP SUBSCRIPTION IF EXISTS mysub")
    assert said == [
        "DROP SUBSCRIPTION",
        'NOTICE: subscription "mysub" does not exist, skipping',
        "DROP SUBSCRIPTION",
    ]
    nothing_is_left(world)


def test_files_of_a_connection_are_found_from_anywhere(
    world: Around, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(world, f"{OFFLINE})".replace("dbname=nowhere", "sslcert=c.pem"))
    assert must_have("t", world.context).subconninfo == f"sslcert={tmp_path}/c.pem"


def test_the_first_error_ends_it_and_what_ran_stays(world: Around) -> None:
    said: list[str] = []
    text = "ALTER SUBSCRIPTION s ENABLE;\n\nALTER SUBSCRIPTION s\n RENAME TO t;; DROP\n garbage;"
    text += " ALTER SUBSCRIPTION s DISABLE"
    with twin() as asked, pytest.raises(ReplicationError) as caught:
        session(prepared(world), said, "a.sql").run(text)
    assert [call[0] for call in asked.asked] == ["enabled", "rename"]
    assert said == ["ALTER SUBSCRIPTION"] * 2
    assert caught.value.report().splitlines() == [
        'pgsub:a.sql:5: ERROR:  42601: syntax error at or near "garbage"',
        "LINE 2:  garbage;",
        "         ^",
    ]


def test_an_error_of_a_command_names_its_line_too(world: Around) -> None:
    world.publisher.fail["connect"] = ConnectionFailure("gone")
    with pytest.raises(ConnectionFailure) as caught:
        session(prepared(world), [], "<stdin>").run("\nDROP SUBSCRIPTION\nenabled;\n")
    assert caught.value.report().startswith("pgsub:<stdin>:3: ERROR:  08006: could not connect")


def test_blocks_with_nothing_in_them(world: Around) -> None:
    said, _ = run(world, "BEGIN; START TRANSACTION; COMMIT WORK; END; ROLLBACK; BEGIN; ABORT")
    already = "WARNING: there is already a transaction in progress"
    none = "WARNING: there is no transaction in progress"
    assert said == [
        *("BEGIN", already, "BEGIN", "COMMIT", none, "COMMIT", none, "ROLLBACK"),
        *("BEGIN", "ROLLBACK"),
    ]


def test_nothing_is_opened_for_text_without_a_statement(world: Around) -> None:
    def opened(make: bool) -> Any:
        raise AssertionError

    for text in ("", " ;; -- nothing\n/* at all */ ;", "BEGIN; COMMIT"):
        Session(open_command_context=opened, done=lambda tag: None, notify=lambda notice: None).run(
            text
        )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ENABLE"], 'ALTER SUBSCRIPTION "My""s" ENABLE'),
        (["set", "(binary", "=", "off)"], 'ALTER SUBSCRIPTION "My""s" set (binary = off)'),
        (
            ["connection", "host=x password=it's"],
            "ALTER SUBSCRIPTION \"My\"\"s\" connection 'host=x password=it''s'",
        ),
        (["CONNECTION", "'host=x'"], 'ALTER SUBSCRIPTION "My""s" CONNECTION \'host=x\''),
    ],
)
def test_words_of_the_command_line_as_sql(words: list[str], text: str) -> None:
    assert altering('My"s', words) == text
