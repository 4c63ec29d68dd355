"""The kinds of DDL that the lake follows: what each does to a table of its own, as data.

``test_ddl_grid.py`` plays all of them. In the statements ``{t}`` is the table and
``{s}`` the schema. Columns and values are those before the DDL; ``then`` has the values of rows
that come behind it (an empty text: no such column), ``touch_then`` what an
UPDATE sets. Without ``touch_then`` nothing but rows comes behind the DDL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

NEVER, ALWAYS, LOOKING, EITHER = "never", "always", "by looking", "either"
"""Is the table copied again? ``LOOKING``: only without triggers on the publisher. ``EITHER``: that
depends on the version, or on what else happens at the time."""

BASE: Final[Mapping[str, tuple[str, str]]] = {
    "id": ("int PRIMARY KEY", "i"),
    "v": ("int", "i"),
    "w": ("text", "'w' || i"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of DDL.

    ``columns``: column → type and value of row ``i``, beside those of ``BASE``. ``first`` comes
    before the table is made, ``made`` behind. ``now`` is the table's name afterwards, ``also`` are
    further tables to compare. ``kept`` are columns that the lake keeps. ``since`` is the first
    version that has such DDL. ``told`` are kinds that only triggers can see. ``leaves``: the table
    leaves the subscription. ``key_then`` is the name of column ``id`` afterwards.
    ``wider`` are lake columns that keep a type that holds more. ``apart``: no row of the same
    transaction may have what the DDL makes.
    """

    ddl: tuple[str, ...]
    copied: str = NEVER
    columns: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    suffix: str = ""
    first: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    then: Mapping[str, str] = field(default_factory=dict)
    touch_then: str | None = "w = w || '?'"
    now: str = "{t}"
    also: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    since: int = 14
    options: Mapping[str, Any] = field(default_factory=dict)
    told: bool = False
    leaves: bool = False
    schema: str = "{s}"
    key_then: str = "id"
    wider: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False


def _column(type_: str, value: str = "i") -> dict[str, tuple[str, str]]:
    return {"x": (type_, value)}


def _retyped(before: str, after: str, value: str, copied: str, was: str = "i") -> Kind:
    """A column gets another type; ``value`` is one that only the new type holds."""
    command = f"ALTER TABLE {{t}} ALTER x TYPE {after}"
    return Kind(
        columns=_column(before, was),
        ddl=(command,),
        then={"x": value},
        copied=copied,
    )


_ADDED: Final = {
    "add_column": Kind(
        ddl=("ALTER TABLE {t} ADD COLUMN x date",), then={"x": "DATE '2026-01-01' + i % 1000"}
    ),
    "add_default": Kind(ddl=("ALTER TABLE {t} ADD COLUMN x int DEFAULT 7",)),
    "add_default_text": Kind(
        ddl=("ALTER TABLE {t} ADD COLUMN x text DEFAULT E'a \"b\", \\\\ \\n'",),
        then={"x": "'own'"},
    ),
    "add_now": Kind(ddl=("ALTER TABLE {t} ADD COLUMN x timestamptz DEFAULT now()",)),
    "add_random": Kind(
        ddl=("ALTER TABLE {t} ADD COLUMN x float8 DEFAULT random()",), copied=ALWAYS
    ),
    "add_serial": Kind(ddl=("ALTER TABLE {t} ADD COLUMN x serial",), copied=ALWAYS),
    "add_identity": Kind(
        ddl=("ALTER TABLE {t} ADD COLUMN x int GENERATED ALWAYS AS IDENTITY",), copied=ALWAYS
    ),
    "add_generated": Kind(
        ddl=("ALTER TABLE {t} ADD COLUMN x int GENERATED ALWAYS AS (v * 2) STORED",),
        copied=EITHER,
    ),
    "set_expression": Kind(
        columns={"x": ("int GENERATED ALWAYS AS (v * 2) STORED", "")},
        ddl=("ALTER TABLE {t} ALTER x SET EXPRESSION AS (v * 3)",),
        copied=ALWAYS,
        since=18,
    ),
    "drop_expression": Kind(
        columns={"x": ("int GENERATED ALWAYS AS (v * 2) STORED", "")},
        ddl=("ALTER TABLE {t} ALTER x DROP EXPRESSION",),
        then={"x": "i"},
        copied=EITHER,
    ),
}

_DROPPED: Final = {
    "drop_keep": Kind(ddl=("ALTER TABLE {t} DROP COLUMN v",), then={"v": ""}, kept=("v",)),
    "drop_drop": Kind(
        ddl=("ALTER TABLE {t} DROP COLUMN v",),
        then={"v": ""},
        options={"on_dropped_column": "drop"},
    ),
    "drop_and_add": Kind(
        ddl=("ALTER TABLE {t} DROP COLUMN v", "ALTER TABLE {t} ADD COLUMN v int"),
        copied=LOOKING,
        kept=("v_dropped_2",),
    ),
    "drop_and_add_default": Kind(
        ddl=("ALTER TABLE {t} DROP COLUMN v, ADD COLUMN v int DEFAULT 7",),
        copied=LOOKING,
        kept=("v_dropped_2",),
    ),
    "drop_and_add_typed": Kind(
        ddl=("ALTER TABLE {t} DROP COLUMN v, ADD COLUMN v date",),
        then={"v": "DATE '2026-01-01' + i % 1000"},
        copied=EITHER,
        kept=("v_dropped_2",),
    ),
}

_NAMED: Final = {
    "rename_column": Kind(ddl=("ALTER TABLE {t} RENAME COLUMN v TO x",), then={"v": "", "x": "i"}),
    "rename_swap": Kind(
        columns=_column("int", "-i"),
        ddl=(
            "ALTER TABLE {t} RENAME COLUMN v TO y",
            "ALTER TABLE {t} RENAME COLUMN x TO v",
            "ALTER TABLE {t} RENAME COLUMN y TO x",
        ),
        then={"v": "-i", "x": "i"},
        copied=EITHER,
    ),
    "rename_key": Kind(
        ddl=("ALTER TABLE {t} RENAME COLUMN id TO k",), then={"id": "", "k": "i"}, key_then="k"
    ),
    "rename_table": Kind(ddl=("ALTER TABLE {t} RENAME TO {t}_moved",), now="{t}_moved"),
    "set_schema": Kind(ddl=("ALTER TABLE {t} SET SCHEMA {s}_far",), now="{s}_far.{t}"),
    "swap_tables": Kind(
        made=(
            "CREATE TABLE {t}_b (LIKE {t} INCLUDING ALL)",
            "INSERT INTO {t}_b SELECT i, -i, 'b' || i FROM generate_series(1, 30) i",
        ),
        ddl=(
            "ALTER TABLE {t} RENAME TO {t}_c",
            "ALTER TABLE {t}_b RENAME TO {t}",
            "ALTER TABLE {t}_c RENAME TO {t}_b",
        ),
        also=("{t}_b",),
        kept=("other",),  # of the table that had this name before, by ``on_dropped_column: keep``
        copied=ALWAYS,
    ),
    "staged_table": Kind(
        ddl=(
            "CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL)",
            "INSERT INTO {t}_new SELECT i, -i, 'n' || i FROM generate_series(1, 30) i",
            "DROP TABLE {t}",
            "ALTER TABLE {t}_new RENAME TO {t}",
        ),
        copied=ALWAYS,
    ),
    "made_again": Kind(
        ddl=(
            "DROP TABLE {t}",
            "CREATE TABLE {t} (w text, id int PRIMARY KEY, y date)",
            "INSERT INTO {t} SELECT 'n', i, '2026-01-01' FROM generate_series(1, 30) i",
        ),
        then={"v": "", "y": "DATE '2026-02-02'"},
        kept=("v",),
        copied=ALWAYS,
    ),
}

_RETYPED: Final = {
    "int4_int8": _retyped("int", "bigint", "i + 5000000000", NEVER),
    "int2_int8": _retyped("smallint", "bigint", "i + 5000000000", NEVER, "i % 1000"),
    "int2_int4": _retyped("smallint", "int", "i + 50000", NEVER, "i % 1000"),
    "float4_float8": _retyped("real", "float8", "i / 3.0 + 1e300", NEVER, "i / 3.0"),
    "numeric_up": _retyped("numeric(6, 2)", "numeric(12, 2)", "i + 1e9", NEVER, "i % 100 / 7.0"),
    "varchar_up": _retyped("varchar(20)", "varchar(80)", "repeat('t', 40) || i", NEVER, "'t' || i"),
    "varchar_text": _retyped("varchar(20)", "text", "repeat('t', 40) || i", NEVER, "'t' || i"),
    "char_up": _retyped("char(8)", "char(12)", "'t' || i", EITHER, "'t' || i"),
    "int_domain": Kind(
        columns=_column("int"),
        first=("CREATE DOMAIN {t}_d AS int",),
        ddl=("ALTER TABLE {t} ALTER x TYPE {t}_d",),
    ),
    "int_text": _retyped("int", "text", "'t' || i", ALWAYS),
    "text_int": _retyped("text", "int USING length(x)", "i", ALWAYS, "'t' || i"),
    "int8_int4": Kind(
        columns=_column("bigint"),
        ddl=("ALTER TABLE {t} ALTER x TYPE int",),
        copied=ALWAYS,
        wider={"x": "int64"},
    ),
    "numeric_scale": _retyped("numeric(8, 2)", "numeric(12, 4)", "i", ALWAYS, "i % 100 / 7.0"),
    "numeric_bounded": _retyped("numeric", "numeric(12, 4)", "i", ALWAYS, "i / 7.0"),
    "moment_zone": _retyped(
        "timestamp", "timestamptz", "TIMESTAMPTZ '2026-01-01 00:00:00+00' + i * INTERVAL '1 s'",
        ALWAYS, "TIMESTAMP '2026-01-01' + i * INTERVAL '1 s'",
    ),
    "with_using": Kind(ddl=("ALTER TABLE {t} ALTER v TYPE int USING v * 100",), copied=ALWAYS),
    "using_wider": Kind(
        ddl=("ALTER TABLE {t} ALTER v TYPE bigint USING v * 100",), copied=ALWAYS, told=True
    ),
}  # fmt: skip

_PARTS: Final = (
    "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (MINVALUE) TO (100000)",
    "CREATE TABLE {t}_3 PARTITION OF {t} FOR VALUES FROM (200000) TO (300000)",
    "INSERT INTO {t} SELECT i, i, 'p' FROM generate_series(200001, 200010) i",
)

_PARTITIONED: Final = {
    "attach": Kind(
        suffix="PARTITION BY RANGE (id)",
        made=_PARTS,
        ddl=(
            "CREATE TABLE {t}_2 (LIKE {t} INCLUDING ALL)",
            "INSERT INTO {t}_2 SELECT i, i, 'a' FROM generate_series(100001, 100010) i",
            "ALTER TABLE {t} ATTACH PARTITION {t}_2 FOR VALUES FROM (100000) TO (200000)",
        ),
        options={"on_attach": "copy"},
        copied=ALWAYS,
        since=15,  # a walsender of 14 goes on to send the partition's changes under its own name
    ),
    "detach": Kind(
        suffix="PARTITION BY RANGE (id)",
        made=_PARTS,
        ddl=("ALTER TABLE {t} DETACH PARTITION {t}_3",),
        also=("{t}_3",),
        options={"on_attach": "copy"},
        copied=ALWAYS,
    ),
    "new_partition": Kind(
        suffix="PARTITION BY RANGE (id)",
        made=_PARTS,
        ddl=(
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (100000) TO (200000)",
            "INSERT INTO {t} SELECT i, i, 'a' FROM generate_series(100001, 100010) i",
        ),
        options={"on_attach": "copy"},
    ),
    "column_of_root": Kind(
        suffix="PARTITION BY RANGE (id)",
        made=_PARTS,
        ddl=("ALTER TABLE {t} ADD COLUMN x int DEFAULT 7", "ALTER TABLE {t} RENAME COLUMN v TO u"),
        then={"v": "", "u": "i"},
    ),
}

_LABEL: Final = ("CREATE TYPE {t}_e AS ENUM ('new', 'done')",)
_SPOT: Final = ("CREATE TYPE {t}_c AS (a int, b int)",)
_PAIR: Final = _column("{t}_c", "ROW(i, -i)::{t}_c")

_TYPES: Final = {
    "enum_add": Kind(
        first=_LABEL,
        columns=_column("{t}_e", "'new'"),
        ddl=("ALTER TYPE {t}_e ADD VALUE 'late' BEFORE 'done'",),
        then={"x": "'late'"},
        apart=True,
    ),
    "enum_rename": Kind(
        first=_LABEL,
        columns=_column("{t}_e", "'new'"),
        ddl=("ALTER TYPE {t}_e RENAME VALUE 'new' TO 'fresh'",),
        then={"x": "'fresh'"},
        copied=ALWAYS,
    ),
    "enum_key": Kind(
        first=_LABEL,
        columns={"id": ("int", "i"), "x": ("{t}_e NOT NULL", "'new'")},
        made=("ALTER TABLE {t} ADD PRIMARY KEY (x, id)",),
        ddl=("ALTER TYPE {t}_e RENAME VALUE 'new' TO 'fresh'",),
        then={"x": "'fresh'"},
        copied=ALWAYS,
    ),
    "composite_add": Kind(
        first=_SPOT,
        columns=_PAIR,
        ddl=("ALTER TYPE {t}_c ADD ATTRIBUTE c int",),
        then={"x": "ROW(i, -i, 7)::{t}_c"},
        copied=ALWAYS,
    ),
    "composite_rename": Kind(
        first=_SPOT,
        columns=_PAIR,
        ddl=("ALTER TYPE {t}_c RENAME ATTRIBUTE b TO z",),
        copied=EITHER,
    ),
    "composite_drop": Kind(
        first=_SPOT,
        columns=_PAIR,
        ddl=("ALTER TYPE {t}_c DROP ATTRIBUTE b",),
        then={"x": "ROW(i)::{t}_c"},
        copied=ALWAYS,
    ),
    "domain_changed": Kind(
        first=("CREATE DOMAIN {t}_d AS int",),
        columns=_column("{t}_d"),
        ddl=(
            "ALTER DOMAIN {t}_d ADD CHECK (VALUE > -1000000)",
            "ALTER DOMAIN {t}_d SET DEFAULT 9",
            "ALTER DOMAIN {t}_d RENAME TO {t}_dd",
        ),
        then={"x": ""},
    ),
    "domain_added": Kind(
        first=("CREATE DOMAIN {t}_d AS numeric(8, 2) DEFAULT 1.5",),
        ddl=("ALTER TABLE {t} ADD COLUMN x {t}_d",),
        copied=EITHER,
    ),
    "type_renamed": Kind(
        first=_LABEL,
        columns=_column("{t}_e", "'new'"),
        ddl=("ALTER TYPE {t}_e RENAME TO {t}_f",),
    ),
}

_FULL: Final = "ALTER TABLE {t} REPLICA IDENTITY FULL"
_UNKEYED: Final = "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey"

_KEYS: Final = {
    "key_changed": Kind(
        made=("ALTER TABLE {t} ALTER v SET NOT NULL",),
        ddl=(_UNKEYED, "ALTER TABLE {t} ADD PRIMARY KEY (v)"),
    ),
    "key_widened": Kind(
        made=("ALTER TABLE {t} ALTER v SET NOT NULL",),
        ddl=(_UNKEYED, "ALTER TABLE {t} ADD PRIMARY KEY (id, v)"),
        touch_then="w = w || '?', v = v + 1000000",
    ),
    "key_narrowed": Kind(
        columns={"id": ("int", "i")},
        made=("ALTER TABLE {t} ADD PRIMARY KEY (id, v)",),
        ddl=(_UNKEYED, "ALTER TABLE {t} ADD PRIMARY KEY (id)"),
        touch_then="w = w || '?', v = v + 1000000",
    ),
    "key_dropped": Kind(ddl=(_UNKEYED,), touch_then=None),
    "key_dropped_full": Kind(ddl=(_UNKEYED, _FULL)),
    "key_made": Kind(
        columns={"id": ("int", "i")},
        made=(_FULL,),
        ddl=("ALTER TABLE {t} ADD PRIMARY KEY (id)", "ALTER TABLE {t} REPLICA IDENTITY DEFAULT"),
    ),
    "identity_full": Kind(ddl=(_FULL,)),
    "identity_default": Kind(made=(_FULL,), ddl=("ALTER TABLE {t} REPLICA IDENTITY DEFAULT",)),
    "identity_index": Kind(
        made=(
            "ALTER TABLE {t} ALTER v SET NOT NULL",
            "CREATE UNIQUE INDEX {t}_other ON {t} (v)",
        ),
        ddl=("ALTER TABLE {t} REPLICA IDENTITY USING INDEX {t}_other",),
    ),
    "identity_nothing": Kind(ddl=("ALTER TABLE {t} REPLICA IDENTITY NOTHING",), touch_then=None),
    "no_change": Kind(
        ddl=(
            "ALTER TABLE {t} ALTER v SET NOT NULL, ALTER v SET DEFAULT 5, ADD CHECK (v <> 123456)",
            "CREATE INDEX ON {t} (w)",
            "COMMENT ON COLUMN {t}.v IS 'a number'",
        ),
    ),
}

_JOINED: Final = {
    "new_table": Kind(
        ddl=(
            "CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL)",
            "INSERT INTO {t}_new SELECT i, -i, 'n' || i FROM generate_series(1, 30) i",
        ),
        also=("{t}_new",),
    ),
    "drop_table": Kind(ddl=("DROP TABLE {t}",), leaves=True),
    "unlogged": Kind(ddl=("ALTER TABLE {t} SET UNLOGGED",), leaves=True),
}

KINDS: Final[Mapping[str, Kind]] = {
    **_ADDED, **_DROPPED, **_NAMED, **_RETYPED, **_PARTITIONED, **_TYPES, **_KEYS, **_JOINED,
    "rename_schema": Kind(
        ddl=("ALTER SCHEMA {s}_was RENAME TO {s}_is",), schema="{s}_was", now="{s}_is.{t}"
    ),
}  # fmt: skip
"""By the name of the kind, which is its table's."""
