import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.errcodes import ReplicationError
from catalog.namespace import escape_identifier, quote_literal
from config.statements import (
    AlterConnection,
    AlterEnabled,
    AlterOptions,
    AlterOwner,
    AlterPublications,
    AlterRefresh,
    AlterRename,
    AlterSkip,
    CreateSubscription,
    DefElem,
    DropSubscription,
    Options,
    Statement,
    Transaction,
)
from subscriber.sql.parser import parse, sources
from tests.subscriber.statements import SYNTAX


def parsed(text: str) -> list[Statement]:
    return [parse(source, lambda said: None) for source in sources(text)]


def refused(text: str) -> ReplicationError:
    with pytest.raises(ReplicationError) as caught:
        parsed(text)
    return caught.value


@pytest.mark.parametrize(("text", "said"), SYNTAX)
def test_syntax_errors(text: str, said: str) -> None:
    error = refused(text)
    assert (error.code, error.primary) == ("42601", said)
    assert error.cursorpos is not None
    assert error.excerpt is not None


@pytest.mark.parametrize(
    ("text", "sqlstate", "said", "place"),
    [
        ("SELECT 1", "0A000", "only CREATE, ALTER and DROP SUBSCRIPTION can be executed", 0),
        ("DROP TABLE t", "0A000", "only CREATE, ALTER and DROP SUBSCRIPTION can be executed", 0),
        ("\\d t", "0A000", "psql command \\d is not supported", 0),
        ("ALTER SUBSCRIPTION s ENABLE \\g", "0A000", "psql command \\g is not supported", 28),
        ('DROP SUBSCRIPTION U&"s"', "0A000", "Unicode escapes (U&) are not supported", 18),
        ("ALTER SUBSCRIPTION s CONNECTION E'\\u12'", "22025", "invalid Unicode escape", 32),
        (
            "ALTER SUBSCRIPTION s CONNECTION E'\\xff'",
            "22021",
            'invalid byte sequence for encoding "UTF8"',
            32,
        ),
    ],
)
def test_what_only_psql_and_a_server_take(text: str, sqlstate: str, said: str, place: int) -> None:
    error = refused(text)
    assert (error.code, error.primary, error.cursorpos) == (sqlstate, said, place)


def test_names_are_folded_and_cut_with_a_notice() -> None:
    said: list[str] = []
    long = "É" * 40
    (source,) = sources(f'ALTER SUBSCRIPTION {long}A RENAME TO "{long}"')
    found = parse(source, said.append)
    assert found == AlterRename("É" * 31, "É" * 31)
    assert said == [
        f'identifier "{long}a" will be truncated to "{"É" * 31}"',
        f'identifier "{long}" will be truncated to "{"É" * 31}"',
    ]
    assert parsed('DROP SUBSCRIPTION "Ab"; DROP SUBSCRIPTION AbÉ') == [
        DropSubscription("Ab"),
        DropSubscription("abÉ"),
    ]


def test_statements_are_cut_at_semicolons() -> None:
    text = '\n ;ALTER SUBSCRIPTION s -- ;\n ENABLE /* ; */;\n\nDROP SUBSCRIPTION ";"; BEGIN'
    found = sources(text)
    assert [(source.start, source.last_line) for source in found] == [(3, 3), (47, 5), (70, 5)]
    assert found[1].text == 'DROP SUBSCRIPTION ";";'
    assert parsed(text) == [AlterEnabled("s", True), DropSubscription(";"), Transaction("BEGIN")]


SECRETS = [
    "CREATE SUBSCRIPTION s CONNECTION 'host=x password=hidden' FOO",
    "CREATE SUBSCRIPTION s CONNECTION 'host=x password=hidden",
    "CREATE SUBSCRIPTION s CONNECTION 'password=it's hidden' PUBLICATION p",
    "CREATE SUBSCRIPTION s CONNECTION 'password=a' hidden PUBLICATION p",
    'CREATE SUBSCRIPTION s CONNECTION "password=hidden" PUBLICATION p',
    "CREATE SUBSCRIPTION s CONNECTION 'pasword=hidden' PUBLICATION p, WITH",
    "CREATE SUBSCRIPTION s CONECTION 'password = hidden' PUBLICATION p",
    "CREATE SUBSCRIPTION s CONNECTION password=hidden PUBLICATION p",
    "CREATE SUBSCRIPTION s CONNECTION password = 'a hidden' PUBLICATION p",
    "CREATE SUBSCRIPTION s CONNECTION postgresql://me:hidden@host/db PUBLICATION p",
    "CREATE SUBSCRIPTION s CONNECTION 'postgresql://me:hidden@host/db' PUBLICATION",
    "CREATE SUBSCRIPTION s CONNECTION $$password=hidden$$ PUBLICATION p WITH (a",
    "CREATE SUBSCRIPTION s CONNECTION $$password=hidden$ PUBLICATION p WITH (a",
    "CREATE SUBSCRIPTION s CONNECTION E'password=hidden\\u12' PUBLICATION p",
    "CREATE SUBSCRIPTION 1s CONNECTION 'password=''it is hidden''' PUBLICATION p",
    "ALTER SUBSCRIPTION s CONNECTION 'dbname=x'\n 'password=hidden'\n 'x' y",
]


@pytest.mark.parametrize("text", SECRETS)
def test_no_error_shows_a_password(text: str) -> None:
    report = refused(text).report()
    assert "hidden" not in report
    assert "LINE " in report
    caret = report.splitlines()[2]
    assert caret.strip() == "^"


# Statements as text and back

name = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=15
)
names = st.lists(name, min_size=1, max_size=3).map(tuple)
text_value = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
value = st.none() | st.integers(-(2**31) + 1, 2**31 - 1) | text_value
options = st.lists(st.builds(DefElem, name, value), min_size=1, max_size=4).map(tuple)
maybe = st.just(()) | options
statements = st.one_of(
    st.builds(CreateSubscription, name, text_value, names, maybe),
    st.builds(AlterConnection, name, text_value),
    st.builds(AlterPublications, name, st.sampled_from(("set", "add", "drop")), names, maybe),
    st.builds(AlterRefresh, name, maybe),
    st.builds(AlterEnabled, name, st.booleans()),
    st.builds(AlterOptions, name, options),
    st.builds(AlterSkip, name, options),
    st.builds(AlterRename, name, name),
    st.builds(AlterOwner, name, st.none() | name),
    st.builds(DropSubscription, name, st.booleans(), st.sampled_from(("cascade", "restrict"))),
)
spaces = st.lists(
    st.sampled_from([" ", "\n", "\t", " -- ; '\n", " /* ; /* ' */ \" */ ", "\r\n"]), min_size=1
).map("".join)


def words(statement: Any) -> list[str]:
    """A statement as its tokens."""
    ident = escape_identifier
    head = ["ALTER", "SUBSCRIPTION", ident(statement.name)]
    match statement:
        case CreateSubscription():
            return [
                *("CREATE", "SUBSCRIPTION", ident(statement.name)),
                *("CONNECTION", quote_literal(statement.conninfo), "PUBLICATION"),
                *listed(statement.publications),
                *with_(statement.options),
            ]
        case AlterConnection():
            return [*head, "CONNECTION", quote_literal(statement.conninfo)]
        case AlterPublications():
            action = [statement.action, "PUBLICATION", *listed(statement.publications)]
            return [*head, *action, *with_(statement.options)]
        case AlterRefresh():
            return [*head, "REFRESH", "PUBLICATION", *with_(statement.options)]
        case AlterEnabled():
            return [*head, "ENABLE" if statement.enabled else "disable"]
        case AlterOptions():
            return [*head, "Set", *definition(statement.options)]
        case AlterSkip():
            return [*head, "SKIP", *definition(statement.options)]
        case AlterRename():
            return [*head, "RENAME", "TO", ident(statement.new)]
        case AlterOwner():
            role = "SESSION_USER" if statement.role is None else ident(statement.role)
            return [*head, "OWNER", "TO", role]
    exists = ["IF", "EXISTS"] if statement.if_exists else []
    return ["DROP", "SUBSCRIPTION", *exists, ident(statement.name), statement.behavior]


def listed(names: tuple[str, ...]) -> list[str]:
    return [word for name in names for word in (escape_identifier(name), ",")][:-1]


def with_(options: Options) -> list[str]:
    return ["WITH", *definition(options)] if options else []


def definition(options: Options) -> list[str]:
    found = []
    for option in options:
        found += [",", escape_identifier(option.name)]
        if isinstance(option.value, int):
            found += ["=", *(["-"] if option.value < 0 else []), str(abs(option.value))]
        elif option.value is not None:
            found += ["=", quote_literal(option.value)]
    return ["(", *found[1:], ")"]


@given(st.lists(st.tuples(statements, spaces), min_size=1, max_size=3))
@example([(AlterSkip("s", (DefElem("lsn", "\\'"),)), " ")])
def test_a_statement_comes_back_from_its_text(written: list[tuple[Statement, str]]) -> None:
    text = "".join(f"{blank.join(words(stmt))}{blank};" for stmt, blank in written)
    assert parsed(text) == [stmt for stmt, _ in written]


@given(st.text("cCrReEaAtTlLsS;'\"$\\()=,-/* \n\0\u00e9\u65e5{#}1.x&uU:") | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    error = mistake(text)
    assert error is None or re.fullmatch("42601|0A000|22021|22025", error.code)
    assert error is None or error.excerpt


@given(st.sampled_from([text for text, _ in SYNTAX]), st.integers(0, 200), st.text(max_size=3))
def test_any_mutation_is_read_or_refused(text: str, at: int, instead: str) -> None:
    error = mistake(text[:at] + instead + text[at + 1 :])
    assert error is None or error.excerpt


def mistake(text: str) -> ReplicationError | None:
    try:
        parsed(text)
    except ReplicationError as error:
        return error
    return None
