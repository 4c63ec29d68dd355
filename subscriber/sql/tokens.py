"""SQL text as tokens: PostgreSQL's ``scan.l`` on top of sqlglot's tokenizer.

sqlglot finds the beginnings of tokens and the ends of quoted tokens. The module decides kind and
value by PostgreSQL's rules: only A-Z is folded, an operator takes as many characters as possible, a
number must not run into a name. Text that cannot be a token becomes a token of kind ``BAD``: like
PostgreSQL's, the parser handles the tokens before first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import TokenError

from catalog.errcodes import (
    CHARACTER_NOT_IN_REPERTOIRE,
    FEATURE_NOT_SUPPORTED,
    INVALID_ESCAPE_SEQUENCE,
    SYNTAX_ERROR,
    FeatureNotSupported,
    ReplicationError,
    SyntaxErrorOrAccess,
)
from catalog.namespace import NAMEDATALEN
from config.conninfo import may_hold_secret

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token as SqlglotToken


class Kind(Enum):
    """The kind of a token in the grammar."""

    WORD = "word"  # an unquoted name or keyword; the value is folded
    NAME = "name"  # a name in double quotes
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    BAD = "bad"  # no token: ``error`` has the reason, if PostgreSQL has words for the mistake
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token: ``text`` as written, ``value`` by the rules, ``start`` counted from 0."""

    kind: Kind
    text: str
    value: str | int
    start: int
    error: str = ""
    sqlstate: str = SYNTAX_ERROR

    @property
    def end(self) -> int:
        """The position after the token."""
        return self.start + len(self.text)

    @property
    def private(self) -> bool:
        """Does quoted text look like a connection string with a password?"""
        return self.kind in (Kind.STRING, Kind.NAME, Kind.BAD) and may_hold_secret(
            self.text.lstrip("eE").strip("'\"$")
        )


class _Tokenizer(Postgres.Tokenizer):
    """sqlglot's tokenizer without keywords: some would swallow the rest of the statement."""

    KEYWORDS: ClassVar[dict[str, Any]] = {}
    COMMANDS: ClassVar[set[Any]] = set()
    BIT_STRINGS: ClassVar[list[Any]] = []
    HEX_STRINGS: ClassVar[list[Any]] = []
    UNICODE_STRINGS: ClassVar[list[Any]] = []


_IDENTIFIER: Final = re.compile(r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*")
_DECIMAL: Final = r"\d(?:_?\d)*"
_NUMBER: Final = re.compile(
    r"0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+"
    rf"|(?:{_DECIMAL}(?:\.(?!\.)(?:{_DECIMAL})?)?|\.{_DECIMAL})(?:[eE][-+]?{_DECIMAL})?",
    re.ASCII,
)
_BIT_STRING: Final = re.compile(r"[bBxX]'(?:[^']|'')*'?")
_PARAMETER: Final = re.compile(r"\$\d+", re.ASCII)
_OPERATOR: Final = re.compile(r"[~!@#^&|`?+\-*/%<>=]+")
_PUNCTUATION: Final = re.compile(r"::|\.\.|:=|.", re.DOTALL)
_META_COMMAND: Final = re.compile(r"\\\S*")
_DOLLAR_QUOTE: Final = re.compile(r"\$(?:[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff]*)?\$")
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
_SPACE: Final = " \t\n\r\f\v"
_MAX_INTEGER: Final = 2**31 - 1

_UNTERMINATED: Final = {
    "'": "unterminated quoted string",
    '"': "unterminated quoted identifier",
    "$": "unterminated dollar-quoted string",
}


def tokens(text: str) -> Iterator[Token]:
    """The tokens of ``text``; the last is of kind ``END``, or ``BAD`` where the text has no token.

    String constants continued on the next line become a single token, as in PostgreSQL.
    """
    pending: Token | None = None
    for token in _tokens(text):
        if pending is not None and _continues(pending, token, text):
            joined = text[pending.start : token.end]
            pending = Token(Kind.STRING, joined, f"{pending.value}{token.value}", pending.start)
            continue
        if pending is not None:
            yield pending
        pending = token
    if pending is not None:
        yield pending


def _continues(first: Token, second: Token, text: str) -> bool:
    between = text[first.end : second.start]
    return (
        (first.kind, second.kind) == (Kind.STRING, Kind.STRING)
        and second.text[0] == first.text[-1] == "'"
        and ("\n" in between or "\r" in between)
        and "/*" not in between
    )


def _tokens(text: str) -> Iterator[Token]:
    found, open_at = _split(text)
    at = 0
    for token in found:
        if token.start < at:
            continue  # part of the token before, by PostgreSQL's rules
        blank = _skip_blank(text, at)
        if blank < token.start:
            yield _bad(text, blank, blank + 1)
            return
        exact = (
            _unterminated(text, token.start)
            if token.start == open_at
            else _token(text, token.start, token.end + 1)
        )
        yield exact
        if exact.kind is Kind.BAD:
            return
        at = exact.end
    blank = _skip_blank(text, at)
    if blank < len(text):
        comment = text.startswith("/*", blank)
        yield _bad(text, blank, len(text), "unterminated /* comment" if comment else "")
        return
    yield Token(Kind.END, "", "", len(text))


def _split(text: str) -> tuple[list[SqlglotToken], int | None]:
    """sqlglot's tokens, and the start of an unterminated last token (None: all are terminated)."""
    tokenizer = _Tokenizer(dialect="postgres")
    try:
        return tokenizer.tokenize(text), None
    except TokenError:
        pass
    # sqlglot does not report the start. Try every closing quote, and take the last token.
    for closing in ("'", "''", '"', *sorted(set(_DOLLAR_QUOTE.findall(text)))):
        try:
            found = tokenizer.tokenize(text + closing)
        except TokenError:
            continue
        return found, found[-1].start
    try:
        found = tokenizer.tokenize(text + "*/" * text.count("/*"))
    except TokenError:
        return [], None
    return [token for token in found if token.start < len(text)], None


def _skip_blank(text: str, at: int) -> int:
    """The first position from ``at`` on outside spaces and terminated comments."""
    while at < len(text):
        if text[at] in _SPACE:
            at += 1
        elif text.startswith("--", at):
            while at < len(text) and text[at] not in "\r\n":
                at += 1
        elif text.startswith("/*", at):
            end = _comment_end(text, at)
            if end is None:
                return at
            at = end
        else:
            return at
    return at


def _comment_end(text: str, at: int) -> int | None:
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None


def _token(text: str, start: int, end: int) -> Token:
    """The token at ``start``; ``end`` is sqlglot's end, correct for quoted tokens."""
    first = text[start]
    quoted = text[start:end]
    if first == '"':
        if quoted == '""':
            return _bad(text, start, end, "zero-length delimited identifier")
        return Token(Kind.NAME, quoted, quoted[1:-1].replace('""', '"'), start)
    if first == "'":
        return Token(Kind.STRING, quoted, quoted[1:-1].replace("''", "'"), start)
    if first in "eE" and text[start + 1 : start + 2] == "'":
        return _escape_string(quoted, start)
    if match := _IDENTIFIER.match(text, start):
        return _word(text, match[0], start)
    if first == "$" and (match := _DOLLAR_QUOTE.match(text, start)):
        return Token(Kind.STRING, quoted, quoted[len(match[0]) : -len(match[0])], start)
    if match := _NUMBER.match(text, start):
        return _number(text, match)
    if match := _PARAMETER.match(text, start):
        return Token(Kind.SYMBOL, match[0], match[0], start)
    if first == "\\":
        command = _META_COMMAND.match(text, start)
        written = command[0] if command else first
        return Token(
            Kind.BAD,
            written,
            written,
            start,
            f"psql command {written} is not supported",
            FEATURE_NOT_SUPPORTED,
        )
    if match := _OPERATOR.match(text, start):
        operator = _operator(match[0])
        return Token(Kind.SYMBOL, operator, operator, start)
    match = _PUNCTUATION.match(text, start)
    written = match[0] if match else first
    return Token(Kind.SYMBOL, written, written, start)


def _word(text: str, word: str, start: int) -> Token:
    following = text[start + len(word) : start + len(word) + 2]
    if word in ("u", "U") and following in ("&'", '&"'):
        written = word + following
        return Token(
            Kind.BAD,
            written,
            written,
            start,
            "Unicode escapes (U&) are not supported",
            FEATURE_NOT_SUPPORTED,
        )
    bits = _BIT_STRING.match(text, start)
    if bits:
        return _bad(text, start, bits.end())
    return Token(Kind.WORD, word, fold(word), start)


def _operator(run: str) -> str:
    """The operator at the beginning of a run of operator characters."""
    comment = re.search(r"--|/\*", run)
    if comment:
        run = run[: comment.start()]
    while len(run) > 1 and run[-1] in "+-" and not re.search(r"[~!@#^&|`?%]", run):
        run = run[:-1]
    return run


def _number(text: str, match: re.Match[str]) -> Token:
    written, start = match[0], match.start()
    junk = _IDENTIFIER.match(text, match.end())
    if junk:
        return _bad(text, start, junk.end(), "trailing junk after numeric literal")
    digits = written.replace("_", "")
    base = {"x": 16, "o": 8, "b": 2}.get(digits[1:2].lower(), 10)
    value = int(digits, base) if base != 10 or digits.isdecimal() else None
    if value is None or value > _MAX_INTEGER:
        return Token(Kind.NUMBER, written, written, start)
    return Token(Kind.NUMBER, written, value, start)


_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|''", re.DOTALL
)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _escape_string(quoted: str, start: int) -> Token:
    """``E'…'`` with escapes; escapes may be bytes, and all bytes together must be UTF-8."""
    out = bytearray()
    at = 0
    body = quoted[2:-1]
    for match in _ESCAPE.finditer(body):
        octal, pair, short, long, other = match.groups()
        out += body[at : match.start()].encode()
        at = match.end()
        if octal or pair:
            out.append(int(octal, 8) & 0xFF if octal else int(pair, 16))
        elif short or long:
            code = int(short or long, 16)
            if code > 0x10FFFF:
                return Token(
                    Kind.BAD, quoted, "", start, "invalid Unicode escape", INVALID_ESCAPE_SEQUENCE
                )
            out += chr(code).encode("utf-8", "surrogatepass")
        elif other in ("u", "U"):
            return Token(
                Kind.BAD, quoted, "", start, "invalid Unicode escape", INVALID_ESCAPE_SEQUENCE
            )
        else:
            out += _LETTERS.get(other, other).encode() if other else b"'"
    out += body[at:].encode()
    try:
        # A pair of surrogates is a character; a single surrogate is not.
        halves = out.decode("utf-8", "surrogatepass")
        value = halves.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeError:
        value = "\0"
    if "\0" in value:
        written = 'invalid byte sequence for encoding "UTF8"'
        return Token(Kind.BAD, quoted, "", start, written, CHARACTER_NOT_IN_REPERTOIRE)
    return Token(Kind.STRING, quoted, value, start)


def _unterminated(text: str, start: int) -> Token:
    written = text[start:]
    mark = written[1] if written[0] in "eE" else written[0]
    return _bad(text, start, len(text), _UNTERMINATED[mark])


def _bad(text: str, start: int, end: int, error: str = "") -> Token:
    written = text[start:end]
    return Token(Kind.BAD, written, written, start, error)


def fold(word: str) -> str:
    """An unquoted name in lower case; like PostgreSQL, folds A-Z only."""
    return "".join(chr(ord(char) + 32) if "A" <= char <= "Z" else char for char in word)


def truncate(name: str) -> str:
    """``truncate_identifier``: at most 63 bytes, cut between characters."""
    return name.encode()[: NAMEDATALEN - 1].decode(errors="ignore")


def token_error(token: Token) -> ReplicationError:
    """PostgreSQL's error about a token out of place."""
    error: ReplicationError
    if token.kind is Kind.END:
        error = SyntaxErrorOrAccess("syntax error at end of input")
    elif not token.error:
        error = SyntaxErrorOrAccess(f'syntax error at or near "{shown(token)}"')
    elif token.sqlstate == SYNTAX_ERROR:
        error = SyntaxErrorOrAccess(f'{token.error} at or near "{shown(token)}"')
    elif token.sqlstate == FEATURE_NOT_SUPPORTED:
        error = FeatureNotSupported(token.error)
    else:
        error = SyntaxErrorOrAccess(token.error, sqlstate=token.sqlstate)
    error.cursorpos = token.start
    return error


def shown(token: Token) -> str:
    """A token's text for a message, without possible passwords."""
    if not token.private:
        return token.text
    closing = "" if token.kind is Kind.BAD else token.text[-1]
    return f"{token.text[0]}{'*' * (len(token.text) - 1 - len(closing))}{closing}"
