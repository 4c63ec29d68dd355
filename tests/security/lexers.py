"""Spark's and PostgreSQL's lexical rules, written from their grammars and not from our code.

``tokens`` cuts a statement into (kind, text) with quotes undone: ``word`` (a keyword, a number, an
operator, a name without quotes), ``identifier`` (a quoted one) and ``literal``. A comment, or a
quote that never ends, is an error: nothing we send has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from hypothesis import strategies as st

from catalog.keywords import COL_NAME, RESERVED, TYPE_FUNC_NAME

Token = tuple[str, str]
Rule = tuple[str, re.Pattern[str], Callable[[str], str]]

KEYWORDS: Final = RESERVED | TYPE_FUNC_NAME | COL_NAME
"""PostgreSQL's, but for those that are free to use as names; ``test_sql_text`` asks a server."""

_SPARK_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def _spark_string(text: str) -> str:
    """``SparkParserUtils.unescapeSQLString`` and, for two quotes in a row, the lexer."""

    def one(match: re.Match[str]) -> str:
        found = match[0]
        if found == "''":
            return "'"
        if found[1] in "%_":
            return found  # kept for LIKE
        if len(found) == 2:
            return _SPARK_ESCAPES.get(found[1], found[1])
        return chr(int(found[2:], 16)) if found[1] in "uU" else chr(int(found[1:], 8))

    escapes = r"\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\[0-1][0-7]{2}|\\.|''"
    return re.sub(escapes, one, text[1:-1], flags=re.S)


def _postgres_escaped(text: str) -> str:
    body = re.sub(r"''|\\(.)", lambda match: match[1] or "'", text[2:-1], flags=re.S)
    return body.replace("\0", "")


_COMMENT: Final[Rule] = ("comment", re.compile(r"--|/\*"), str)
_WORD: Final[Rule] = ("word", re.compile(r"[A-Za-z0-9_]+|[^\sA-Za-z0-9_'\"`]"), str)

SPARK: Final[tuple[Rule, ...]] = (
    _COMMENT,
    ("identifier", re.compile(r"`(?:[^`]|``)*`"), lambda t: t[1:-1].replace("``", "`")),
    ("literal", re.compile(r"'(?:[^'\\]|\\.|'')*'", re.S), _spark_string),
    _WORD,
)
POSTGRES: Final[tuple[Rule, ...]] = (
    _COMMENT,
    ("identifier", re.compile(r'"(?:[^"]|"")*"'), lambda t: t[1:-1].replace('""', '"')),
    ("literal", re.compile(r"E'(?:[^'\\]|\\.|'')*'", re.S), _postgres_escaped),
    # A backslash here would mean one thing or another by standard_conforming_strings.
    ("literal", re.compile(r"'(?:[^'\\]|'')*'"), lambda t: t[1:-1].replace("''", "'")),
    _WORD,
)
REPLICATION: Final[tuple[Rule, ...]] = (
    ("identifier", re.compile(r'"(?:[^"]|"")*"'), lambda t: t[1:-1].replace('""', '"')),
    ("literal", re.compile(r"'(?:[^']|'')*'"), lambda t: t[1:-1].replace("''", "'")),
    _WORD,
)
"""A walsender's own commands (repl_scanner.l): no comments, no backslashes."""


def tokens(sql: str, rules: tuple[Rule, ...]) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(sql):
        if sql[at].isspace():
            at += 1
            continue
        for kind, pattern, undone in rules:
            match = pattern.match(sql, at)
            if match is not None:
                assert kind != "comment", f"a comment at {at} of {sql!r}"
                found.append((kind, undone(match[0])))
                at = match.end()
                break
        else:
            raise AssertionError(f"a quote without an end at {at} of {sql!r}")
    return found


def renamed(plain: list[Token], names: Mapping[str, str], rules: tuple[Rule, ...]) -> list[Token]:
    """The tokens of a statement about ``names``' keys, as one about their values has them.

    A literal that lists quoted names (a procedure's table, a slot's publications) is looked into.
    """

    def again(text: str) -> list[Token]:
        return renamed(tokens(text, rules), names, rules)

    made: list[Token] = []
    for kind, text in plain:
        quoted = kind == "literal" and text[:1] in ('"', "`")
        made += again(text) if quoted else [(kind, names.get(text, text))]
    return made


def looked_into(found: list[Token], plain: list[Token], rules: tuple[Rule, ...]) -> list[Token]:
    """The tokens, those literals taken apart that are lists of names in ``plain``."""
    made: list[Token] = []
    for (kind, text), (_, shown) in zip(found, plain, strict=True):
        quoted = kind == "literal" and shown[:1] in ('"', "`")
        made += tokens(text, rules) if quoted else [(kind, text)]
    return made


def same_but_for_names(
    made: Callable[[list[str]], str], names: list[str], rules: tuple[Rule, ...]
) -> None:
    """``made`` with these names is the statement that it is with harmless ones.

    The harmless ones need quotes; of the names some do not.
    """
    harmless = [f"N{number}" for number in range(len(names))]
    plain = tokens(made(harmless), rules)
    found = tokens(made(names), rules)
    assert len(found) == len(plain), made(names)
    wanted = renamed(plain, dict(zip(harmless, names, strict=True)), rules)
    shown = looked_into(found, plain, rules)
    assert len(shown) == len(wanted), made(names)
    pairs = zip(shown, wanted, strict=True)
    assert [want if is_bare(token, want) else token for token, want in pairs] == wanted, made(names)


def is_bare(token: Token, wanted: Token) -> bool:
    """Is the identifier that is wanted written without quotes, and means the same?"""
    kind, text = token
    plain = re.fullmatch("[a-z_][a-z0-9_]*", text) is not None and text not in KEYWORDS
    return (kind, wanted) == ("word", ("identifier", text)) and plain


PIECES: Final = (
    "'", '"', "`", "``", "''", "\\", "\\'", "--", "/*", "*/", ";", "; DROP TABLE x; --", "$$", "$1",
    "${env:PATH}", "{s}", "{}", "%s", "%", ":schema", "?", ".", "..", "\n", "\r", "\t", "\x1b[2J",
    "\u2028", "\u00a0", "ünï", "🙂", "\u202e", "E'", "U&\"", "select", " ", "a", "[b]", "\\u0027",
    "\\047", "\\N", "\\.", "#", "@{",
)  # fmt: skip


def hostile(max_size: int = 63) -> st.SearchStrategy[str]:
    """Names as a server may have them: anything but NUL, and no more bytes than fit."""
    letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    parts = st.lists(st.one_of(st.sampled_from(PIECES), letters), min_size=1, max_size=12)
    return parts.map("".join).filter(lambda name: 0 < len(name.encode()) <= max_size)
