"""The settings, by PostgreSQL's names where PostgreSQL has them, with its units and ranges.

A number that a user may change is a setting; the remaining numbers are limits (``config.limits``).
A time is text with a unit
("5s"), or a number in the setting's base unit as in ``postgresql.conf``; the attribute is in
seconds. A memory size is text with a unit ("64MB"), or a number of kilobytes; the attribute is in
bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

from catalog.errcodes import InvalidParameterValue, ReplicationError
from config.define import boolean
from config.listen import OFF, listen_address
from config.problem import problem
from config.quantities import (
    DEFAULT_SPOOL_LIMIT,
    TIME_UNITS,
    format_duration,
    format_memory,
    parse_duration,
    parse_memory,
    quantity_hint,
)

_INT_MAX: Final = 2**31 - 1


def _checked(
    parse: Callable[..., Any], base: str, low: float, high: float, show: Callable[[Any], str]
) -> BeforeValidator:
    """A validator that parses a quantity and checks the range, with PostgreSQL's words."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise problem(
                InvalidParameterValue(
                    f'invalid value for parameter "{name}": it needs a number',
                    hint=quantity_hint(base),
                )
            )
        try:
            parsed = parse(value, base, name)
        except ReplicationError as error:
            raise problem(error) from None
        if not low <= parsed <= high:
            raise problem(
                InvalidParameterValue(
                    f'"{value}" is outside the valid range for parameter "{name}"'
                    f" ({show(low)} .. {show(high)})"
                )
            )
        return parsed

    return BeforeValidator(validate)


def _switch(value: Any, info: ValidationInfo) -> bool:
    """``parse_bool``, with the words PostgreSQL has for a setting."""
    found = None if value is None else boolean(value)
    if found is None:
        raise problem(
            InvalidParameterValue(f'parameter "{info.field_name}" requires a Boolean value')
        )
    return found


def _schema(what: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "integer"], "description": what})


_TIME_TEXT: Final = PlainSerializer(format_duration, return_type=str)
_MEMORY_TEXT: Final = PlainSerializer(format_memory, return_type=str)
_INT_MAX_MS: Final = _INT_MAX / 1000

Milliseconds = Annotated[
    float,
    _checked(parse_duration, "ms", 0, _INT_MAX_MS, format_duration),
    _TIME_TEXT,
    _schema('a time such as "5s"; without a unit, milliseconds'),
]
PositiveMilliseconds = Annotated[
    float,
    _checked(parse_duration, "ms", 0.001, _INT_MAX_MS, format_duration),
    _TIME_TEXT,
    _schema('a time such as "5s", at least 1ms; without a unit, milliseconds'),
]
Seconds = Annotated[
    float,
    _checked(parse_duration, "s", 0, _INT_MAX_MS, format_duration),
    _TIME_TEXT,
    _schema('a time such as "10s"; without a unit, seconds'),
]
_DAY: Final = TIME_UNITS["d"] / 10**6
Days = Annotated[
    float,
    _checked(parse_duration, "s", _DAY, _INT_MAX_MS, format_duration),
    _TIME_TEXT,
    _schema('a time such as "3d", at least 1d; without a unit, seconds'),
]
Memory = Annotated[
    int,
    _checked(parse_memory, "kB", 2**16, 2**50, format_memory),
    _MEMORY_TEXT,
    _schema('a size such as "64MB", at least 64kB; without a unit, kilobytes'),
]

Switch = Annotated[
    bool,
    BeforeValidator(_switch),
    PlainSerializer(lambda on: "on" if on else "off", return_type=str),
    WithJsonSchema({"type": "boolean"}),
]


def _listen(value: Any, info: ValidationInfo) -> str:
    try:
        return listen_address(value, info.field_name or "")
    except ReplicationError as error:
        raise problem(error) from None


ListenAddress = Annotated[
    str,
    BeforeValidator(_listen),
    WithJsonSchema(
        {
            "type": ["string", "integer", "boolean"],
            "description": 'off, a port of 127.0.0.1, or "host:port"',
        }
    ),
]


class Settings(BaseModel):
    """``settings:`` of the configuration file; times in seconds, sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_logical_replication_workers: int = Field(
        4, ge=0, le=262143, description="apply and sync workers together, over all subscriptions"
    )
    max_sync_workers_per_subscription: int = Field(
        2, ge=0, le=262143, description="tables of one subscription synchronised at a time"
    )
    max_parallel_apply_workers_per_subscription: int = Field(
        2,
        ge=0,
        le=1024,
        description="large transactions of one subscription whose rows are written while they run, "
        "with streaming = parallel; each takes a thread of the apply worker. With 0 parallel works "
        "as on",
    )
    wal_retrieve_retry_interval: PositiveMilliseconds = Field(
        5.0, description="how long a failed worker or table waits before it is tried again"
    )
    sync_handover_timeout: Milliseconds = Field(
        60.0,
        description="a copy that is done waits this long for an apply worker if there is none",
    )
    create_slot_timeout: Milliseconds = Field(
        60.0,
        description="making a slot on a standby is given up after this long; 0 waits for ever",
    )
    wal_receiver_timeout: Milliseconds = Field(
        60.0, description="a publisher silent for this long is given up; 0 waits for ever"
    )
    wal_receiver_status_interval: Seconds = Field(
        10.0, description="how often progress is reported at least; 0 only when asked"
    )
    spool_memory: Memory = Field(
        64 * 2**20, description="received changes held in memory; more goes to disk"
    )
    spool_max_size: Memory = Field(
        parse_memory(DEFAULT_SPOOL_LIMIT),
        description="received changes held in all; past it reading pauses between transactions",
    )
    batch_max_bytes: Memory = Field(
        64 * 2**20, description="size of a batch of transactions; a larger one goes alone"
    )
    batch_max_rows: int = Field(
        1_000_000, ge=1, le=_INT_MAX, description="changes in a batch of transactions"
    )
    apply_work_mem: Memory = Field(
        256 * 2**20,
        description="memory to apply changes with; a larger transaction is applied in slices, and "
        "shown when the last one is written",
    )
    default_on_error: Literal["stop", "suspend"] = Field(
        "stop",
        description="an error of a table without on_error: stop the subscription, as PostgreSQL "
        "does, or suspend the table and go on with the others",
    )
    on_schema_change: Literal["follow", "stop", "suspend"] = Field(
        "follow",
        description="columns of a table change on the publisher: the lake table follows, or the "
        "change is an error that stops the subscription or suspends the table",
    )
    on_dropped_column: Literal["keep", "drop"] = Field(
        "keep",
        description="a column that the publisher dropped: the lake keeps it, NULL in new rows, or "
        "drops it too",
    )
    on_added_default: Literal["fill", "null"] = Field(
        "fill",
        description="a column is added with a default: rows from before get the value that the "
        "publisher stored, or stay NULL",
    )
    ddl_capture: bool = Field(
        False,
        description="event triggers of the publisher (`pgsub ddl-capture`) tell each change of a "
        "table at its position, in place of a look at the publisher's catalog",
    )
    on_rename: Literal["follow", "keep", "suspend"] = Field(
        "follow",
        description="a table gets another name or schema on the publisher: the lake table gets it "
        "too, or keeps its name, or the table is suspended",
    )
    on_attach: Literal["tell", "copy"] = Field(
        "tell",
        description="a partition with rows is attached to a table that is published via its root, "
        "or detached: status and log tell it, or the table is copied again",
    )
    auto_recopy_max_bytes: Memory = Field(
        10 * 2**30,
        description="a table up to this size on the publisher is copied again by itself if a "
        "change of it cannot be followed, and written again for an added default; a larger one is "
        "suspended",
    )
    key_cache: Memory = Field(
        2**30,
        description="disk for the keys of data files, so that a batch of changes and a restart do "
        "not read them from the lake again; what nobody uses makes room; 0: keys stay in memory",
    )
    batch_delay: Milliseconds = Field(
        1.0,
        description="behind a batch of 500 small transactions or more the worker waits so long "
        "for others, while any come",
    )
    lake_commit_workers: int = Field(
        20, ge=1, le=64, description="tables whose commits are in flight at a time"
    )
    copy_range_bytes: Memory = Field(
        64 * 2**20,
        description="size of a range of an initial copy, at most twice it; smaller tables are one",
    )
    copy_workers: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        le=1024,
        description="ranges of one table copied at a time",
    )
    local_relation_rows: int = Field(
        10_000, ge=0, le=10_000_000, description="up to this many rows travel without staging"
    )
    status_tables_interval: Seconds = Field(
        60.0,
        description="lake.pg_catalog is written at most so often; 0 only before pgsub sql reads it",
    )
    track_commit_timestamp: Switch = Field(
        False,
        description="on: new lake tables get Iceberg's format 3, and changes of rows that somebody "
        "else changed last are told and counted",
    )
    autovacuum: Switch = Field(
        True, description="off: lake files are not rewritten, small or with deleted rows"
    )
    autovacuum_naptime: Seconds = Field(
        60.0, description="least time between two rewrites of lake files for their deleted rows"
    )
    autovacuum_vacuum_threshold: int = Field(
        100_000, ge=0, le=_INT_MAX, description="deleted rows of a lake table before such a rewrite"
    )
    autovacuum_vacuum_scale_factor: float = Field(
        0.2, ge=0, le=100, description="and this share of its rows on top"
    )
    autovacuum_max_size: Memory = Field(
        128 * 2**20, description="size of lake files that one such rewrite takes, at most"
    )
    compaction_batches: int = Field(
        100,
        ge=1,
        le=_INT_MAX,
        description="batches of a lake table between two rewrites of its small files together; one "
        "of less than 10,000 rows counts for ten",
    )
    compaction_small_size: Memory = Field(
        2**20,
        description="lake files below this size are written together; by the worker itself also "
        "four of up to four times the size, and so on up to a quarter of compaction_target_size",
    )
    compaction_target_size: Memory = Field(
        64 * 2**20, description="size of the lake files that a rewrite leaves"
    )
    snapshot_expiry_batches: int = Field(
        300,
        ge=0,
        le=_INT_MAX,
        description="batches of a lake table between two expiries of its old snapshots; 0: they "
        "never expire by themselves",
    )
    snapshot_retain_last: int = Field(
        100,
        ge=1,
        le=_INT_MAX,
        description="the last snapshots of main, which stay to travel back to",
    )
    snapshot_retain_age: Seconds = Field(
        0.0, description="snapshots younger than this stay as well, however many they are"
    )
    file_grace: Seconds = Field(
        3600.0,
        description="how long the files of an expired snapshot stay for queries that read them; 0: "
        "they go with the snapshot",
    )
    orphan_removal_interval: Seconds = Field(
        _DAY,
        description="how often files that no snapshot knows are removed from a lake table; 0 never",
    )
    orphan_removal_min_age: Days = Field(
        3 * _DAY, description="such a file is removed when it is this old, never before"
    )
    lake_heartbeat_interval: Seconds = Field(
        30.0,
        description="how often the launcher has the embedded lake server asked whether it lives; 0 "
        "never",
    )
    lake_heartbeat_timeout: Seconds = Field(
        120.0,
        description="an embedded lake server that has not answered for so long, or for two "
        "intervals, is killed and started again",
    )
    lake_server_memory: Memory = Field(2 * 2**30, description="heap of the embedded lake server")
    log_format: Literal["text", "json"] = Field(
        "text", description="lines of the log: as PostgreSQL's text, or one JSON object each"
    )
    metrics_listen: ListenAddress = Field(
        OFF,
        description="address for /metrics, /livez and /readyz: off, a port of 127.0.0.1, or "
        '"host:port"; needs a restart',
    )
    metrics_per_table: Switch = Field(
        False, description="on: /metrics also has a line per table, for each table's state"
    )
    is_superuser: Switch = Field(
        True, description="off: password_required counts, and cannot be turned off"
    )


def stored_settings(stored: Mapping[str, Any]) -> Settings:
    """The settings from the result of ``CatalogStore.settings``; {} gives the defaults."""
    return Settings.model_validate(stored.get("settings", {}))


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One line of the settings reference."""

    name: str
    default: str
    kind: Literal["time", "size", "number", "switch", "word"]
    description: str


def setting_docs() -> Iterator[SettingDoc]:
    """Every setting with the default as ``SHOW`` prints the default."""
    shown = Settings().model_dump()
    for name, field in Settings.model_fields.items():
        kind: Literal["time", "size", "number", "switch", "word"] = "number"
        if _MEMORY_TEXT in field.metadata:
            kind = "size"
        elif _TIME_TEXT in field.metadata:
            kind = "time"
        elif field.annotation is bool:
            kind = "switch"
        elif get_origin(field.annotation) is Literal or field.annotation is str:
            kind = "word"
        default = "number of CPUs" if field.default_factory else str(shown[name])
        yield SettingDoc(name, default, kind, field.description or "")
