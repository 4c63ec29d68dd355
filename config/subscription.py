"""A subscription in the user's words: ``CREATE SUBSCRIPTION`` in YAML.

``SubscriptionModel`` is the YAML's shape; the commands take the model's ``statement``. The
options under ``with`` have PostgreSQL 18's names, defaults, conflict rules and errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from catalog.errcodes import (
    DuplicateTable,
    InvalidName,
    InvalidParameterValue,
    ReplicationError,
    SyntaxErrorOrAccess,
)
from catalog.namespace import MESSAGES_TABLE, qualified_name, string_to_qualified_name
from catalog.pg_subscription import (
    Refresh,
    Stream,
    SyncSlot,
    TableOptions,
    check_publications,
    check_slot_name,
    check_subscription_name,
)
from config.connection_key import check_one_password, read_connection
from config.conninfo import Conninfo
from config.define import READERS, SYNCHRONOUS_COMMIT
from config.guc import Seconds
from config.problem import problem
from config.table_options import TableModel, lake_table_of


def _option(value: Any, info: ValidationInfo) -> Any:
    """A value of ``with:``, read as the value of an SQL option is."""
    name = info.field_name or ""
    if name == "slot_name" and isinstance(value, str) and value.lower() == "none":
        value = "none"  # SQL folds the word NONE; YAML does not
    try:
        return READERS[name](name, value)
    except ReplicationError as error:
        raise problem(error) from None


Boolean = Annotated[bool, BeforeValidator(_option), WithJsonSchema({"type": "boolean"})]


class WithOptions(BaseModel):
    """``with:``; a field without a value in the file counts as absent, despite the default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect: Boolean = Field(True, description="contact the publisher at CREATE")
    create_slot: Boolean = Field(True, description="make the replication slot")
    enabled: Boolean = Field(True, description="start replicating at once")
    slot_name: Annotated[
        str | None, BeforeValidator(_option), WithJsonSchema({"type": "string"})
    ] = Field(None, description="replication slot, or NONE; default: the subscription's name")
    copy_data: Boolean = Field(True, description="copy the rows that are there already")
    synchronous_commit: Annotated[
        str,
        BeforeValidator(_option),
        WithJsonSchema({"enum": [*SYNCHRONOUS_COMMIT, True, False]}),
    ] = Field("on", description="off: the next batch does not wait until the last is on the disk")
    binary: Boolean = Field(
        False,
        description="insist on binary format: changes from 14 on, copies from 16",
    )
    streaming: Annotated[
        Stream,
        BeforeValidator(_option),
        WithJsonSchema({"enum": ["on", "off", "parallel", True, False]}),
    ] = Field(
        Stream.PARALLEL,
        description="on: large transactions arrive while they run; parallel: new rows may also be "
        "written meanwhile",
    )
    two_phase: Boolean = Field(
        False, description="prepared transactions are sent at PREPARE (15 or later)"
    )
    disable_on_error: Boolean = Field(False, description="disable the subscription at an error")
    password_required: Boolean = Field(
        True, description="a connection must have its own password; with is_superuser not asked for"
    )
    run_as_owner: Boolean = Field(False, description="kept and shown; the lake has no roles")
    origin: Annotated[str, BeforeValidator(_option), WithJsonSchema({"enum": ["any", "none"]})] = (
        Field("any", description="none: only changes without an origin (publisher 16 or later)")
    )
    failover: Boolean = Field(False, description="slot is synchronised to standbys (17 or later)")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for name in data:
                if name not in cls.model_fields:
                    raise problem(unrecognized(str(name)), str(name))
        return data


@dataclass(frozen=True, slots=True)
class SubOpts:
    """The options in force, PostgreSQL's ``SubOpts``: defaults and conflicts settled.

    ``slot_name`` is None for NONE. ``specified`` names the options of the user's text.
    """

    specified: frozenset[str]
    connect: bool
    create_slot: bool
    enabled: bool
    slot_name: str | None
    copy_data: bool
    synchronous_commit: str
    binary: bool
    streaming: Stream
    two_phase: bool
    disable_on_error: bool
    password_required: bool
    run_as_owner: bool
    origin: str
    failover: bool


def parse_subscription_options(options: WithOptions, subname: str) -> SubOpts:
    """The options of ``with:``, settled; a refusal is a pydantic error with the key."""
    try:
        return settle(options.model_dump(), frozenset(options.model_fields_set), subname)
    except OptionError as refused:
        raise problem(refused.error, *refused.key) from None


class OptionError(Exception):
    """``error`` about the options; ``key`` names the option whose line in the file is wanted."""

    def __init__(self, error: ReplicationError, *key: str) -> None:
        super().__init__(error.primary)
        self.error = error
        self.key = key


def settle(written: Mapping[str, Any], specified: frozenset[str], subname: str) -> SubOpts:
    """The second half of ``parse_subscription_options``: defaults settled, conflicts refused.

    ``written`` has a value for every option, the default for options outside ``specified``.
    """
    values = dict(written)
    if not values["connect"]:
        for name in ("enabled", "create_slot", "copy_data"):
            if name in specified and values[name]:
                raise _exclusive("connect = false", f"{name} = true", name)
            values[name] = False
    if values["slot_name"] is None and "slot_name" in specified:
        for name in ("enabled", "create_slot"):
            if values[name] and name in specified:
                raise _exclusive("slot_name = NONE", f"{name} = true", name)
            if values[name]:
                must = f"subscription with slot_name = NONE must also set {name} = false"
                raise OptionError(SyntaxErrorOrAccess(must), "slot_name")
    if "slot_name" not in specified:
        try:
            check_slot_name(subname)
        except ReplicationError as error:
            hint = "Name the slot with slot_name, or rename the subscription."
            raise OptionError(InvalidName(error.primary, hint=hint, sqlstate=error.code)) from None
        values["slot_name"] = subname
    return SubOpts(specified=specified, **values)


def unrecognized(name: str) -> SyntaxErrorOrAccess:
    """An unknown option, or an option of a different command."""
    return SyntaxErrorOrAccess(f'unrecognized subscription parameter: "{name}"')


def _exclusive(one: str, other: str, key: str) -> OptionError:
    return OptionError(
        SyntaxErrorOrAccess(f"{one} and {other} are mutually exclusive options"), key
    )


@dataclass(frozen=True, slots=True)
class CreateSubscriptionStmt:
    """The statement CREATE SUBSCRIPTION. Keys of ``tables`` are ``namespace.qualified_name``s."""

    name: str
    connection: Conninfo
    password_env: str | None
    password_command: str | None
    password_command_ttl: float
    publication: tuple[str, ...]
    options: SubOpts
    sync_slot: SyncSlot
    refresh: Refresh
    tables: dict[str, TableOptions]


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class SubscriptionModel(BaseModel):
    """An entry of ``subscriptions:``."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    connection: Annotated[
        Conninfo, BeforeValidator(read_connection), WithJsonSchema({"type": "string"})
    ] = Field(description="libpq connection string or URI of the publisher")
    password_env: str | None = Field(
        None, min_length=1, description="environment variable that holds the password"
    )
    password_command: str | None = Field(
        None,
        min_length=1,
        description="shell command that prints the password, run before each connection",
    )
    password_command_ttl: Seconds = Field(
        0.0, description="how long a process keeps the output of password_command"
    )
    publication: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        BeforeValidator(_one_or_more),
        Field(min_length=1),
    ] = Field(description="publications to subscribe to, in this order")
    with_: WithOptions = Field(
        default_factory=WithOptions, alias="with", description="options of CREATE SUBSCRIPTION"
    )
    sync_slot: Literal["temporary", "permanent"] = Field(
        "temporary", description="replication slot of a table synchronisation"
    )
    refresh: Literal["manual", "auto"] = Field(
        "manual",
        description="tables that join or leave a publication: by `pgsub refresh`, or by themselves",
    )
    messages_to: str | None = Field(
        None,
        description="lake table, as schema.table, that gets the publisher's logical messages "
        "(14 or later)",
    )
    tables: dict[str, TableModel] = Field(
        default_factory=dict, description="per published table, as schema.table"
    )

    def statement(self, name: str) -> CreateSubscriptionStmt:
        """Check the rules about several keys and settle the options.

        Raises the pydantic error of ``problem``, with the key of the mistake.
        """
        try:
            check_subscription_name(name)
        except ReplicationError as error:
            raise problem(error) from None
        check_one_password(self.connection, self.password_env, self.password_command)
        try:
            check_publications(self.publication)
        except ReplicationError as error:
            raise problem(error, "publication") from None
        try:
            options = parse_subscription_options(self.with_, name)
        except Exception as error:
            raise _below(error, "with") from None
        if self.refresh == "auto" and options.two_phase:
            both = SyntaxErrorOrAccess(
                "refresh = auto and two_phase are mutually exclusive options"
            )
            raise problem(both, "refresh")
        return CreateSubscriptionStmt(
            name=name,
            connection=self.connection,
            password_env=self.password_env,
            password_command=self.password_command,
            password_command_ttl=self.password_command_ttl,
            publication=tuple(self.publication),
            options=options,
            sync_slot=SyncSlot(self.sync_slot),
            refresh=Refresh(self.refresh),
            tables=self._tables(),
        )

    def _tables(self) -> dict[str, TableOptions]:
        """The tables by normal name; no two entries name a single lake table."""
        tables: dict[str, TableOptions] = {}
        targets: dict[tuple[str, str], str] = {}
        for key, model in self.tables.items():
            try:
                source = string_to_qualified_name(key)
                options = model.options()
            except ReplicationError as error:
                raise problem(error, "tables", key) from None
            except Exception as error:
                raise _below(error, "tables", key) from None
            name = qualified_name(*source)
            if name in tables:
                raise problem(SyntaxErrorOrAccess(f'table "{name}" is named twice'), "tables", key)
            target = options.to or source
            other = targets.setdefault(target, name)
            if other != name and not (options.shared and tables[other].shared):
                raise problem(mapped_twice(target, other, name), "tables", key)
            tables[name] = options
        self._add_messages(tables, targets)
        return tables

    def _add_messages(
        self, tables: dict[str, TableOptions], targets: Mapping[tuple[str, str], str]
    ) -> None:
        """Add ``messages_to`` as the lake table of the table of logical messages."""
        name = qualified_name(*MESSAGES_TABLE)
        options = tables.get(name, TableOptions())
        if self.messages_to is None:
            if name in tables:
                refused = InvalidParameterValue(
                    f'table "{name}" is the table of logical messages',
                    hint="Name its lake table with messages_to.",
                )
                raise problem(refused, "tables", name)
            return
        try:
            target = lake_table_of(self.messages_to)
        except ReplicationError as error:
            raise problem(error, "messages_to") from None
        if options.to is not None:
            refused = InvalidParameterValue(
                f'table "{name}" cannot have "to"',
                hint="Name the lake table with messages_to alone.",
            )
            raise problem(refused, "tables", name)
        other = targets.get(target, name)
        if other != name and not (options.shared and tables[other].shared):
            raise problem(mapped_twice(target, other, name), "messages_to")
        tables[name] = replace(options, to=target)


def mapped_twice(target: tuple[str, str], one: str, other: str) -> DuplicateTable:
    """The error for two published tables with a single lake table."""
    return DuplicateTable(
        f'tables "{one}" and "{other}" are both mapped to lake table "{qualified_name(*target)}"',
        hint="Give one of them another name with to:, or say shared: true for both.",
    )


def _below(error: Exception, *key: str) -> Exception:
    """A problem with ``key`` in front of the problem's key."""
    context = getattr(error, "context", None)
    if not context or "error" not in context:
        return error
    return problem(context["error"], *key, *context["key"])
