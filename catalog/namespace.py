"""Names: quoting them for SQL and splitting ``schema.table`` as PostgreSQL does.

The counterpart of ``quote_identifier`` (ruleutils.c), ``PQescapeIdentifier`` (libpq),
``quote_literal_cstr`` (quote.c) and ``stringToQualifiedNameList`` (regproc.c). A walsender
connection takes the simple query protocol only, and all text sent over a walsender connection is
quoted here. Unlike PostgreSQL's parser, no function folds a name to lower case: names are the
publisher's, verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from catalog import keywords
from catalog.errcodes import InvalidName

NAMEDATALEN: Final = 64
"""PostgreSQL's limit; a name has at most 63 bytes."""

MESSAGES_TABLE: Final = ("pg_catalog", "pg_logical_emit_message")
"""Schema and name that the logical messages of a publisher have in place of a published table's."""

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All control characters except tab and newline, and the characters that change the direction."""


_SAFE: Final = re.compile("[a-z_][a-z0-9_]*")
_NOT_FREE: Final = keywords.RESERVED | keywords.TYPE_FUNC_NAME | keywords.COL_NAME


def quote_identifier(name: str) -> str:
    """``name`` as an identifier, in double quotes only where necessary.

    A reserved keyword needs quotes, as does a name with any character except ASCII's lower-case
    letters, digits and underscores.
    """
    if _SAFE.fullmatch(name) and name not in _NOT_FREE:
        return name
    return escape_identifier(name)


def escape_identifier(name: str) -> str:
    """``name`` as a double-quoted identifier; always quoted, so never a keyword."""
    return '"' + name.replace('"', '""') + '"'


def quote_qualified_identifier(schema: str, name: str) -> str:
    """``schema.name``, both names quoted where necessary."""
    return f"{quote_identifier(schema)}.{quote_identifier(name)}"


def quote_literal(text: str) -> str:
    """``text`` as a string literal for both values of ``standard_conforming_strings``.

    A NUL cannot be sent at all and is refused (42602).
    """
    if "\0" in text:
        raise InvalidName("a name must not contain a NUL character")
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return "E" + quoted if "\\" in text else quoted


def quote_literal_list(texts: Iterable[str]) -> str:
    """Literals separated by commas, as ``IN (…)`` and ``ARRAY[…]`` take them."""
    return ", ".join(quote_literal(text) for text in texts)


def printable(text: str) -> str:
    """``text`` for a terminal or a log. Names come from the publisher, and a control character in a
    name could move a cursor or set a title. Control characters become ``\\x1B``, as in psql."""
    return _CONTROL.sub(lambda match: _escaped(ord(match[0])), text)


def _escaped(code: int) -> str:
    return f"\\x{code:02X}" if code < 256 else f"\\u{code:04X}"


def string_to_qualified_name(text: str) -> tuple[str, str]:
    """Split ``schema.table`` into two names; 42602 for any other text.

    A name with a dot or a double quote is written in double quotes, with quotes inside doubled, as
    in ``"my.schema".orders``. Case matters with and without quotes.
    """
    names: list[str] = []
    rest = text
    while True:
        name, rest = _take_name(text, rest)
        names.append(name)
        if not rest:
            break
        rest = rest[1:]
    if len(names) != 2:
        raise _invalid(text)
    return names[0], names[1]


def qualified_name(schema: str, name: str) -> str:
    """The text that ``string_to_qualified_name`` splits into ``schema`` and ``name``."""
    return ".".join(
        escape_identifier(part) if '"' in part or "." in part else part for part in (schema, name)
    )


def _take_name(text: str, rest: str) -> tuple[str, str]:
    """The first name of ``rest`` and the remainder: empty, or a dot and more."""
    if not rest.startswith('"'):
        name, dot, tail = rest.partition(".")
        if not name or '"' in name:
            raise _invalid(text)
        return name, dot + tail
    at = 1
    name = ""
    while True:
        close = rest.find('"', at)
        if close < 0:
            raise _invalid(text)
        name += rest[at:close]
        if rest[close + 1 : close + 2] == '"':
            name += '"'
            at = close + 2
            continue
        tail = rest[close + 1 :]
        if not name or (tail and not tail.startswith(".")) or tail == ".":
            raise _invalid(text)
        return name, tail


def _invalid(text: str) -> InvalidName:
    return InvalidName(
        f'invalid table name: "{text}"',
        hint="Write schema.table; put a name that holds a dot or a quote in double quotes.",
    )
