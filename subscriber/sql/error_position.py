"""Shows the position of an error in SQL text like psql: the line, and a caret below.

libpq's ``reportErrorPosition``: tabs count as spaces, wide characters as two columns, and a long
line is cut around the position.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from config.conninfo import may_hold_secret
from subscriber.sql.tokens import Kind, Token

DISPLAY_SIZE: Final = 60
"""Columns of a line that are shown."""

MIN_RIGHT_CUT: Final = 10
"""Columns after the place that stay, if there are so many."""

_NEWLINE: Final = re.compile(r"\r\n|\r|\n")
_PASSWORD: Final = re.compile(r"(pass\w*\s*=\s*)('(?:[^']|'')*'?|\S+)|(://)(\S+)", re.IGNORECASE)


def excerpt(query: str, place: int) -> str:
    """``LINE n: …`` and the line with the caret; ``place`` counts characters from 0."""
    number = 1
    begin = 0
    end = len(query)
    for newline in _NEWLINE.finditer(query):
        if newline.start() >= place:
            end = newline.start()
            break
        number += 1
        begin = newline.end()
    line = query[begin:end].replace("\t", " ")
    at = min(place - begin, len(line))
    columns = [0, *accumulate(map(_width, line))]
    first, last = _window(columns, at)
    head = f"LINE {number}: {'...' if first else ''}"
    tail = "..." if last < len(line) else ""
    margin = " " * (len(head) + columns[at] - columns[first])
    return f"{head}{line[first:last]}{tail}\n{margin}^"


def _window(columns: Sequence[int], at: int) -> tuple[int, int]:
    """The part of the line to show: the first character, and the end."""
    first, last = 0, len(columns) - 1
    if columns[last] <= DISPLAY_SIZE:
        return first, last
    if columns[at] + MIN_RIGHT_CUT <= DISPLAY_SIZE:
        while columns[last] > DISPLAY_SIZE:
            last -= 1
        return first, last
    while columns[at] + MIN_RIGHT_CUT < columns[last]:
        last -= 1
    while columns[last] - columns[first] > DISPLAY_SIZE:
        first += 1
    return first, last


def _width(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def without_secrets(text: str, tokens: Sequence[Token], place: int) -> str:
    """``text`` with asterisks for possible passwords; no character moves.

    An error directly after a connection string may mean a quote that ended too early: the text from
    ``place`` on may belong to the connection string, and is hidden.
    """
    chars = list(text)

    def hide(start: int, end: int) -> None:
        for at in range(start, min(end, len(chars))):
            if chars[at] not in "\r\n":
                chars[at] = "*"

    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.private:
            hide(token.start + 1, token.end - (token.kind is not Kind.BAD))
            if after is not None and after.start == place and not follows_connection(after):
                hide(after.start, len(text))
    last = tokens[-1]
    if last.kind is Kind.BAD and may_hold_secret(text[last.end :]):
        hide(last.end, len(text))  # text after the last token
    for match in _PASSWORD.finditer("".join(chars)):
        hide(match.start(2) if match[2] else match.start(4), match.end())
    return "".join(chars)


def follows_connection(token: Token) -> bool:
    """Is the token no continuation of a password, and safe to show?"""
    return token.text == "" or token.text in ";,()" or str(token.value).startswith("pub")
