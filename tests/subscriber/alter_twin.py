"""A twin of ``subscriber.commands.alter``: it carries out nothing and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.pg_lsn import LSN
from config.statements import PublicationAction
from subscriber.commands.context import CommandContext


@dataclass(slots=True)
class AlterTwin:
    """``asked`` has each call: the function's name without ``alter_``, then its arguments."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def alter_connection(self, name: str, conninfo: str, context: CommandContext) -> None:
        self.asked.append(("connection", name, conninfo))

    def alter_publications(
        self,
        name: str,
        action: PublicationAction,
        publications: Sequence[str],
        context: CommandContext,
        *,
        refresh: bool,
        copy_data: bool,
    ) -> None:
        self.asked.append(("publications", name, action, tuple(publications), refresh, copy_data))

    def alter_refresh(self, name: str, context: CommandContext, *, copy_data: bool) -> None:
        self.asked.append(("refresh", name, copy_data))

    def alter_enabled(self, name: str, enabled: bool, context: CommandContext) -> None:
        self.asked.append(("enabled", name, enabled))

    def alter_options(self, name: str, options: Mapping[str, Any], context: CommandContext) -> None:
        self.asked.append(("options", name, dict(options)))

    def alter_skip(self, name: str, lsn: LSN | None, context: CommandContext) -> None:
        self.asked.append(("skip", name, lsn))

    def alter_rename(self, name: str, new: str, context: CommandContext) -> None:
        self.asked.append(("rename", name, new))

    def alter_owner(self, name: str, role: str | None, context: CommandContext) -> None:
        self.asked.append(("owner", name, role))
