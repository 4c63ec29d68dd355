"""The configuration file: YAML in, statements and settings out, mistakes with their places.

Every error is a ``ConfigFileError`` that names file, line and key; where PostgreSQL has an error
for the mistake, the SQLSTATE and the words after the place are PostgreSQL's. All mistakes of a file
are reported at once, the first mistake as the primary message.

``python -P -m config.load`` prints the JSON Schema for editors, ``… settings`` and ``… options``
the tables of the configuration reference.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from catalog.errcodes import DUPLICATE_OBJECT, SYNTAX_ERROR, ConfigFileError, ReplicationError
from config.guc import Settings, setting_docs, stored_settings
from config.lake import LakeConfig, SparkConfig, check_commit_service, stored_lake
from config.problem import unwrap
from config.subscription import CreateSubscriptionStmt, SubscriptionModel, WithOptions

Key = tuple[str | int, ...]

_TOP: Final = "top level"


@dataclass(frozen=True, slots=True)
class Config:
    """The contents of a configuration file."""

    subscriptions: list[CreateSubscriptionStmt]
    lake: LakeConfig
    spark: SparkConfig
    settings: Settings

    def stored(self) -> dict[str, Any]:
        """The part for the catalog and a later ``run``: everything except the subscriptions."""
        return {
            "lake": self.lake.model_dump(),
            "spark": self.spark.model_dump(),
            "settings": self.settings.model_dump(exclude_unset=True),
        }


def from_stored(stored: Mapping[str, Any]) -> Config:
    """The inverse of ``Config.stored``, without subscriptions; {} gives the defaults."""
    return Config(
        subscriptions=[],
        lake=stored_lake(stored),
        spark=SparkConfig.model_validate(stored.get("spark", {})),
        settings=stored_settings(stored),
    )


class FileModel(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="pgsub configuration")

    subscriptions: dict[str, SubscriptionModel] = Field(description="subscriptions by name")
    lake: LakeConfig = Field(default_factory=LakeConfig, description="the tables' format and home")
    spark: SparkConfig = Field(default_factory=SparkConfig, description="who runs Spark")
    settings: Settings = Field(
        default_factory=Settings, description="settings of launcher and workers"
    )


@dataclass(frozen=True, slots=True)
class _Mistake:
    key: Key
    error: ReplicationError


class _Lines:
    """Key → line in the file, and the mistakes found by the reader."""

    def __init__(self) -> None:
        self.lines: dict[Key, int] = {(): 1}
        self.mistakes: list[_Mistake] = []

    def of(self, key: Key) -> int:
        """The line of the longest part of ``key`` in the file."""
        while key not in self.lines:
            key = key[:-1]
        return self.lines[key]


def load(path: Path | str) -> Config:
    """Read the configuration file at ``path``."""
    name = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigFileError(
            f'could not open configuration file "{name}": {error.strerror}'
        ) from None
    except UnicodeDecodeError:
        raise ConfigFileError(f'configuration file "{name}" is not UTF-8 text') from None
    return parse(text, name, Path(path).parent)


def parse(text: str, name: str, folder: Path | None = None) -> Config:
    """Read configuration text; ``name`` stands for the file in errors.

    Files in connection strings (certificates, password files) are relative to ``folder``.
    """
    data, lines = _read_yaml(text, name)
    mistakes = lines.mistakes
    model: FileModel | None = None
    if not mistakes:
        try:
            model = FileModel.model_validate(data, context={"folder": folder})
        except ValidationError as error:
            mistakes = [_mistake(details) for details in error.errors(include_url=False)]
    statements = []
    if model is not None:
        for subname, body in model.subscriptions.items():
            try:
                statements.append(body.statement(subname))
            except PydanticCustomError as error:
                details = {"type": error.type, "ctx": error.context}
                found, key = unwrap(details)
                assert found is not None  # noqa: S101  # only ``problem`` raises here
                mistakes.append(_Mistake(("subscriptions", subname, *key), found))
        try:
            check_commit_service(model.lake, model.spark)
        except ReplicationError as error:
            mistakes.append(_Mistake(("spark", "commit_service"), error))
    if mistakes or model is None:
        raise _report(mistakes, lines, name)
    return Config(statements, model.lake, model.spark, model.settings)


def _report(mistakes: list[_Mistake], lines: _Lines, name: str) -> ConfigFileError:
    """An error for all mistakes, with code and hint of the first."""

    def say(mistake: _Mistake) -> str:
        key = ".".join(map(str, mistake.key)) or _TOP
        line = lines.of(mistake.key)
        return f'configuration file "{name}", line {line}, key "{key}": {mistake.error.primary}'

    # On a line an unknown key comes before a missing key: often the first is the second misspelt.
    ordered = sorted(
        mistakes,
        key=lambda mistake: (lines.of(mistake.key), mistake.error.primary.endswith("is missing")),
    )
    first, rest = ordered[0], ordered[1:]
    detail = first.error.detail
    if rest:
        detail = "Also wrong: " + "; ".join(say(mistake) for mistake in rest) + "."
    return ConfigFileError(
        say(first), detail=detail, hint=first.error.hint, sqlstate=first.error.code
    )


def _mistake(details: Mapping[str, Any]) -> _Mistake:
    """A pydantic error in plain words, never with the refused value."""
    error, below = unwrap(details)
    key: Key = tuple(part for part in details["loc"] if part != "[key]") + below
    if error is None:
        kind = details["type"]
        last = str(key[-1]) if key else _TOP
        said = _WORDS.get(kind, details["msg"][:1].lower() + details["msg"][1:])
        hint = "docs/configuration.md lists the keys with their types and defaults."
        if kind == "extra_forbidden":
            hint = f"Known keys: {', '.join(_known_keys(key[:-1]))}."
        error = ConfigFileError(said.format(key=last), hint=hint)
    return _Mistake(key, error)


_WORDS: Final = {
    "extra_forbidden": 'unrecognized key "{key}"',
    "missing": 'key "{key}" is missing',
    "string_type": "must be text; put it in quotes if it is",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}
"""pydantic's error type → plain words in place of words about Python."""


def _known_keys(path: Key) -> list[str]:
    """The keys that are allowed under ``path``."""
    schema = json_schema()
    node: dict[str, Any] = schema
    for part in path:
        node = _resolve(schema, node)
        node = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
    return sorted(_resolve(schema, node).get("properties", {}))


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    if reference is None:
        return node
    definition: dict[str, Any] = schema["$defs"][str(reference).rsplit("/", 1)[-1]]
    return definition


# YAML, with lines


def _read_yaml(text: str, name: str) -> tuple[Any, _Lines]:
    """The document as Python values, and the line of every key."""
    lines = _Lines()
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigFileError(
                f'configuration file "{name}", line 1: the file is empty',
                hint='It needs at least the key "subscriptions".',
            )
        _check_node(node, (), lines, [])
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigFileError(
            f'configuration file "{name}", line {line}: not YAML: {error.problem}',
            hint="Look there, and just above, for a tab, a wrong indentation, or a missing colon, "
            "bracket or quote.",
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigFileError(
            f'configuration file "{name}": not YAML', hint="It has to be a text file in YAML."
        ) from None


def _check_node(node: yaml.Node, key: Key, lines: _Lines, above: list[yaml.Node]) -> None:
    """Note the lines of all keys below ``node``; a repeated key is a mistake."""
    if any(node is other for other in above):
        lines.mistakes.append(_Mistake(key, ConfigFileError("an alias must not contain itself")))
        return
    lines.lines.setdefault(key, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _check_node(item, (*key, number), lines, [*above, node])
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key_node, value in node.value:
            part = str(key_node.value)
            below = (*key, part)
            if part in seen:
                lines.lines[below] = key_node.start_mark.line + 1
                lines.mistakes.append(_Mistake(below, _twice(below)))
                continue
            seen.add(part)
            lines.lines[below] = key_node.start_mark.line + 1
            _check_node(value, below, lines, [*above, node])


def _twice(key: Key) -> ReplicationError:
    """PostgreSQL's error for a repeated key."""
    if len(key) == 2 and key[0] == "subscriptions":
        return ConfigFileError(f'subscription "{key[1]}" already exists', sqlstate=DUPLICATE_OBJECT)
    if len(key) == 4 and key[2] == "with":
        return ConfigFileError("conflicting or redundant options", sqlstate=SYNTAX_ERROR)
    return ConfigFileError(f'key "{key[-1]}" is there twice')


# The reference


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the configuration file."""
    return FileModel.model_json_schema()


def settings_table() -> str:
    """The settings as a Markdown table."""
    rows = ((f"`{d.name}`", d.kind, d.default, d.description) for d in setting_docs())
    return _markdown(("setting", "kind", "default", "what it limits"), rows)


def options_table() -> str:
    """The options of CREATE SUBSCRIPTION as a Markdown table."""
    defaults: dict[str, Any] = {**WithOptions().model_dump(), "slot_name": "the name"}
    defaults["streaming"] = "parallel"
    rows = (
        (f"`{name}`", str(defaults[name]).lower(), field.description or "")
        for name, field in WithOptions.model_fields.items()
    )
    return _markdown(("option", "default", "meaning"), rows)


def _markdown(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    asked = sys.argv[1:]
    if asked == ["settings"]:
        sys.stdout.write(settings_table())
    elif asked == ["options"]:
        sys.stdout.write(options_table())
    else:
        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
