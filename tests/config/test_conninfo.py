from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from catalog.errcodes import FeatureNotSupported, SyntaxErrorOrAccess
from config.conninfo import passfile_line, split_password

GOOD = [
    "",
    "host=db port = 5432 dbname='my db' user=u password=secret",
    r"host=db password='it\'s \\ me' user=u",
    r"password=a\ b host=h",
    "  password=secret  ",
    "dbname='' user=u",
    "postgresql://",
    "postgresql://db",
    "postgres://u:secret@db:5433/shop?connect_timeout=5&sslmode=require",
    "postgresql://u@[::1]:5432/shop",
    "postgresql://u:p%40s%2Fs%3A@db/shop",
    "postgresql:///shop?host=/tmp&password=secret",
    "postgresql://a:1,b:2,c/shop?target_session_attrs=any",
    "postgresql://%2Fvar%2Frun/shop",
    "postgresql://db/a@b",
    "postgresql://db?ssl=true",
]


@pytest.mark.parametrize("conninfo", GOOD)
def test_as_libpq_reads_it(conninfo: str) -> None:
    theirs = {key: str(value) for key, value in conninfo_to_dict(conninfo).items()}
    password = theirs.pop("password", None)
    ours = split_password(conninfo)
    assert conninfo_to_dict(ours.text) == theirs
    assert ours.password == password
    assert "secret" not in ours.text


@pytest.mark.parametrize(
    "conninfo",
    [
        "host",
        "host db",
        "host='db",
        "nosuch=1",
        "postgresql://db?x",
        "postgresql://db?nosuch=1",
        "postgresql://[::1",
        "postgresql://[::1]x",
        "postgresql://u:pa/ss@db/shop",
        "postgresql://u:p@ss@db/shop",
        "postgresql://db/%ff",
        "postgresql://db/%00",
        "user=u password=top secret",
        "=x",
    ],
)
def test_refused(conninfo: str) -> None:
    with pytest.raises(SyntaxErrorOrAccess, match="invalid connection string syntax") as caught:
        split_password(conninfo)
    assert caught.value.code == "42601"
    assert "secret" not in caught.value.report()
    assert "pa/ss" not in caught.value.report()


def test_other_secrets_have_no_place() -> None:
    with pytest.raises(FeatureNotSupported) as caught:
        split_password("host=db sslpassword=secret")
    assert "secret" not in caught.value.report()


@given(
    st.dictionaries(
        st.sampled_from(["host", "dbname", "user", "password", "options"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    )
)
def test_any_value_survives(parts: dict[str, str]) -> None:
    ours = split_password(make_conninfo("", **parts))
    password = parts.pop("password", None)
    assert conninfo_to_dict(ours.text) == parts
    assert ours.password == password


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SyntaxErrorOrAccess, FeatureNotSupported):
        split_password(text)


def test_repr_hides_the_password() -> None:
    assert "secret" not in repr(split_password("host=db password=secret"))


def test_passfile_line() -> None:
    assert passfile_line("a:b\\c") == "*:*:*:*:a\\:b\\\\c\n"
    for broken in ("a\nb", "a\0b", "a\r"):
        with pytest.raises(SyntaxErrorOrAccess, match="line break"):
            passfile_line(broken)
    with pytest.raises(SyntaxErrorOrAccess, match="UTF-8"):
        passfile_line(b"caf\xe9".decode(errors="surrogateescape"))


def test_files_are_found_from_wherever_a_process_runs() -> None:
    given = "sslrootcert=ca/root.pem sslcert='/etc/my cert' sslkey=engine:key passfile='' host=h"
    made = conninfo_to_dict(split_password(given, Path("/etc/pgsub")).text)
    assert made == {
        "sslrootcert": "/etc/pgsub/ca/root.pem",
        "sslcert": "/etc/my cert",
        "sslkey": "engine:key",
        "passfile": "",
        "host": "h",
    }
    assert split_password("sslrootcert=system", Path("/etc")).text == "sslrootcert=system"
    assert split_password("sslrootcert=r", Path("here")).text == f"sslrootcert={Path.cwd()}/here/r"
    assert split_password("sslrootcert=r").text == "sslrootcert=r"
