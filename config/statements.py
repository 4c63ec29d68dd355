"""The statements of SQL text as the user wrote them; PostgreSQL's ``parsenodes.h``.

Only the grammar has checked a statement: option names and values are the user's, and
``config.sqloptions`` checks them. A connection string may hold a password, and is in no ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PublicationAction = Literal["set", "add", "drop"]
"""The change that ALTER SUBSCRIPTION makes with the named publications."""


@dataclass(frozen=True, slots=True)
class DefElem:
    """``name [= value]`` of a parenthesised list.

    A word is in lower case, a number that is no integer is as written; None is no value.
    ``location`` counts characters of the text from 0, for errors that point at the option.
    """

    name: str
    value: str | int | None = None
    location: int = field(default=0, compare=False)


Options = tuple[DefElem, ...]


@dataclass(frozen=True, slots=True)
class CreateSubscription:
    """CREATE SUBSCRIPTION name CONNECTION '…' PUBLICATION … [ WITH (…) ]."""

    name: str
    conninfo: str = field(repr=False)
    publications: tuple[str, ...]
    options: Options = ()


@dataclass(frozen=True, slots=True)
class AlterConnection:
    """ALTER SUBSCRIPTION name CONNECTION '…'."""

    name: str
    conninfo: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AlterPublications:
    """ALTER SUBSCRIPTION name { SET | ADD | DROP } PUBLICATION … [ WITH (…) ]."""

    name: str
    action: PublicationAction
    publications: tuple[str, ...]
    options: Options = ()


@dataclass(frozen=True, slots=True)
class AlterRefresh:
    """ALTER SUBSCRIPTION name REFRESH PUBLICATION [ WITH (…) ]."""

    name: str
    options: Options = ()


@dataclass(frozen=True, slots=True)
class AlterEnabled:
    """ALTER SUBSCRIPTION name { ENABLE | DISABLE }."""

    name: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class AlterOptions:
    """ALTER SUBSCRIPTION name SET (…)."""

    name: str
    options: Options


@dataclass(frozen=True, slots=True)
class AlterSkip:
    """ALTER SUBSCRIPTION name SKIP (lsn = …)."""

    name: str
    options: Options


@dataclass(frozen=True, slots=True)
class AlterRename:
    """ALTER SUBSCRIPTION name RENAME TO new."""

    name: str
    new: str


@dataclass(frozen=True, slots=True)
class AlterOwner:
    """ALTER SUBSCRIPTION name OWNER TO role; None is CURRENT_USER or a synonym."""

    name: str
    role: str | None


@dataclass(frozen=True, slots=True)
class DropSubscription:
    """DROP SUBSCRIPTION [ IF EXISTS ] name [ CASCADE | RESTRICT ]."""

    name: str
    if_exists: bool = False
    behavior: Literal["cascade", "restrict"] = "restrict"


@dataclass(frozen=True, slots=True)
class Transaction:
    """BEGIN, COMMIT or ROLLBACK, in any spelling."""

    command: Literal["BEGIN", "COMMIT", "ROLLBACK"]


AlterSubscription = (
    AlterConnection
    | AlterPublications
    | AlterRefresh
    | AlterEnabled
    | AlterOptions
    | AlterSkip
    | AlterRename
    | AlterOwner
)

Statement = CreateSubscription | AlterSubscription | DropSubscription | Transaction
