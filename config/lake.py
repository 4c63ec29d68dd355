"""``lake:`` and ``spark:`` of the configuration file: the place of the tables, and of Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from catalog.errcodes import FeatureNotSupported, InvalidParameterValue
from config.problem import problem, unwrap

FORMATS: Final = ("iceberg", "delta")
FORMAT_VERSIONS: Final = (2, 3)
COMMIT_SERVICES: Final = ("auto", "on", "off")
_PART: Final = r"/(?!\.{1,2}(?:/|\Z))"
_BUCKET: Final = (
    r"(?:s3a?://[a-z0-9][a-z0-9.-]+|gs://[a-z0-9][a-z0-9._-]+"
    r"|abfss?://[a-z0-9][a-z0-9-]+@[a-z0-9][a-z0-9.-]+)"
)
_PLACE: Final = re.compile(
    rf"{_BUCKET}(?:{_PART}[\w.=-]+)+/?|(?:{_PART}[^/\x00-\x1f]+)+/?", re.ASCII
)
"""Every name has a single spelling: names are compared as text."""
_CATALOGS_WITH_PATHS: Final = ("jdbc", "hadoop", "hive")
"""Catalog types whose warehouse is a path. Others may know a warehouse by name."""
_SHARED_CATALOGS: Final = ("rest", "glue", "jdbc")
"""Catalog types in which the commits of two servers exclude each other, however both are set.

Not hive: ``iceberg.engine.hive.lock-enabled``, from a server's own Hadoop configuration, says how
the server commits. A commit without a lock overwrites the commit of a server that only locks.
"""
_PLACES_OF_TASKS: Final = ("spark.master", "spark.pyspark.python")
_CATALOG_KEY: Final = "spark.sql.catalog.lake."
_CATALOG_CLASS: Final = re.compile(r"org\.apache\.iceberg\.\w+\.(\w+)Catalog")
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_OBJECT_STORE: Final = re.compile(r"(s3[an]?|gs|abfss?|wasbs?):", re.I)
_SQLITE: Final = re.compile(r"jdbc:sqlite:(?:file:)?(?P<path>.*)")


def _format(value: Any) -> str:
    if value not in FORMATS:
        raise problem(
            InvalidParameterValue(
                f'invalid value for parameter "format": "{value}"',
                hint="Available values: iceberg.",
            )
        )
    if value == "delta":
        raise problem(
            FeatureNotSupported(
                "lake format delta is not supported yet", hint="Use format: iceberg."
            )
        )
    return "iceberg"


def _format_version(value: Any) -> int:
    found = next((known for known in FORMAT_VERSIONS if str(known) == str(value)), None)
    if found is None:
        raise problem(
            InvalidParameterValue(
                f'invalid value for parameter "format_version": "{value}"',
                hint=f"Available values: {', '.join(map(str, FORMAT_VERSIONS))}.",
            )
        )
    return found


def _conf_value(value: Any) -> Any:
    """Spark's configuration is text; YAML reads some values as numbers or booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def plain_keys(catalog: Mapping[str, Any]) -> dict[str, Any]:
    """The catalog's keys in lower case, as Spark takes them, without ``spark.sql.catalog.lake.``.

    A key may have the prefix or not.
    """
    return {str(key).removeprefix(_CATALOG_KEY).lower(): value for key, value in catalog.items()}


def catalog_kind(keys: Mapping[str, Any]) -> str:
    """The catalog's type as Iceberg reads the keys, in lower case.

    ``catalog-impl`` may name Iceberg's own class of a type. Without both keys Iceberg takes Hive.
    """
    if not keys:
        return ""
    if (named := keys.get("catalog-impl")) is None:
        return str(keys.get("type", "hive")).lower()
    of_class = _CATALOG_CLASS.fullmatch(str(named))
    return of_class[1].lower() if of_class else ""


def _catalog(value: Any) -> Any:
    """Refuse relative paths: the server's working directory is no home for tables."""
    if not isinstance(value, Mapping):
        return value
    keys = plain_keys(value)
    warehouse, uri, kind = keys.get("warehouse"), keys.get("uri"), catalog_kind(keys)
    by_path = kind in _CATALOGS_WITH_PATHS
    if isinstance(warehouse, str) and by_path and not _ABSOLUTE.match(warehouse):
        raise problem(
            InvalidParameterValue(
                'invalid value for parameter "warehouse": it is neither an absolute path nor a URI',
                hint="Name a folder as in /srv/lake/warehouse, or a place as in s3://bucket/prefix.",
            ),
            "warehouse",
        )
    if kind == "hadoop" and isinstance(warehouse, str):
        _check_hadoop(warehouse)
    file = _SQLITE.match(uri) if isinstance(uri, str) else None
    if file is not None and not file["path"].startswith("/"):
        raise problem(
            InvalidParameterValue(
                'invalid value for parameter "uri": the path of the SQLite file is not absolute',
                hint="Name the file as in jdbc:sqlite:/srv/lake/catalog.db.",
            ),
            "uri",
        )
    return value


def _check_hadoop(warehouse: str) -> None:
    """Refuse Hadoop's catalog on an object store: a rename is not atomic, and commits get lost."""
    if _OBJECT_STORE.match(warehouse):
        raise problem(
            FeatureNotSupported(
                "a catalog of type hadoop on an object store is not supported",
                detail="Two writers may both succeed there, and the rows of one are lost.",
                hint="Use a catalog of type rest, glue, hive or jdbc.",
            ),
            "warehouse",
        )


def _remote(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith("sc://"):
        raise problem(
            InvalidParameterValue(
                'invalid value for parameter "remote": it does not begin with "sc://"',
                hint="Name a Spark Connect server, as in sc://host:15002.",
            )
        )
    return value


def _commit_service(value: Any) -> Any:
    """YAML reads ``on`` and ``off`` as booleans."""
    word = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
    if word not in COMMIT_SERVICES:
        raise problem(
            InvalidParameterValue(
                f'invalid value for parameter "commit_service": "{value}"',
                hint=f"Available values: {', '.join(COMMIT_SERVICES)}.",
            )
        )
    return word


def _staging(value: Any) -> Any:
    if isinstance(value, str) and not _PLACE.fullmatch(value):
        # Not displayed: the value may contain credentials.
        raise problem(
            InvalidParameterValue(
                'invalid value for parameter "staging": it is neither an absolute path nor'
                " a prefix of a bucket",
                hint="Name a folder that Spark sees under the same path, or a bucket and a prefix"
                " of letters, digits and . _ - = /, without credentials: these come from the"
                ' environment. No part of it may be "", "." or "..".',
            )
        )
    return value.rstrip("/") if isinstance(value, str) else value


ConfValue = Annotated[
    str,
    BeforeValidator(_conf_value),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]


def is_shared_catalog(catalog: Mapping[str, Any]) -> bool:
    """Does the catalog compare and set for two servers of different configuration?

    SQLite's file is for one machine, and Iceberg's Hadoop catalog locks within one process.
    """
    keys = plain_keys(catalog)
    by_file = _SQLITE.match(str(keys.get("uri", ""))) is not None
    return catalog_kind(keys) in _SHARED_CATALOGS and not by_file


def embedded_catalog_file(data_dir: Path) -> Path:
    """The SQLite file of the lake's catalog if no ``catalog`` is configured."""
    return data_dir / "lake" / "catalog.db"


class LakeConfig(BaseModel):
    """Table format and catalog. No ``catalog``: SQLite and files under the data directory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Annotated[str, BeforeValidator(_format), WithJsonSchema({"enum": ["iceberg"]})] = Field(
        "iceberg", description="table format"
    )
    format_version: Annotated[Literal[2, 3], BeforeValidator(_format_version)] = Field(
        2, description="Iceberg's format of the tables that are made from now on"
    )
    writer: Literal["auto", "files", "spark"] = Field(
        "auto",
        description="who writes the rows: pgsub's own files, Spark, or what the table allows",
    )
    catalog: Annotated[dict[str, ConfValue], BeforeValidator(_catalog)] = Field(
        default_factory=dict,
        description="keys of spark.sql.catalog.lake, such as type, uri and warehouse",
    )


def stored_lake(stored: Mapping[str, Any]) -> LakeConfig:
    """The stored ``lake`` settings of a data directory; {} gives the defaults.

    Raises the error of the first wrong value: an earlier version may have stored the value.
    """
    try:
        return LakeConfig.model_validate(stored.get("lake", {}))
    except ValidationError as error:
        wrong, _ = unwrap(error.errors()[0])
        raise wrong or error from None


class SparkConfig(BaseModel):
    """The place of Spark. Without ``remote``: a Spark Connect server that the launcher runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    remote: Annotated[str, BeforeValidator(_remote)] | None = Field(
        None, description="URL of a Spark Connect server, sc://host:port"
    )
    staging: Annotated[str, BeforeValidator(_staging)] | None = Field(
        None, description="where larger batches wait for Spark: a folder, or a bucket's prefix"
    )
    conf: dict[str, ConfValue] = Field(
        default_factory=dict, description="Spark configuration of the embedded server"
    )
    commit_service: Annotated[
        Literal["auto", "on", "off"],
        BeforeValidator(_commit_service),
        WithJsonSchema({"enum": [*COMMIT_SERVICES, True, False]}),
    ] = Field(
        "off",
        description="beside remote, a lake server of pgsub commits the files of small batches",
    )


def has_commit_service(lake: LakeConfig, spark: SparkConfig) -> bool:
    """Does a lake server of pgsub run beside ``spark.remote``, to commit the files of workers?"""
    if spark.remote is None or spark.commit_service == "off":
        return False
    if spark.commit_service == "on":
        return True
    return lake.writer != "spark" and is_shared_catalog(lake.catalog)


def conf_here(spark: SparkConfig) -> dict[str, str]:
    """``spark.conf`` for the server that pgsub starts; a commit service runs no tasks elsewhere."""
    if spark.remote is None:
        return spark.conf
    return {key: value for key, value in spark.conf.items() if key not in _PLACES_OF_TASKS}


def hint_beside(hint: str | None) -> str:
    """The HINT of an error of the commit service's start: the Spark server alone would do, too."""
    way = "et spark.commit_service: off: your Spark server then writes all rows."
    return f"{hint} Or s{way}" if hint else f"S{way}"


def check_commit_service(lake: LakeConfig, spark: SparkConfig) -> None:
    """22023 if the commit service is asked for, and could not have the catalog of ``remote``."""
    asked = spark.remote is not None and spark.commit_service == "on"
    if asked and not is_shared_catalog(lake.catalog):
        by_hive = catalog_kind(plain_keys(lake.catalog)) == "hive"
        raise InvalidParameterValue(
            'invalid value for parameter "commit_service": "on"',
            detail="Two servers may commit to a Hive Metastore in different ways, one with a lock"
            " and one without. One would overwrite what the other has committed."
            if by_hive
            else "lake.catalog names no catalog that two servers can share.",
            hint="Describe the catalog of the server in spark.remote in lake.catalog, of type rest"
            " or glue, or jdbc on a database server; or say commit_service: off.",
        )
