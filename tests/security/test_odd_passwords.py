"""Odd passwords through every way to say one, against a server that asks for passwords.

github.com/risingwavelabs/risingwave/issues/21932, github.com/xataio/pgstream/pull/543: one path
wrote the connection string in another way than the other, and only one of them came in.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import make_conninfo

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.namespace import quote_literal
from catalog.pg_subscription import Subscription
from config.conninfo import passfile_line, split_password
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.launcher.passfile import write_passfile
from workers.publisher.connect import connect_publisher

pytestmark = pytest.mark.postgres

PASSWORDS = {
    "quotes": "it's \"quoted\" ''twice''",
    "spaces": "  a b\tc  ",
    "backslashes": "\\a\\\\b\\'c\\",
    "unicode": "pä\u00df\u20ac\U0001f511wörd",
    "percent": "100%25%%s%I%00",
    "equals": "password=x host=elsewhere",
    "uri": "a:b@c/d?e#f&g=[h]",
    "shell": "$HOME `id` $(id); x | y & z > /dev/null * ~ !",
    "file": ":*:*:\\:#",
    "json": '{"a": [1, null]}, - !!x: |',
    "reported": "%I\\G:x{y'\"@/#é ",
}


@dataclass(frozen=True, slots=True)
class Said:
    """A server, and a role with an odd password."""

    server: EmbeddedPublisher
    role: str
    password: str
    folder: Path

    def parts(self, **more: str) -> dict[str, str]:
        where = {"host": "127.0.0.1", "port": str(self.server.port), "dbname": "postgres"}
        return {**where, "user": self.role, **more}

    def subscription(self, conninfo: str, **columns: object) -> Subscription:
        """A subscription as CREATE stores it: the password is in a file of the data directory."""
        found = split_password(conninfo)
        sub = Subscription("mysub", found.text, ("pub",))
        if found.password is not None:
            assert found.password == self.password
            columns = {"passfile": write_passfile(self.folder, "uuid", found.password), **columns}
        return replace(sub, **columns)  # type: ignore[arg-type]  # any column


def in_keywords(said: Said) -> Subscription:
    return said.subscription(make_conninfo("", **said.parts(password=said.password)))


def in_quoted_keywords(said: Said) -> Subscription:
    """As a person writes it: quotes and backslashes with a backslash before."""
    quoted = said.password.replace("\\", "\\\\").replace("'", "\\'")
    words = " ".join(f"{key} = {value}" for key, value in said.parts().items())
    return said.subscription(f"{words} password = '{quoted}'")


def in_a_uri(said: Said) -> Subscription:
    where = f"{said.role}:{quote(said.password, safe='')}@127.0.0.1:{said.server.port}"
    return said.subscription(f"postgresql://{where}/postgres")


def in_a_uri_s_parameters(said: Said) -> Subscription:
    where = f"{said.role}@127.0.0.1:{said.server.port}"
    password = quote(said.password, safe="")
    return said.subscription(f"postgres://{where}/postgres?password={password}")


def in_the_user_s_password_file(said: Said) -> Subscription:
    file = said.folder / "a user's pgpass"
    file.write_text(passfile_line(said.password))
    file.chmod(0o600)
    return said.subscription(make_conninfo("", **said.parts(passfile=str(file))))


def in_the_environment(said: Said) -> Subscription:
    return said.subscription(make_conninfo("", **said.parts()), password_env="ODD_PASSWORD")


def by_a_command(said: Said) -> Subscription:
    command = f"printf %s {shlex.quote(said.password)}"
    return said.subscription(make_conninfo("", **said.parts()), password_command=command)


WAYS: tuple[Callable[[Said], Subscription], ...] = (
    in_keywords,
    in_quoted_keywords,
    in_a_uri,
    in_a_uri_s_parameters,
    in_the_user_s_password_file,
    in_the_environment,
    by_a_command,
)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPublisher]:
    with EmbeddedPublisher(18, password=PASSWORDS["reported"]) as server:
        with server.connect() as connection:
            for name, password in PASSWORDS.items():
                role = f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD {quote_literal(password)}"
                connection.execute(role.encode())
        yield server


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", PASSWORDS)
def test_a_walsender_and_a_session_are_let_in(
    server: EmbeddedPublisher,
    name: str,
    way: Callable[[Said], Subscription],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = Said(server, name, PASSWORDS[name], tmp_path)
    monkeypatch.setenv("ODD_PASSWORD", said.password)
    sub = way(said)
    assert said.password not in sub.subconninfo
    for replication in (True, False):
        with closing(connect_publisher(sub, "odd", lambda: False, replication=replication)) as conn:
            assert conn.exec("SELECT current_user") == [(name,)]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_another_password_is_refused_and_not_shown(
    server: EmbeddedPublisher, way: Callable[[Said], Subscription], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """So it is the password that let the others in."""
    wrong = PASSWORDS["reported"] + "."
    monkeypatch.setenv("ODD_PASSWORD", wrong)
    sub = way(Said(server, "reported", wrong, tmp_path))
    with pytest.raises(ConnectionFailure, match="could not connect") as refused:
        connect_publisher(sub, "odd", lambda: False)
    assert "password authentication failed" in refused.value.report()
    assert wrong not in refused.value.report()


@pytest.mark.parametrize("password", ["two\nlines", "zero\0byte", "return\r"])
def test_what_no_password_file_can_hold_is_refused_unshown(tmp_path: Path, password: str) -> None:
    with pytest.raises(ReplicationError, match="must not contain a line break") as refused:
        write_passfile(tmp_path, "uuid", password)
    assert password not in refused.value.report()
