"""Generated columns of a lake table: check their expressions and compute their values.

An expression is Spark SQL over the remaining columns of the table, and reaches Spark as the user
wrote the text. Only the names of columns may have to be replaced: in a MERGE a new value is called
``s.c0`` and an unchanged value ``t.name``. sqlglot finds the places of the names. SQL text from
sqlglot is not used, because sqlglot rewrites some functions (``date_sub(d, 3)`` becomes
``DATE_ADD(d, 3 * -1)``).

Trace: ``generated: {total: "price * amount"}``, and an UPDATE that sends the price and leaves the
amount, a value stored out of line, unchanged. The MERGE sets ``price = s.c1`` and
``total = (s.c1 * CASE WHEN s.m2 THEN t.amount ELSE s.c2 END)``.

PostgreSQL's rules for generation expressions hold. The text alone does not tell types, nor whether
a function is deterministic; Spark is asked for both before the first write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from catalog.errcodes import (
    FEATURE_NOT_SUPPORTED,
    GROUPING_ERROR,
    INVALID_OBJECT_DEFINITION,
    WINDOWING_ERROR,
    FeatureNotSupported,
    ReplicationError,
    SyntaxErrorOrAccess,
    UndefinedColumn,
)
from workers.lake.segment import Generated
from workers.lake.table import LakeIdent

_NOT_ALLOWED: Final[tuple[tuple[type[exp.Expr], str, str], ...]] = (
    (exp.Query, FEATURE_NOT_SUPPORTED, "cannot use subquery in column generation expression"),
    (
        exp.Window,
        WINDOWING_ERROR,
        "window functions are not allowed in column generation expressions",
    ),
    (
        exp.AggFunc,
        GROUPING_ERROR,
        "aggregate functions are not allowed in column generation expressions",
    ),
    (
        exp.UDTF,
        FEATURE_NOT_SUPPORTED,
        "set-returning functions are not allowed in column generation expressions",
    ),
    (
        exp.Star,
        FEATURE_NOT_SUPPORTED,
        "cannot use whole-row variable in column generation expression",
    ),
)

_WITHOUT_PARENTHESES: Final = frozenset(
    {
        *("current_catalog", "current_date", "current_schema", "current_time"),
        *("current_timestamp", "current_user", "localtime", "localtimestamp", "session_user"),
    }
)
_UNSTABLE: Final = _WITHOUT_PARENTHESES | {
    *("curdate", "current_database", "current_timezone", "now", "unix_timestamp"),
    *("input_file_block_length", "input_file_block_start", "input_file_name"),
    *("monotonically_increasing_id", "spark_partition_id", "user", "version"),
    *("rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid"),
    *("java_method", "reflect", "try_reflect"),
}
"""Functions whose result depends on more than their arguments."""


@dataclass(frozen=True, slots=True)
class Expression:
    """The expression of a generated column; ``places`` are (start, end, name of a column)."""

    column: str
    text: str
    places: tuple[tuple[int, int, str], ...]

    @property
    def uses(self) -> frozenset[str]:
        """The columns that the expression names."""
        return frozenset(name for _, _, name in self.places)

    def over(self, value_of: Callable[[str], str]) -> str:
        """The expression in parentheses, with ``value_of(name)`` in place of every column name."""
        parts, at = ["("], 0
        for start, end, name in self.places:
            parts += [self.text[at:start], value_of(name)]
            at = end
        return "".join([*parts, self.text[at:], ")"])


@cache
def read_generated(generated: Generated) -> tuple[Expression, ...]:
    """The expressions of a table, checked.

    Raises 42601 for text that is not an expression, and PostgreSQL's errors for an expression with
    forbidden parts.
    """
    expressions = tuple(_read(column, text) for column, text in generated)
    names = {column for column, _ in generated}
    for expression in expressions:
        for name in sorted(expression.uses & names):
            raise ReplicationError(
                f'cannot use generated column "{name}" in column generation expression',
                detail="A generated column cannot reference another generated column.",
                sqlstate=INVALID_OBJECT_DEFINITION,
            )
    return expressions


def check_uses(generated: Generated, known: Sequence[str], ident: LakeIdent) -> None:
    """42703 for an expression that names a column missing in the table."""
    for expression in read_generated(generated):
        for name in sorted(expression.uses - set(known)):
            raise UndefinedColumn(
                f'column "{name}" of a generation expression is not in lake table "{ident}"',
                detail=f'It is used by generated column "{expression.column}".',
                hint="Correct generated of the table in the configuration; names are as the "
                "publisher writes them.",
            )


def _read(column: str, text: str) -> Expression:
    try:
        tokens = sqlglot.tokenize(text, dialect="spark")
        trees = sqlglot.parse(text, dialect="spark")
    except SqlglotError:
        raise _syntax_error(column) from None
    [tree, *more] = trees or [None]
    if tree is None or more or any(token.comments for token in tokens):
        raise _syntax_error(column)
    for kind, sqlstate, primary in _NOT_ALLOWED:
        if tree.find(kind):
            raise ReplicationError(primary, detail=_of_column(column), sqlstate=sqlstate)
    if not isinstance(tree, exp.Condition):
        raise _syntax_error(column)
    for name in _unstable(tokens):
        raise ReplicationError(
            "generation expression is not immutable",
            detail=f"{_of_column(column)} It uses {name}.",
            hint="Values that are computed once, when a row is new, are what defaults are for.",
            sqlstate=INVALID_OBJECT_DEFINITION,
        )
    return Expression(column, text, tuple(sorted(_places(column, tree))))


def _places(column: str, tree: exp.Expr) -> Iterator[tuple[int, int, str]]:
    for node in tree.find_all(exp.Column):
        if node.args.get("table") is not None:
            raise FeatureNotSupported(
                "cannot use qualified column name in column generation expression",
                detail=_of_column(column),
                hint="Name columns of the table alone, in backquotes where a name has a dot in it.",
            )
        start, end = (node.this.meta.get(edge) for edge in ("start", "end"))
        if start is None or end is None:
            raise _syntax_error(column)  # the column does not stand literally in the text
        yield start, end + 1, node.name


def _unstable(tokens: Sequence[Token]) -> Iterator[str]:
    """Names of unstable functions in the text, called with or without parentheses."""
    followers = [token.token_type for token in tokens[1:]]
    for token, follower in zip(tokens, [*followers, None], strict=True):
        word = token.text.lower()
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        called = follower is TokenType.L_PAREN or word in _WITHOUT_PARENTHESES
        if word in _UNSTABLE and called and not quoted:
            yield word


def _syntax_error(column: str) -> SyntaxErrorOrAccess:
    return SyntaxErrorOrAccess(
        f'generation expression of column "{column}" is not an expression of Spark SQL',
        hint="One expression over columns of the table, without a comment.",
    )


def _of_column(column: str) -> str:
    return f'It is the expression of generated column "{column}".'
