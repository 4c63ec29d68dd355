"""The pages of ``docs/commands``: verbs, options and statements are those of the code."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from catalog.errcodes import ReplicationError
from config.define import READERS
from config.sqloptions import (
    CREATE_OPTIONS,
    PUBLICATION_OPTIONS,
    REFRESH_OPTIONS,
    SET_OPTIONS,
    SKIP_OPTIONS,
    create_statement,
    publication_options,
    refresh_copies,
    set_options,
    skip_lsn,
)
from config.statements import (
    AlterOptions,
    AlterPublications,
    AlterRefresh,
    AlterSkip,
    CreateSubscription,
    Statement,
)
from config.subscription import WithOptions
from subscriber.cli import app
from subscriber.commands.run_sql import altering
from subscriber.sql.parser import parse, sources
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, section

FOLDER = DOCS / "commands"
COMMANDS = sorted(FOLDER.glob("*.md"))
SECTIONS = ["Synopsis", "Description", "Parameters", "Examples", "Compatibility", "See also"]
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
SAID = re.compile(r"pgsub(?: --data-dir \S+)? ([a-z][a-z-]+)([^`\n]*)")

group: Any = typer.main.get_command(app)
VERBS: dict[str, Any] = group.commands


def flags(verb: str | None) -> set[str]:
    """The options of a verb, or those before it."""
    command = group if verb is None else VERBS[verb]
    found = {flag for param in command.params for flag in param.opts if flag.startswith("-")}
    return found - {"--help"}


@cache
def synopses() -> dict[str, list[tuple[Path, str]]]:
    """Verb → the lines of synopses that it stands in."""
    found: dict[str, list[tuple[Path, str]]] = {}
    for page in COMMANDS:
        part = section(page.read_text(), "## Synopsis")
        for line in re.findall(r"^pgsub .*$", part, re.MULTILINE):
            if (said := SAID.match(line)) and "SUBSCRIPTION" not in line:
                found.setdefault(said[1], []).append((page, line))
    return found


def test_every_verb_has_one_page() -> None:
    assert set(synopses()) == set(VERBS)
    assert [
        verb for verb, lines in synopses().items() if len({page for page, _ in lines}) > 1
    ] == []


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_verb_s_arguments_are_in_its_synopsis_and_described(verb: str) -> None:
    lines = " ".join(line for _, line in synopses()[verb])
    assert set(OPTION.findall(lines)) == flags(verb)
    described = section(synopses()[verb][0][0].read_text(), "## Parameters")
    for param in VERBS[verb].params:
        if param.param_type_name == "argument":
            name = param.metavar.strip("[].").replace("]", "")
            assert re.search(rf"\b{name}\b", lines), name
            assert f"`{name}`" in described
        elif "--help" not in param.opts:
            assert all(f"**`{flag}" in described for flag in param.opts)


def test_what_stands_before_a_verb() -> None:
    page = (FOLDER / "pgsub.md").read_text()
    for part in ("## Synopsis", "## Parameters"):
        assert set(OPTION.findall(section(page, part))) == flags(None) | {"--help"}
    assert set(re.findall(r"\[`([a-z-]+)`\]", section(page, "## Description"))) == set(VERBS)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_no_page_names_an_option_that_is_none(page: Path) -> None:
    wrong = [
        said[0]
        for said in SAID.finditer(page.read_text())
        if said[1] in VERBS and not set(OPTION.findall(said[2])) <= flags(said[1]) | {"--help"}
    ]
    assert wrong == []


@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: page.stem)
def test_a_page_has_its_sections(page: Path) -> None:
    found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert [name for name in found if name in SECTIONS] == SECTIONS


# SQL


def listed(page: str, what: str) -> dict[str, str]:
    """The options of one kind in a page's synopsis, with what stands behind the name."""
    part = section((FOLDER / page).read_text(), "## Synopsis")
    after = re.split(rf"^where {what} can be(?: one of)?:\n\n", part, flags=re.MULTILINE)[1]
    lines = re.match(r"(?:    .+\n)+", after)
    assert lines is not None
    return dict(line.strip().split(" ", 1) for line in lines[0].splitlines())


LISTS = [
    ("create-subscription.md", "option", CREATE_OPTIONS),
    ("alter-subscription.md", "option", SET_OPTIONS),
    ("alter-subscription.md", "publication_option", PUBLICATION_OPTIONS),
    ("alter-subscription.md", "refresh_option", REFRESH_OPTIONS),
    ("alter-subscription.md", "skip_option", SKIP_OPTIONS),
]


@pytest.mark.parametrize(("page", "what", "options"), LISTS)
def test_a_synopsis_has_the_options_that_the_command_takes(
    page: str, what: str, options: frozenset[str]
) -> None:
    shown = listed(page, what)
    assert set(shown) == options
    described = section((FOLDER / page).read_text(), "## Parameters")
    for name, value in shown.items():
        assert f"**`{name}`** (" in described
        assert value.startswith("[") is takes(name, None), name
        for word in re.findall(r"[a-z_]+|NONE", value):
            assert word in ("boolean", "name", "position") or takes(name, word.lower()), word
        if "boolean" in value:
            assert takes(name, "off")
            assert not takes(name, "perhaps")


def takes(option: str, value: str | None) -> bool:
    """Whether it is a value of the option."""
    try:
        READERS[option](option, value)
    except ReplicationError:
        return False
    return True


def test_defaults_of_create() -> None:
    described = section((FOLDER / "create-subscription.md").read_text(), "## Parameters")
    shown = dict(re.findall(r"^\*\*`(\w+)`\*\* \(\w+, default `(\w+)`\)", described, re.MULTILINE))
    defaults = {
        name: str(getattr(value, "name", value)).lower()
        for name, value in WithOptions().model_dump().items()
    }
    assert shown == {name: value for name, value in defaults.items() if name != "slot_name"}


def written() -> list[Any]:
    """Every SQL text on the pages: blocks, here-documents, arguments of exec, words of alter."""
    found = []
    for page in [*PAGES, ROOT / "README.md"]:
        texts = blocks(page, "sql") if page.parent == FOLDER else []
        for block in [*blocks(page, "sh"), *blocks(page, "console")]:
            texts += re.findall(r"^pgsub exec [^\n]*<<'SQL'\n(.*?)^SQL$", block, re.M | re.S)
            for line in re.findall(r"^(?:\$ )?(pgsub (?:exec|alter) .*)$", block, re.MULTILINE):
                words = shlex.split(line)
                if words[1] == "alter":
                    texts.append(altering(words[2], words[3:]))
                elif words[2:] and not words[2].startswith("-"):
                    texts.append(words[2])
        found += [pytest.param(sql, id=f"{page.stem}-{n}") for n, sql in enumerate(texts)]
    return found


REFUSED = ("conect", "SELECT 1")
"""What examples show the error of."""


@pytest.mark.parametrize("sql", written())
def test_examples_are_statements_of_ours(sql: str) -> None:
    said: list[str] = []

    def check() -> None:
        for source in sources(sql):
            check_options(parse(source, said.append))

    if any(mistake in sql for mistake in REFUSED):
        with pytest.raises(ReplicationError):
            check()
    else:
        check()
    assert said == []


def check_options(statement: Statement) -> None:
    match statement:
        case CreateSubscription():
            create_statement(statement)
        case AlterPublications():
            publication_options(statement)
        case AlterRefresh():
            refresh_copies(statement.options)
        case AlterOptions():
            set_options(statement.options)
        case AlterSkip():
            skip_lsn(statement.options)
