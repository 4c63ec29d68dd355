"""Plain arguments are taken as they are; everything else goes through typer."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from subscriber.cli.plain_values import read_plain_values


class Word(StrEnum):
    ONE = "one"
    TWO = "two"


def run(arguments: list[str], *, plainly: bool) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    def verb(
        text: str,
        path: Path | None = None,
        word: Word = Word.ONE,
        number: Annotated[float | None, typer.Option(min=0)] = None,
        more: Annotated[list[str] | None, typer.Option()] = None,
        switch: bool = False,
    ) -> None:
        seen.update(locals())

    command = typer.main.get_command(app)
    if plainly:
        read_plain_values(command)
    command(arguments, standalone_mode=False)
    seen.pop("seen", None)
    return seen


@pytest.mark.parametrize(
    "arguments",
    [
        ["a"],
        ["a", "--path", "no/such"],
        ["", "--path", "."],
        ["a", "--word", "two", "--switch"],
        ["a", "--number", "1.5", "--more", "x", "--more", "y"],
    ],
)
def test_values_are_the_same_as_without(arguments: list[str]) -> None:
    values = run(arguments, plainly=True)
    assert values == run(arguments, plainly=False)
    assert isinstance(values["word"], Word)


@pytest.mark.parametrize(
    "arguments",
    [[], ["a", "--word", "three"], ["a", "--number", "-1"], ["a", "--number", "x"]],
)
def test_mistakes_are_the_same_as_without(arguments: list[str]) -> None:
    found = []
    for plainly in (True, False):
        with pytest.raises(Exception, match=r".") as caught:
            run(arguments, plainly=plainly)
        found.append((type(caught.value), str(caught.value)))
    assert found[0] == found[1]
