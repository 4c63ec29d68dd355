"""The verbs that create, alter and drop subscriptions."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from tests.shell import Ran, Shell


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
