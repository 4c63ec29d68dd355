"""SQL text to statements: the rules of PostgreSQL's ``gram.y`` about subscriptions.

The text is cut into statements where psql cuts. A statement is parsed only when its turn comes: the
statements before a mistake run. Errors have PostgreSQL's words and point at the token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from catalog.errcodes import FeatureNotSupported, ReplicationError, SyntaxErrorOrAccess
from catalog.keywords import COL_NAME, RESERVED, TYPE_FUNC_NAME
from config.statements import (
    AlterConnection,
    AlterEnabled,
    AlterOptions,
    AlterOwner,
    AlterPublications,
    AlterRefresh,
    AlterRename,
    AlterSkip,
    AlterSubscription,
    CreateSubscription,
    DefElem,
    DropSubscription,
    Options,
    PublicationAction,
    Statement,
    Transaction,
)
from subscriber.sql.error_position import excerpt, follows_connection, without_secrets
from subscriber.sql.tokens import Kind, Token, token_error, tokens, truncate

Notify = Callable[[str], None]
"""Receives the text of a NOTICE."""

_PUBLICATION_ACTIONS: Final[dict[str, PublicationAction]] = {
    "set": "set",
    "add": "add",
    "drop": "drop",
}
_BLOCK: Final[dict[str, Literal["BEGIN", "COMMIT", "ROLLBACK"]]] = {
    "begin": "BEGIN",
    "start": "BEGIN",
    "commit": "COMMIT",
    "end": "COMMIT",
    "rollback": "ROLLBACK",
    "abort": "ROLLBACK",
}

_COMMANDS: Final = frozenset(
    """alter analyze call checkpoint close cluster comment copy create deallocate declare delete
    discard do drop execute explain fetch grant import insert listen load lock merge move notify
    prepare reassign refresh reindex release reset revoke savepoint security select set show table
    truncate unlisten update vacuum values with""".split()  # noqa: SIM905  # one per line is 46
)
"""First words of PostgreSQL's statements, but for those about subscriptions."""

_OBJECTS: Final = frozenset(
    """access aggregate cast collation constraint conversion database default domain event extension
    foreign function global group index language large local materialized operator or owned policy
    procedural procedure publication recursive role routine rule schema sequence server statistics
    system table tablespace temp temporary text transform trigger trusted type unique unlogged user
    view""".split()  # noqa: SIM905  # one per line is 53
)
"""Kinds of objects that PostgreSQL can create, alter or drop, without subscriptions."""


@dataclass(frozen=True, slots=True)
class Source:
    """A statement's text, tokens, and position in the whole text."""

    text: str
    tokens: tuple[Token, ...]
    start: int
    last_line: int

    def point(self, error: ReplicationError) -> None:
        """Give an error with a position its excerpt of the text."""
        if error.cursorpos is not None:
            shown = without_secrets(self.text, self.tokens, error.cursorpos)
            error.excerpt = excerpt(shown, error.cursorpos)


def sources(text: str) -> list[Source]:
    """``text`` cut at semicolons outside parentheses; empty statements are left out."""
    found: list[Source] = []
    current: list[Token] = []
    depth = 0

    def add(end: int) -> None:
        if len(current) > 1 or current[0].kind is Kind.BAD:
            start = current[0].start
            moved = tuple(_moved(token, start) for token in current)
            found.append(Source(text[start:end], moved, start, text.count("\n", 0, end) + 1))
        current.clear()

    ended = text.rstrip()
    for token in tokens(text):
        if token.kind is Kind.END:
            token = Token(Kind.END, "", "", max(len(ended), current[-1].end if current else 0))
        current.append(token)
        if token.kind is Kind.SYMBOL:
            depth = max(depth + (token.text == "(") - (token.text == ")"), 0)
            if token.text == ";" and not depth:
                add(token.end)
    if current:
        add(len(ended))
    return found


def _moved(token: Token, start: int) -> Token:
    return Token(
        token.kind, token.text, token.value, token.start - start, token.error, token.sqlstate
    )


def parse(source: Source, notify: Notify) -> Statement:
    """Parse a statement; an error has its excerpt already."""
    parser = _Parser(source.tokens, notify)
    try:
        return parser.statement()
    except ReplicationError as error:
        source.point(error)
        raise


@dataclass(slots=True)
class _Parser:
    """Recursive descent over a statement's tokens."""

    tokens: Sequence[Token]
    notify: Notify
    at: int = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[min(self.at, len(self.tokens) - 1)]

    def statement(self) -> Statement:
        """The whole statement with the semicolon."""
        first = self.token
        if not self.is_word():
            raise self.unexpected()
        found: Statement
        if first.value in ("create", "alter", "drop") and self.is_next_word("subscription"):
            self.at += 2
            found = {"create": self.create, "alter": self.alter, "drop": self.drop}[
                str(first.value)
            ]()
        elif first.value in _BLOCK:
            found = self.block()
        elif first.value in _COMMANDS and not self.is_misspelt():
            error = FeatureNotSupported(
                "only CREATE, ALTER and DROP SUBSCRIPTION can be executed",
                hint="pgsub sql runs Spark SQL on the lake, psql everything else on the publisher.",
            )
            error.cursorpos = first.start
            raise error
        else:
            self.at += first.value in ("create", "alter", "drop")
            raise self.unexpected()
        if not (self.token.kind is Kind.END or self.is_symbol(";")):
            raise self.unexpected()
        return found

    def is_misspelt(self) -> bool:
        """Does an object follow CREATE, ALTER or DROP that PostgreSQL does not know either?"""
        second = self.tokens[self.at + 1]
        return self.is_word("create", "alter", "drop") and (
            second.kind is not Kind.WORD or second.value not in _OBJECTS
        )

    def create(self) -> CreateSubscription:
        name = self.name()
        self.expect("connection")
        conninfo = self.string()
        self.expect("publication")
        publications = self.names()
        return CreateSubscription(name, conninfo, publications, self.with_options())

    def drop(self) -> DropSubscription:
        if_exists = self.is_word("if") and self.is_next_word("exists")
        self.at += 2 * if_exists
        name = self.name()
        behavior: Literal["cascade", "restrict"] = "restrict"
        if self.accept("cascade"):
            behavior = "cascade"
        elif self.accept("restrict"):
            pass
        return DropSubscription(name, if_exists, behavior)

    def alter(self) -> AlterSubscription:
        name = self.name()
        word = str(self.token.value) if self.is_word() else ""
        if word in _PUBLICATION_ACTIONS and self.is_next_word("publication"):
            self.at += 2
            action = _PUBLICATION_ACTIONS[word]
            return AlterPublications(name, action, self.names(), self.with_options())
        if self.accept("set"):
            return AlterOptions(name, self.definition())
        if self.accept("connection"):
            return AlterConnection(name, self.string())
        if self.accept("refresh"):
            self.expect("publication")
            return AlterRefresh(name, self.with_options())
        if self.accept("enable"):
            return AlterEnabled(name, True)
        if self.accept("disable"):
            return AlterEnabled(name, False)
        if self.accept("skip"):
            return AlterSkip(name, self.definition())
        if self.accept("rename"):
            self.expect("to")
            return AlterRename(name, self.name())
        if self.accept("owner"):
            self.expect("to")
            return AlterOwner(name, self.role())
        self.at += word in ("add", "drop")
        raise self.unexpected()

    def block(self) -> Transaction:
        word = str(self.token.value)
        self.at += 1
        if word == "start":
            self.expect("transaction")
        elif not self.accept("work"):
            self.accept("transaction")
        return Transaction(_BLOCK[word])

    # Names, strings, options

    def name(self) -> str:
        """``ColId``."""
        token = self.token
        if token.kind is Kind.NAME or (
            token.kind is Kind.WORD and token.value not in RESERVED | TYPE_FUNC_NAME
        ):
            return self.identifier()
        raise self.unexpected()

    def names(self) -> tuple[str, ...]:
        """``name_list``."""
        found = [self.name()]
        while self.accept_symbol(","):
            found.append(self.name())
        return tuple(found)

    def role(self) -> str | None:
        """``RoleSpec``; None for the current user."""
        if self.is_word("current_user", "current_role", "session_user"):
            self.at += 1
            return None
        if self.token.kind is Kind.NAME or (self.is_word() and self.token.value not in RESERVED):
            return self.identifier()
        raise self.unexpected()

    def identifier(self) -> str:
        """The next token as a name; a name too long is cut, with a NOTICE."""
        name = str(self.token.value)
        self.at += 1
        short = truncate(name)
        if short != name:
            self.notify(f'identifier "{name}" will be truncated to "{short}"')
        return short

    def string(self) -> str:
        """``Sconst``."""
        token = self.token
        if token.kind is not Kind.STRING:
            raise self.unexpected()
        self.at += 1
        return str(token.value)

    def with_options(self) -> Options:
        """``opt_definition``."""
        return self.definition() if self.accept("with") else ()

    def definition(self) -> Options:
        """``definition``: options in parentheses, at least a single option."""
        self.expect_symbol("(")
        found = [self.option()]
        while self.accept_symbol(","):
            found.append(self.option())
        self.expect_symbol(")")
        return tuple(found)

    def option(self) -> DefElem:
        """``def_elem``: any word may be a name."""
        if self.token.kind not in (Kind.WORD, Kind.NAME):
            raise self.unexpected()
        location = self.token.start
        name = self.identifier()
        value = self.value() if self.accept_symbol("=") else None
        return DefElem(name, value, location)

    def value(self) -> str | int:
        """``def_arg``, without types and operators: no option of a subscription takes any."""
        token = self.token
        if token.kind is Kind.STRING:
            return self.string()
        if token.kind is Kind.NUMBER or self.is_symbol("+", "-"):
            return self.number()
        if self.is_word() and (token.value in RESERVED or token.value == "none"):
            return self.identifier()
        if token.kind is not Kind.NAME and not (self.is_word() and token.value not in COL_NAME):
            raise self.unexpected()
        word = self.identifier()
        while self.accept_symbol("."):
            if self.token.kind not in (Kind.WORD, Kind.NAME):
                raise self.unexpected()
            word += f".{self.identifier()}"
        return word

    def number(self) -> str | int:
        """``NumericOnly``."""
        minus = self.accept_symbol("-")
        if not minus:
            self.accept_symbol("+")
        token = self.token
        if token.kind is not Kind.NUMBER:
            raise self.unexpected()
        self.at += 1
        if isinstance(token.value, int):
            return -token.value if minus else token.value
        return f"-{token.value}" if minus else token.value

    # Tokens

    def is_word(self, *words: str) -> bool:
        """Is the next token an unquoted word, and among ``words`` if any are given?"""
        return self.token.kind is Kind.WORD and (not words or self.token.value in words)

    def is_next_word(self, word: str) -> bool:
        """Is the token after the next an unquoted ``word``?"""
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        return following.kind is Kind.WORD and following.value == word

    def is_symbol(self, *symbols: str) -> bool:
        """Is the next token among these symbols?"""
        return self.token.kind is Kind.SYMBOL and self.token.text in symbols

    def accept(self, word: str) -> bool:
        """Take ``word`` if next; False if not."""
        found = self.is_word(word)
        self.at += found
        return found

    def accept_symbol(self, symbol: str) -> bool:
        """Take ``symbol`` if next; False if not."""
        found = self.is_symbol(symbol)
        self.at += found
        return found

    def expect(self, word: str) -> None:
        """Take ``word``, or raise a syntax error."""
        if not self.accept(word):
            raise self.unexpected()

    def expect_symbol(self, symbol: str) -> None:
        """Take ``symbol``, or raise a syntax error."""
        if not self.accept_symbol(symbol):
            raise self.unexpected()

    def unexpected(self) -> ReplicationError:
        """The error about the next token."""
        before = self.tokens[self.at - 1] if self.at else None
        if before is None or not before.private or follows_connection(self.token):
            return token_error(self.token)
        error = SyntaxErrorOrAccess(
            "syntax error after the connection string",
            detail="What stands there is not shown, because it may be part of a password.",
            hint="Write a single quote inside the string twice.",
        )
        error.cursorpos = self.token.start
        return error
