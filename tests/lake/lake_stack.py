"""A lake as people keep it: an S3 store that checks keys, a REST catalog, and pgsub on both.

The store is moto's server, which knows users and their rights; pgsub and the catalog have separate
keys. Where requests are many, and rights are no matter, the store is a faster one. The catalog is
Iceberg's own test server.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import NoSuchNamespaceError

from tests.harness import SETTINGS, Pgsub
from tests.lake import versitygw
from tests.lake.http_proxy import HttpProxy, Tokens
from tests.lake.rest_catalog import RestCatalog, rest_catalog
from tests.lake.signatures import Signatures
from tests.object_store import REGION, Keys, ObjectStore, object_store

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

LENT_SETS: Final = 20
S3_IO: Final = "org.apache.iceberg.aws.s3.S3FileIO"


@dataclass(frozen=True, slots=True)
class LakeStack:
    """A running store and catalog. ``keys`` may do everything, ``reader`` may only read.

    pgsub reaches both through ``store_proxy`` and ``catalog_proxy``. The catalog writes the tables'
    metadata without a proxy. ``lent`` are Iceberg's properties with keys of a role.
    """

    store: ObjectStore
    catalog: RestCatalog
    keys: Keys
    reader: Keys
    store_proxy: HttpProxy
    catalog_proxy: HttpProxy
    lent: Sequence[dict[str, str]] = ()

    def keys_for(self, keys: Keys | None = None) -> dict[str, str]:
        """Iceberg's keys for the store."""
        key, secret = keys or self.keys
        return {
            "s3.endpoint": self.store_proxy.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
            "client.region": REGION,
        }

    def catalog_keys(self, keys: Keys | None = None, **more: str) -> dict[str, str]:
        """``lake.catalog`` of a configuration file."""
        return {
            "type": "rest",
            "uri": self.catalog_proxy.endpoint,
            "warehouse": self.catalog.warehouse,
            **self.keys_for(keys),
            **more,
        }

    def direct_keys(self) -> dict[str, str]:
        """``catalog_keys`` of a reader who comes by no proxy: no fault meets the reader."""
        ends = {"uri": self.catalog.uri, "s3.endpoint": self.store.endpoint}
        return {**self.catalog_keys(), **ends}

    def open_catalog(self) -> AbstractContextManager[Catalog]:
        """pyiceberg's client of the catalog, by no proxy."""
        return catalog_client(self.direct_keys())

    def tables(self, *schemas: str) -> list[Table]:
        """The tables of these schemas, as pyiceberg loads them."""
        found: list[Table] = []
        with self.open_catalog() as catalog:
            for schema in schemas:
                with suppress(NoSuchNamespaceError):
                    found += map(catalog.load_table, catalog.list_tables(schema))
        return found

    def forget_tables(self, *schemas: str) -> None:
        """The catalog knows no table of these schemas any more, and the store no file of them."""
        for schema in schemas:
            with self.open_catalog() as catalog, suppress(NoSuchNamespaceError):
                for ident in catalog.list_tables(schema):
                    catalog.drop_table(ident)
            bucket, _, warehouse = self.catalog.warehouse.removeprefix("s3://").partition("/")
            assert bucket == self.store.bucket
            self.store.remove(f"{warehouse}/{schema}", self.keys)


@contextmanager
def catalog_client(keys: Mapping[str, str]) -> Iterator[Catalog]:
    """pyiceberg's client of a catalog, whose warnings are its own."""
    from pyiceberg.catalog import load_catalog

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield load_catalog("lake", **{"s3.region": REGION, **keys})


@contextmanager
def quick_stack(folder: Path) -> Iterator[LakeStack]:
    """The same with one pair of keys, and a fast store where its program can be had."""
    with file_stack(folder) if versitygw.can_be_had() else lake_stack(folder) as running:
        yield running


@contextmanager
def file_stack(folder: Path) -> Iterator[LakeStack]:
    """A stack whose store is versitygw, with one pair of keys."""
    keys = versitygw.KEYS
    with (
        versitygw.file_store(folder) as store,
        _catalog_on(store, folder, keys) as catalog,
        HttpProxy(store.endpoint) as to_store,
        HttpProxy(catalog.uri) as to_catalog,
    ):
        yield LakeStack(store, catalog, keys, keys, to_store, to_catalog)


@contextmanager
def lake_stack(
    folder: Path,
    tokens: Tokens | None = None,
    role: str | None = None,
    signatures: Signatures | None = None,
) -> Iterator[LakeStack]:
    """The store and the catalog, which asks for one of ``tokens``, or for ``signatures``.

    ``role`` is a role of the store that may do everything, and has keys to be lent.
    """
    with ExitStack() as running:
        store = running.enter_context(object_store(folder, strict=True))
        keys, catalogs = (store.user(name, ["s3:*"]) for name in ("pgsub", "catalog"))
        lent: list[dict[str, str]] = []
        if role:
            store.role(role, ["s3:*"])
            lent = [store.lent(role, keys) for _ in range(LENT_SETS)]  # a strict moto makes none
        reader = store.user("reader", ["s3:GetObject", "s3:ListBucket"])
        store.begin_to_check()
        catalog = running.enter_context(_catalog_on(store, folder, catalogs))
        proxies = HttpProxy(store.endpoint), HttpProxy(catalog.uri, tokens, signatures)
        to_store, to_catalog = map(running.enter_context, proxies)
        yield LakeStack(store, catalog, keys, reader, to_store, to_catalog, lent)


def _catalog_on(
    store: ObjectStore, folder: Path, keys: Keys
) -> AbstractContextManager[RestCatalog]:
    s3 = {"io-impl": S3_IO, "s3.endpoint": store.endpoint, "s3.path-style-access": "true"}
    place = f"s3://{store.bucket}/warehouse"
    return rest_catalog(folder, place, s3, store.environment(*keys))


class LakePgsub(Pgsub):
    """``pgsub`` whose lake is in the store; ``catalog`` is what a reader needs."""

    def __init__(
        self,
        data_dir: Path,
        env: Mapping[str, str] | None = None,
        *,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data_dir, env)
        self.catalog = catalog or {}

    def iceberg_table(self, schema: str, table: str) -> Table:
        """The table as pyiceberg loads it."""
        with catalog_client(self.catalog) as catalog:
            return catalog.load_table((schema, table))


@contextmanager
def lake_pgsub(
    folder: Path,
    catalog: Mapping[str, str],
    *,
    configured: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[LakePgsub]:
    """A running ``pgsub`` without subscriptions, with the tests' settings and ``settings``.

    ``catalog`` is what a reader needs. ``configured`` is what ``lake.catalog`` has instead.
    """
    pgsub = LakePgsub(folder / "data", env, catalog=catalog)
    lake = {"catalog": catalog if configured is None else configured}
    try:
        pgsub.up(
            {"subscriptions": {}, "lake": lake, "settings": {**SETTINGS, **settings}}, timeout=300
        )
        yield pgsub
    finally:
        pgsub.stop()
