"""Runs SQL statements: ``pgsub exec`` and ``pgsub alter``.

Statements run one by one up to the first error; the effects of earlier statements stay, as with
psql's ``ON_ERROR_STOP``. Errors are printed in psql's form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from catalog.errcodes import (
    CHARACTER_NOT_IN_REPERTOIRE,
    ActiveSqlTransaction,
    ConfigFileError,
    ReplicationError,
)
from catalog.namespace import escape_identifier, quote_literal
from config.sqloptions import (
    create_statement,
    publication_options,
    refresh_copies,
    set_options,
    skip_lsn,
)
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
    DropSubscription,
    Transaction,
)
from subscriber.commands import alter
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import create_subscription, drop_subscription
from subscriber.commands.subscription_row import must_have
from subscriber.messages import Notice, as_replication_error, notice, warning
from subscriber.sql.parser import Source, parse, sources

CREATE: Final = "CREATE SUBSCRIPTION"
ALTER: Final = "ALTER SUBSCRIPTION"
DROP: Final = "DROP SUBSCRIPTION"


@dataclass(slots=True)
class Session:
    """Runs statements and reports their results.

    The first statement that needs a context enters ``open_command_context``; the argument is True
    if a missing data directory is to be created. ``file`` names the text in errors. Files named in
    a connection are relative to the current directory.
    """

    open_command_context: Callable[[bool], AbstractContextManager[CommandContext]]
    done: Callable[[str], None]  # receives the tag of a finished command
    notify: Callable[[Notice], None]
    file: str | None = None
    in_block: bool = False

    def run(self, text: str) -> None:
        """Run every statement of ``text``; the first error ends the run and has its position."""
        context: CommandContext | None = None
        with ExitStack() as stack:
            for source in sources(text):
                try:
                    statement = parse(source, lambda text: self.notify(notice(text)))
                    if isinstance(statement, Transaction):
                        self.done(self._transaction(statement))
                        continue
                    if context is None:
                        make = isinstance(statement, CreateSubscription)
                        context = stack.enter_context(self.open_command_context(make))
                    self.done(self.execute(statement, context))
                except Exception as error:
                    known = as_replication_error(error)
                    self._place(known, source)
                    if known is error:
                        raise
                    raise known from error

    def _place(self, known: ReplicationError, source: Source) -> None:
        if known.excerpt is None:
            source.point(known)
        if self.file is not None:
            known.source = f"{self.file}:{source.last_line}"

    def _transaction(self, statement: Transaction) -> str:
        """Follow transaction blocks, only to refuse commands that must not be inside."""
        begins = statement.command == "BEGIN"
        if begins and self.in_block:
            self.notify(warning("there is already a transaction in progress"))
        elif not begins and not self.in_block:
            self.notify(warning("there is no transaction in progress"))
        self.in_block = begins
        return statement.command

    def execute(
        self,
        statement: CreateSubscription | AlterSubscription | DropSubscription,
        context: CommandContext,
    ) -> str:
        """Check what the publisher is not needed for, then run the statement; the tag."""
        if isinstance(statement, CreateSubscription):
            stmt = create_statement(statement, Path.cwd())
            self._not_in_block(
                f"{CREATE} ... WITH (create_slot = true)" if stmt.options.create_slot else CREATE
            )
            create_subscription(stmt, context)
            return CREATE
        if isinstance(statement, DropSubscription):
            if statement.if_exists and context.store.subscription_by_name(statement.name) is None:
                self.notify(notice(f'subscription "{statement.name}" does not exist, skipping'))
                return DROP
            must_have(statement.name, context)
            self._not_in_block(DROP)
            drop_subscription(statement.name, context)
            return DROP
        must_have(
            statement.name, context
        )  # first, as in PostgreSQL: the name comes before the options
        self._alter(statement, context)
        return ALTER

    def _alter(self, statement: AlterSubscription, context: CommandContext) -> None:
        name = statement.name
        match statement:
            case AlterPublications():
                options = publication_options(statement)
                self._not_in_block(f"{ALTER} with refresh" if options.refresh else ALTER)
                alter.alter_publications(
                    name,
                    statement.action,
                    statement.publications,
                    context,
                    refresh=options.refresh,
                    copy_data=options.copy_data,
                )
            case AlterRefresh():
                copy_data = refresh_copies(statement.options)
                self._not_in_block(f"{ALTER} ... REFRESH")
                alter.alter_refresh(name, context, copy_data=copy_data)
            case AlterOptions():
                values = set_options(statement.options)
                self._not_in_block(_altering_the_slot(values))
                alter.alter_options(name, values, context)
            case AlterConnection():
                self._not_in_block(ALTER)
                alter.alter_connection(name, statement.conninfo, context)
            case AlterSkip():
                lsn = skip_lsn(statement.options)
                self._not_in_block(ALTER)
                alter.alter_skip(name, lsn, context)
            case AlterEnabled():
                self._not_in_block(ALTER)
                alter.alter_enabled(name, statement.enabled, context)
            case AlterRename():
                self._not_in_block(ALTER)
                alter.alter_rename(name, statement.new, context)
            case AlterOwner():
                self._not_in_block(ALTER)
                alter.alter_owner(name, statement.role, context)

    def _not_in_block(self, command: str) -> None:
        """Raise 25001 inside a block: changes of publisher or lake cannot be rolled back."""
        if self.in_block:
            raise ActiveSqlTransaction(
                f"{command} cannot run inside a transaction block",
                hint="Leave BEGIN and COMMIT out.",
            )


def _altering_the_slot(values: Mapping[str, Any]) -> str:
    for option in ("two_phase", "failover"):
        if option in values:
            return f"{ALTER} ... SET ({option})"
    return ALTER


def read_text(file: Path | None) -> str:
    """The statements of a file, or of standard input (None)."""
    name = "standard input" if file is None else f'file "{file}"'
    try:
        content = sys.stdin.buffer.read() if file is None else file.read_bytes()
    except OSError as error:
        raise ConfigFileError(f"could not open {name}: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigFileError(f"{name} is not UTF-8 text", sqlstate=CHARACTER_NOT_IN_REPERTOIRE)
    return text


def altering(name: str, words: Sequence[str]) -> str:
    """``pgsub alter NAME WORDS…`` as SQL text.

    The words follow the name. A shell has removed the quotes of a connection string: a single word
    after CONNECTION counts as the string itself.
    """
    if len(words) == 2 and words[0].lower() == "connection" and not words[1].startswith("'"):
        words = (words[0], quote_literal(words[1]))
    return f"{ALTER} {escape_identifier(name)} {' '.join(words)}"
