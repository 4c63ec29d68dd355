"""``pgsub up FILE``: create the file's subscriptions or bring them in line, then run the launcher.

Checks without the lake come before any start: a wrong host or a missing privilege is reported at
once. The rest happens in the launcher, when the lake is up, and again after a SIGHUP. A
subscription without an entry in the file stays, with a warning: ``up`` never drops.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalog.errcodes import FeatureNotSupported, ReplicationError, TwoLakes
from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.limits import RENAMES_SECONDS
from config.load import Config, from_stored, load
from config.subscription import CreateSubscriptionStmt
from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.check import server_findings
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import (
    check_password,
    create_subscription,
    finish_leftover,
    new_row,
    raise_first,
)
from subscriber.commands.main_slot import check_slot_is_free
from subscriber.commands.open_context import open_command_context
from subscriber.commands.published import LOOK_MODULE
from subscriber.commands.published.renamed import RenamedMeanwhile
from subscriber.commands.schema.column_rules import rule_findings
from subscriber.commands.subscription_row import must_be_ready
from subscriber.commands.table_mapping import (
    MappedTable,
    fetch_mapped_tables,
    privilege_findings,
    published_findings,
)
from subscriber.launcher.fork_server import call_forked
from subscriber.launcher.launcher import ApplyLauncherMain
from subscriber.launcher.passfile import temporary_passfile
from subscriber.messages import warning
from workers.process import log as server_log


def up(data_dir: Path, file: Path, *, console: bool = True) -> int:
    """Run the launcher to its end; the exit status. The log has the reason of an end.

    Without ``console`` the log goes to its file alone.
    """
    config = load(file)
    preflight(data_dir, config)

    def apply_file(lake_url: str, held: Sequence[int]) -> None:
        words = [str(data_dir.resolve()), str(file.resolve()), lake_url, "console" * console]
        call_forked(_configure, *words, pass_fds=held)

    return ApplyLauncherMain(
        data_dir,
        config=config,
        apply_file=apply_file,
        console=console,
        look_module=LOOK_MODULE,
    )


def preflight(data_dir: Path, config: Config) -> None:
    """Raise CREATE's errors about new subscriptions, as far as the publisher knows."""
    store = CatalogStore.open(data_dir)
    try:
        with open_command_context(data_dir, store, config, notify=lambda _: None) as context:
            for stmt in config.subscriptions:
                if store.subscription_by_name(stmt.name) is None:
                    _ask_publisher(stmt, context, config.settings)
    finally:
        store.close()


def _ask_publisher(
    stmt: CreateSubscriptionStmt, context: CommandContext, settings: Settings
) -> None:
    check_password(stmt, settings)
    if not stmt.options.connect:
        return
    with temporary_passfile(stmt.connection.password) as passfile:
        sub = replace(new_row(stmt), passfile=passfile)
        with closing(context.connect(sub)) as conn:
            check_slot_is_free(conn, sub)
            if sub.create_slot:
                findings = server_findings(conn, sub, settings)
                raise_first([found for found in findings if isinstance(found, ReplicationError)])
            mapped = fetch_mapped_tables(conn, stmt.publication, stmt.tables)
            raise_first([*published_findings(mapped), *_rule_errors(mapped, stmt)])
            if stmt.options.copy_data:
                raise_first(list(privilege_findings(conn, mapped)))


def _rule_errors(
    mapped: Sequence[MappedTable], stmt: CreateSubscriptionStmt
) -> list[ReplicationError]:
    found = rule_findings(mapped, stmt.tables)
    return [each for each in found if isinstance(each, ReplicationError)]


def _configure(data_dir: str, file: str, lake_url: str, console: str) -> None:
    """Apply the file in a process of its own, under the launcher's name in the log."""
    server_log.setup("launcher", Path(data_dir), console=bool(console))
    _apply_file(Path(data_dir), load(Path(file)), lake_url)


def _apply_file(data_dir: Path, config: Config, lake_url: str) -> None:
    """Create or bring in line every subscription."""
    store = CatalogStore.open(data_dir)
    try:
        store.put_settings(config.stored())
        with open_command_context(data_dir, store, config, lake_url=lake_url) as context:
            if context.store.subscriptions():
                _probe_catalog(context)
            for stmt in config.subscriptions:
                _create_or_bring_in_line(stmt, context)
            _warn_of_unnamed(config, context)
    finally:
        store.close()


def _probe_catalog(context: CommandContext) -> None:
    """Refuse a catalog that would lose rows: the file may name another catalog than CREATE saw.

    A catalog or store that is away for now stops nothing: the workers wait for it.
    """
    try:
        context.probe_lake()
    except (FeatureNotSupported, TwoLakes):
        raise
    except ReplicationError as error:
        context.notify(warning(f"could not probe the lake's catalog: {error.primary}"))


def _create_or_bring_in_line(stmt: CreateSubscriptionStmt, context: CommandContext) -> None:
    finish_leftover(stmt.name, context)
    existing = context.store.subscription_by_name(stmt.name)
    if existing is None:
        create_subscription(stmt, context)
    else:
        _bring_in_line(existing, stmt, context)


def _bring_in_line(
    existing: Subscription, stmt: CreateSubscriptionStmt, context: CommandContext
) -> None:
    """``bring_in_line``, tried again while workers finish renames; in the end only a warning.

    The workers run meanwhile, and a table that is renamed must not stop the launcher.
    """
    deadline = time.monotonic() + RENAMES_SECONDS
    while True:
        try:
            bring_in_line(existing, stmt, context)
        except RenamedMeanwhile as error:
            refusal = error
        else:
            return
        if time.monotonic() > deadline:
            break
        existing = must_be_ready(stmt.name, context)
    context.notify(
        warning(
            f'subscription "{stmt.name}" was not changed to the file: {refusal.primary}',
            detail=refusal.detail,
            hint="Run pgsub up again when the tables have their names.",
        )
    )


def _warn_of_unnamed(config: Config, context: CommandContext) -> None:
    named = {stmt.name for stmt in config.subscriptions}
    for sub in context.store.subscriptions():
        if sub.subname not in named and sub.subcreate is SubCreate.READY:
            context.notify(
                warning(
                    f'subscription "{sub.subname}" is not in the file and stays',
                    hint=f"pgsub drop {sub.subname} removes it.",
                )
            )


def keep_settings(config: Config, context: CommandContext) -> None:
    """Store the file's settings for ``create``, unless others are in force: then only warn, because
    running workers would follow only some of the new settings."""
    stored: dict[str, Any] = context.store.settings()
    if not stored:
        context.store.put_settings(config.stored())
        return
    running = from_stored(stored)
    given = {
        "lake": config.lake.model_fields_set and config.lake != running.lake,
        "spark": config.spark.model_fields_set and config.spark != running.spark,
        "settings": any(
            getattr(config.settings, name) != getattr(running.settings, name)
            for name in config.settings.model_fields_set
        ),
    }
    different = [name for name, differs in given.items() if differs]
    if different:
        context.notify(
            warning(
                f"{' and '.join(different)} of the file differ from what is in force",
                hint="They change with pgsub up, not with pgsub create.",
            )
        )
