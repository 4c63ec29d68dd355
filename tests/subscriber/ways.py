"""The ways to ask for CREATE, ALTER and DROP SUBSCRIPTION on twins: by call, and as it is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from config.load import parse
from subscriber.cli import reading_verbs, subscription_verbs
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import create_subscription, drop_subscription
from subscriber.commands.run_sql import altering
from subscriber.commands.up import _create_or_bring_in_line
from subscriber.messages import print_notice
from tests.shell import Ran, Shell
from tests.subscriber.commands.test_run_sql import session
from tests.subscriber.twins import Around

FILE: Final = "FILE"
"""In the words of a command: the path of the file that it reads."""


@dataclass(frozen=True)
class Ask:
    """One question: what carries it out, and the words of ``pgsub`` and the file that ask it."""

    carry_out: Callable[[Around], object]
    words: tuple[str, ...]
    file: str = ""

    def __call__(self, world: Around) -> object:
        return self.carry_out(world)

    def typed(self, world: Around, shell: Shell) -> Ran:
        """The command line on the twins; what is noticed goes where a user reads it."""

        @contextmanager
        def context(*_: Any, **__: Any) -> Iterator[CommandContext]:
            yield replace(world.context, notify=print_notice)

        words = [shell.file(self.file) if word == FILE else word for word in self.words]
        with pytest.MonkeyPatch.context() as patch:
            for verbs in (reading_verbs, subscription_verbs):
                patch.setattr(verbs, "open_context", context)
            return shell(*words)


def sql(text: str) -> Ask:
    return Ask(lambda world: session(world, []).run(text), ("exec", text))


def alter(name: str, *words: str) -> Ask:
    text = altering(name, words)
    return Ask(lambda world: session(world, []).run(text), ("alter", name, *words))


def drop(name: str) -> Ask:
    return Ask(lambda world: drop_subscription(name, world.context), ("drop", name))


def create(body: str, name: str = "t", connection: str = "dbname=nowhere") -> Ask:
    """``pgsub create`` of a file with that subscription."""
    text = _file(body, name, connection)
    return Ask(
        lambda world: create_subscription(_statement(text), world.context), ("create", FILE), text
    )


def up(body: str, name: str = "t", connection: str = "dbname=nowhere") -> Ask:
    """``pgsub up`` of a file with that subscription."""
    text = _file(body, name, connection)
    return Ask(
        lambda world: _create_or_bring_in_line(_statement(text), world.context), ("up", FILE), text
    )


def both(body: str, **more: str) -> dict[str, Ask]:
    """The file by ``create`` and by ``up``."""
    return {"command": create(body, **more), "file": up(body, **more)}


def _file(body: str, name: str, connection: str) -> str:
    return f"subscriptions:\n  {name}: {{connection: {connection}, {body}}}"


def _statement(text: str) -> Any:
    (stmt,) = parse(text, "f.yaml").subscriptions
    return stmt
