"""The configuration of one published table in the user's words: an entry of ``tables:`` in YAML."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from catalog.errcodes import (
    DuplicateColumn,
    InsufficientPrivilege,
    InvalidParameterValue,
    ReplicationError,
    SyntaxErrorOrAccess,
    UndefinedColumn,
)
from catalog.namespace import qualified_name, string_to_qualified_name
from catalog.pg_subscription import MASK_NULL, TableOptions
from catalog.table_layout import partition_field, sort_field
from config.declared_type import declared_type
from config.problem import problem

_PLACE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
"""An absolute path, or a URI with its scheme."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_HIVE_LOCKS: Final = "engine.hive.lock-enabled"
_KEPT_PROPERTIES: Final = (
    "pgsub.",
    "format-version",
    "owner",
    "gc.enabled",
    "write.merge.",
    "write.update.",
    "write.delete.",
    "write.distribution-mode",
    "write.metadata.delete-after-commit.",
    "write.metadata.previous-versions-max",
    "history.expire.",
    _HIVE_LOCKS,
)
"""Beginnings of the properties that pgsub keeps for itself."""


def _unique_key(columns: list[str]) -> list[str]:
    for column in columns:
        if columns.count(column) > 1:
            raise problem(DuplicateColumn(f'column "{column}" appears twice in a key'))
    return columns


class ColumnModel(BaseModel):
    """An entry of ``columns:`` of a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    to: str | None = Field(
        None, min_length=1, description="name in the lake; default: the publisher's name"
    )
    type: str | None = Field(
        None,
        min_length=1,
        description="type in the lake: `string`, `decimal(p,s)`, `timestamp` or `binary`",
    )
    exclude: bool = Field(False, description="the values never reach the lake")
    mask: Literal["sha256", "null", "keyed-hash"] | None = Field(
        None, description="what the lake has in place of the values"
    )
    mask_key_env: str | None = Field(
        None, min_length=1, description="environment variable with the key of `keyed-hash`"
    )

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, data: Any) -> Any:
        """YAML reads ``mask: null`` as no value, but the user means the word."""
        if isinstance(data, Mapping) and data.get("mask", "") is None:
            return {**data, "mask": "null"}
        return data


UniqueKey = Annotated[list[str], Field(min_length=1), AfterValidator(_unique_key)]


class TableModel(BaseModel):
    """An entry of ``tables:``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    to: str | None = Field(None, description="lake table as schema.table; default: the same names")
    adopt: bool = Field(False, description="use a lake table that exists already")
    shared: bool = Field(
        False, description="one of several tables that are written to one lake table"
    )
    on_key_conflict: Literal["error", "overwrite"] | None = Field(
        None, description="an inserted row whose key is in the table"
    )
    on_unrepresentable: Literal["error", "null", "text", "clamp"] = Field(
        "error", description="a value the lake column cannot hold"
    )
    on_error: Literal["stop", "suspend"] | None = Field(
        None, description="an error of the table; default: the setting default_on_error"
    )
    on_schema_change: Literal["follow", "stop", "suspend"] | None = Field(
        None, description="changed columns; default: the setting on_schema_change"
    )
    on_dropped_column: Literal["keep", "drop"] | None = Field(
        None, description="a dropped column; default: the setting on_dropped_column"
    )
    on_added_default: Literal["fill", "null"] | None = Field(
        None, description="a column added with a default; default: the setting on_added_default"
    )
    on_rename: Literal["follow", "keep", "suspend"] | None = Field(
        None, description="a renamed table; default: the setting on_rename"
    )
    on_attach: Literal["tell", "copy"] | None = Field(
        None, description="an attached or detached partition; default: the setting on_attach"
    )
    defaults: dict[str, str] = Field(
        default_factory=dict, description="Spark expressions for columns only the lake has"
    )
    generated: dict[str, str] = Field(
        default_factory=dict,
        description="Spark expressions over the other columns, computed whenever a row is written",
    )
    keys: list[UniqueKey] = Field(
        default_factory=list, description="lists of columns that no two rows may share"
    )
    columns: dict[str, ColumnModel] = Field(
        default_factory=dict,
        description="published columns with a rule of their own: `{column: {to: name}}`",
    )
    partition_by: list[str] = Field(
        default_factory=list,
        description="partitions of a new lake table, as `days(created_at)` or `bucket(16, id)`",
    )
    sort_by: list[str] = Field(
        default_factory=list, description="order of the rows in the files of a new lake table"
    )
    location: str | None = Field(
        None, description="folder of a new lake table; default: a folder below the warehouse"
    )
    properties: dict[str, str] = Field(
        default_factory=dict, description="Iceberg's properties of a new lake table"
    )
    writer: Literal["auto", "files", "spark"] | None = Field(
        None, description="who writes the rows; default: `lake.writer`"
    )

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, data: Any) -> Any:
        """YAML reads ``on_unrepresentable: null`` as no value, but the user means the word."""
        if not isinstance(data, Mapping):
            return data
        words = ("on_unrepresentable", "on_added_default")
        return {**data, **{word: "null" for word in words if data.get(word, "") is None}}

    def options(self) -> TableOptions:
        """The entry for the catalog; 42602 for a ``to`` other than ``schema.table``."""
        try:
            to = None if self.to is None else lake_table_of(self.to)
        except ReplicationError as error:
            raise problem(error, "to") from None
        if self.keys and self.on_key_conflict == "overwrite":
            raise problem(_exclusive_keys(), "keys")
        for name in self.generated:
            if name in self.defaults:
                raise problem(_default_and_generated(name), "generated")
        self._check_column_rules()
        _check_lake_columns(self.columns, {*self.defaults, *self.generated})
        self._check_layout()
        return TableOptions(
            to=to,
            adopt=self.adopt,
            shared=self.shared,
            on_key_conflict=self.on_key_conflict,
            on_unrepresentable=self.on_unrepresentable,
            defaults=tuple(self.defaults.items()),
            generated=tuple(self.generated.items()),
            keys=tuple(tuple(key) for key in self.keys),
            columns=tuple(
                (name, column.to) for name, column in self.columns.items() if column.to is not None
            ),
            types=tuple(
                (name, str(declared_type(column.type)))
                for name, column in self.columns.items()
                if column.type is not None
            ),
            excluded=tuple(name for name, column in self.columns.items() if column.exclude),
            masks=tuple(
                (name, column.mask, column.mask_key_env or "")
                for name, column in self.columns.items()
                if column.mask is not None
            ),
            on_error=self.on_error,
            on_schema_change=self.on_schema_change,
            on_dropped_column=self.on_dropped_column,
            on_added_default=self.on_added_default,
            on_rename=self.on_rename,
            on_attach=self.on_attach,
            partition_by=tuple(self.partition_by),
            sort_by=tuple(self.sort_by),
            location=self.location,
            properties=tuple(self.properties.items()),
            writer=self.writer,
        )

    def _check_column_rules(self) -> None:
        """42601 for a rule that says nothing, or too much; 22023 for a key that cannot be one."""
        for name, column in self.columns.items():
            for error in _rule_mistakes(name, column):
                raise problem(error, "columns", name)
            left_out = column.exclude or column.mask == MASK_NULL
            if any(name in key for key in self.keys) and (left_out or column.mask == "sha256"):
                raise problem(_hidden_key(name, "masked" if column.mask else "excluded"), "keys")

    def _check_layout(self) -> None:
        """42601 for an unknown word, 42701 for a repeated one, 42703 for an excluded column, 22023
        for a folder or a property."""
        excluded = {name for name, column in self.columns.items() if column.exclude}
        excluded -= {*self.defaults, *self.generated}
        for option, words, read in (
            ("partition_by", self.partition_by, partition_field),
            ("sort_by", self.sort_by, sort_field),
        ):
            try:
                fields = [read(word) for word in words]
            except ReplicationError as error:
                raise problem(error, option) from None
            for field in fields:
                if field.column in excluded:
                    hidden = UndefinedColumn(f'column "{field.column}" of {option} is excluded')
                    raise problem(hidden, option)
                if fields.count(field) > 1:
                    twice = DuplicateColumn(f'column "{field.column}" appears twice in {option}')
                    raise problem(twice, option)
        if self.location is not None and not _PLACE.match(self.location):
            raise problem(_not_a_folder(self.location), "location")
        for name in self.properties:
            if name.startswith(_KEPT_PROPERTIES):
                raise problem(_kept_property(name), "properties", name)


def lake_table_of(text: str) -> tuple[str, str]:
    """Schema and name of a lake table; 42602, or 42501 for the schema of the status tables."""
    ident = string_to_qualified_name(text)
    if ident[0] == "pg_catalog":
        raise InsufficientPrivilege(
            f'permission denied to create "{qualified_name(*ident)}"',
            detail="The schema pg_catalog of the lake holds the status tables.",
            hint="Map the table to another schema.",
        )
    return ident


def _check_lake_columns(columns: Mapping[str, ColumnModel], lake_only: Collection[str]) -> None:
    """42701 if a lake column gets its values from two places."""
    taken = set(lake_only)
    for name, column in columns.items():
        if column.to is None:
            continue
        if column.to in taken:
            raise problem(
                DuplicateColumn(
                    f'lake column "{column.to}" is named twice',
                    hint="Map the column to a name that no other column, default or generated "
                    "column of the table has.",
                ),
                "columns",
                name,
            )
        taken.add(column.to)


def _not_a_folder(location: str) -> InvalidParameterValue:
    return InvalidParameterValue(
        f'invalid value for location: "{location}"',
        hint="Write an absolute path, or a URI as s3://bucket/folder, of a folder that no other "
        "table has.",
    )


def _kept_property(name: str) -> InvalidParameterValue:
    return InvalidParameterValue(
        f'property "{name}" of a lake table cannot be set',
        detail="All tables of a catalog take the same locks, and pgsub asks the catalog once."
        if name == _HIVE_LOCKS
        else "pgsub sets the property itself: rows of a batch depend on it.",
        hint=f"Set hadoop.iceberg.{_HIVE_LOCKS} in lake.catalog." if name == _HIVE_LOCKS else None,
    )


def _exclusive_keys() -> SyntaxErrorOrAccess:
    return SyntaxErrorOrAccess(
        "on_key_conflict = overwrite and keys are mutually exclusive options",
        hint="A row that breaks one of several keys stops the table.",
    )


def _rule_mistakes(name: str, column: ColumnModel) -> Iterator[ReplicationError]:
    """What an entry of ``columns`` says too little, or too much."""
    rules = {"to": column.to, "mask": column.mask, "type": column.type}
    if not column.exclude and not any(rules.values()):
        yield SyntaxErrorOrAccess(f'column "{name}" has no rule')
    for option, given in rules.items():
        if column.exclude and given is not None:
            yield SyntaxErrorOrAccess(f"{option} and exclude are mutually exclusive options")
    if column.mask is not None and column.type is not None:
        yield SyntaxErrorOrAccess("type and mask are mutually exclusive options")
    if column.type is not None:
        try:
            declared_type(column.type)
        except ReplicationError as error:
            yield error
    if (column.mask == "keyed-hash") != (column.mask_key_env is not None):
        yield SyntaxErrorOrAccess(
            "mask = keyed-hash and mask_key_env need each other",
            hint="mask_key_env is the name of the environment variable that holds the key.",
        )
    if column.mask_key_env is not None and not _VARIABLE.fullmatch(column.mask_key_env):
        # The text may be the key itself, so it is not repeated.
        yield InvalidParameterValue(
            f'mask_key_env of column "{name}" is no name of an environment variable',
            hint="Write the name of the variable that holds the key, never the key.",
        )


def _hidden_key(name: str, how: str) -> InvalidParameterValue:
    return InvalidParameterValue(
        f'column "{name}" of a key cannot be {how}',
        detail="The lake could not tell whether two rows share the key."
        if how == "excluded"
        else "Only mask: keyed-hash is for columns of keys.",
    )


def _default_and_generated(name: str) -> SyntaxErrorOrAccess:
    return SyntaxErrorOrAccess(
        f'both default and generation expression specified for column "{name}"'
    )
