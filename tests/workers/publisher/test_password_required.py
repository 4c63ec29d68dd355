"""Whose connection must have a password; what it is asked before and after connecting."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from catalog.errcodes import InsufficientPrivilege, ProhibitedSqlStatementAttempted, policy
from catalog.pg_subscription import Subscription
from config.guc import Settings
from workers.publisher.connect import full_conninfo, parse_conninfo
from workers.publisher.password_required import (
    check_connected,
    check_conninfo,
    check_privilege,
    must_use_password,
)

SUPERUSER = Settings()
NO_SUPERUSER = Settings.model_validate({"is_superuser": "off"})
REQUIRED = Subscription("s", "host=db", ("p",))
FREE = replace(REQUIRED, subpasswordrequired=False)


@dataclass(slots=True)
class Libpq:
    used_password: bool


@dataclass(slots=True)
class Connection:
    pgconn: Libpq
    closed: list[None] = field(default_factory=list)

    def close(self) -> None:
        self.closed.append(None)


@pytest.mark.parametrize(
    ("sub", "settings", "asked"),
    [
        (REQUIRED, SUPERUSER, False),
        (FREE, SUPERUSER, False),
        (REQUIRED, NO_SUPERUSER, True),
        (FREE, NO_SUPERUSER, False),
    ],
)
def test_only_of_who_is_no_superuser(sub: Subscription, settings: Settings, asked: bool) -> None:
    assert must_use_password(sub, settings) is asked
    let_in = Connection(Libpq(used_password=False))
    if asked:
        with pytest.raises(ProhibitedSqlStatementAttempted, match="password is required"):
            check_conninfo(sub, settings)
        with pytest.raises(ProhibitedSqlStatementAttempted) as refused:
            check_connected(let_in, sub, settings)
        assert refused.value.code == "2F003"
        assert policy("2F003").value == "stop"
    else:
        check_conninfo(sub, settings)
        check_connected(let_in, sub, settings)
    assert bool(let_in.closed) is asked


def test_which_passwords_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """H-43: neither the environment's nor the password file's of the user."""
    monkeypatch.setenv("PGPASSWORD", "everybody's")
    monkeypatch.setenv("SHOP_PASSWORD", "its own")
    for own in (
        replace(REQUIRED, passfile="/data/passfile/u"),
        replace(REQUIRED, password_env="SHOP_PASSWORD"),
        replace(REQUIRED, password_command="print"),
    ):
        check_conninfo(own, NO_SUPERUSER)
    check_connected(Connection(Libpq(used_password=True)), REQUIRED, NO_SUPERUSER)
    for other in (
        REQUIRED,
        replace(REQUIRED, password_env="NOT_SET"),
        replace(REQUIRED, subconninfo="passfile=pgpass"),
    ):
        with pytest.raises(ProhibitedSqlStatementAttempted) as refused:
            check_conninfo(other, NO_SUPERUSER)
        assert refused.value.detail == (
            "Non-superusers must provide a password in the connection string."
        )


def test_it_is_the_superuser_s_to_do_without() -> None:
    check_privilege(False, SUPERUSER)
    check_privilege(True, NO_SUPERUSER)
    with pytest.raises(InsufficientPrivilege, match="password_required=false is superuser-only"):
        check_privilege(False, NO_SUPERUSER)


def test_a_password_of_its_own_hides_that_of_the_environment() -> None:
    """H-43: libpq takes PGPASSWORD before a password file, unless a password is given; an empty
    one is given, and counts as none afterwards."""
    given = parse_conninfo(full_conninfo("host=db", "mysub", passfile="/data/passfile/u"))
    assert (given["password"], given["passfile"]) == ("", "/data/passfile/u")
    assert "password" not in parse_conninfo(full_conninfo("host=db", "mysub"))
