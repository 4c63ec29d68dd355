"""The probe of a catalog: one that keeps all promises passes, each broken promise is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import (
    FeatureNotSupported,
    IoError,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    TwoLakes,
)
from tests.fix_lake import Lake
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.sessions import Sessions
from workers.lake.iceberg import catalog_probe
from workers.lake.iceberg.catalog_probe import (
    APART,
    BRANCHES,
    COMPARE_AND_SET,
    FAST_FORWARD,
    HISTORY,
    SCHEMA,
    SUMMARIES,
    probe,
    probe_catalog,
)
from workers.lake.iceberg.choose_writer import choose_gateway, choose_table_api
from workers.lake.metadata.snapshots import FENCE, History
from workers.lake.new_layout import NewTable
from workers.lake.server.lake_server import prepare_catalog
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.table import MAIN, LakeColumn, LakeIdent
from workers.lake.writer_choice import NO_GATEWAY


@pytest.fixture(scope="module")
def tables(lake_server: Lake) -> Iterator[GatewayTableApi]:
    gateway, _, close = choose_gateway(lake_server.url, {})
    sessions = Sessions(lake_server.url, "probe", lambda *_: None, close_catalogs=close)
    made, _ = choose_table_api(gateway, sessions)
    assert isinstance(made, GatewayTableApi)
    yield made
    sessions.close()
    made.close()


class Unfit:
    """A catalog that keeps all promises but those of the methods given in ``broken``."""

    def __init__(self, tables: GatewayTableApi, **broken: Callable[..., Any]) -> None:
        self.real = tables
        self.dropped: list[LakeIdent] = []
        self._broken = broken

    def __getattr__(self, name: str) -> Any:
        found = self._broken.get(name)
        return getattr(self.real, name) if found is None else lambda *a, **k: found(self, *a, **k)

    def drop_table(self, ident: LakeIdent) -> None:
        self.dropped.append(ident)
        self.real.drop_table(ident)


def no_branch(unfit: Unfit, ident: LakeIdent, branch: str, at: int | None = None) -> None:
    """ "ok", and no branch: as one catalog does."""


def on_main(
    unfit: Unfit, ident: LakeIdent, ref: str, summary: Mapping[str, str], *more: Any
) -> None:
    unfit.real.commit_empty(ident, MAIN, summary, *more)


def on_both(
    unfit: Unfit, ident: LakeIdent, ref: str, summary: Mapping[str, str], *more: Any
) -> None:
    unfit.real.commit_empty(ident, ref, summary, *more)
    if ref != MAIN:
        unfit.real.commit_empty(ident, MAIN, summary, *more)


def no_summary(
    unfit: Unfit, ident: LakeIdent, columns: Any, new: NewTable, summary: Mapping[str, str]
) -> Any:
    del summary
    return unfit.real.create_table(ident, columns, new, {"other": "x"})


def newest_only(unfit: Unfit, ident: LakeIdent) -> History:
    found = unfit.real.history(ident)
    newest = max(found.snapshots.values(), key=lambda each: each.committed)
    return dataclasses.replace(found, snapshots={newest.snapshot_id: newest})


def takes_late(unfit: Unfit, ident: LakeIdent, branch: str, between: Callable[[], None]) -> None:
    """The rows of the commit in between are gone."""
    between()
    tip = unfit.real.history(ident).refs[branch]
    unfit.real.set_main(ident, tip)


def forgets_late(unfit: Unfit, ident: LakeIdent, branch: str, between: Callable[[], None]) -> None:
    """ "ok", though nothing was done."""
    between()


def no_move(unfit: Unfit, ident: LakeIdent, branch: str) -> None:
    """ "ok", and main stays."""


def test_a_catalog_that_keeps_all_promises_passes(
    lake_server: Lake, tables: GatewayTableApi
) -> None:
    assert probe_catalog(lake_server.url) is None
    assert probe_catalog(lake_server.spark_url) == NO_GATEWAY
    fit = Unfit(tables)
    probe(fit, fit)
    [scratch] = fit.dropped
    assert scratch.schema == SCHEMA
    assert tables.describe(scratch) is None


def test_a_commit_service_and_spark_have_one_catalog(lake_server: Lake) -> None:
    assert probe_catalog(lake_server.beside_url) is None


def test_two_catalogs_are_refused(lake_server: Lake, tmp_path: Path) -> None:
    """The sessions have another catalog than the gateway, and each has a table of the name."""
    other = tmp_path / "catalog.db"
    prepare_catalog(other)
    gateway, _, _ = choose_gateway(lake_server.beside_url, {})
    conf = {"spark.sql.catalog.lake.uri": f"jdbc:sqlite:{other}"}
    sessions = Sessions(lake_server.url, "probe", lambda *_: None, conf)
    here, _ = choose_table_api(gateway, sessions)
    spark = SqlTableApi(sessions)
    refused = pytest.raises(ObjectNotInPrerequisiteState, match="do not have the same catalog")
    try:
        with refused:
            probe(here, None, None, None, spark)
        ident, columns, new = LakeIdent(SCHEMA, "twice"), (LakeColumn("n", pa.int32()),), _new()
        for each in (here, spark):
            each.create_table(ident, columns, new, {})
        with refused:  # a fence that the publication would not meet
            here.commit_empty(ident, MAIN, {FENCE: "seen by nobody"}, columns)
    finally:
        sessions.close()
        here.close()


def test_the_store_is_asked_for_what_spark_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any commit through the gateway."""
    commits: Any = object()

    def elsewhere(ident: LakeIdent, given: object) -> None:
        assert (ident.schema, given) == (SCHEMA, commits)
        raise TwoLakes("not the same store")

    monkeypatch.setattr(catalog_probe, "expect_table", lambda *_: None)
    monkeypatch.setattr(catalog_probe, "expect_files", elsewhere)
    dropped: list[LakeIdent] = []
    here: Any = SimpleNamespace(drop_table=dropped.append)
    spark: Any = SimpleNamespace(create_table=lambda *_: None)
    with pytest.raises(TwoLakes):
        probe(here, None, None, commits, spark)
    assert len(dropped) == 1


def _new() -> NewTable:
    return NewTable("", 0, 2)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        ({"create_branch": no_branch}, BRANCHES),
        ({"create_table": no_summary}, SUMMARIES),
        ({"commit_empty": on_main}, APART),
        ({"commit_empty": on_both}, APART),
        ({"history": newest_only}, HISTORY),
        ({"set_main_late": takes_late}, COMPARE_AND_SET),
        ({"set_main_late": forgets_late}, COMPARE_AND_SET),
        ({"fast_forward": no_move}, FAST_FORWARD),
    ],
    ids=["no branch", "no summary", "on main", "on both", "newest only", "late", "none", "no move"],
)
def test_a_broken_promise_is_named_and_the_table_dropped(
    tables: GatewayTableApi, broken: dict[str, Callable[..., Any]], promise: str
) -> None:
    unfit = Unfit(tables, **broken)
    with pytest.raises(FeatureNotSupported) as error:
        probe(unfit, unfit)
    assert error.value.primary == f"the catalog of the lake does not keep {promise}"
    [scratch] = unfit.dropped
    assert tables.describe(scratch) is None


def test_a_metastore_that_commits_without_locks_and_does_not_compare_is_refused(
    tables: GatewayTableApi,
) -> None:
    unfit = Unfit(tables, refuses_at_once=lambda *_: False)
    with pytest.raises(FeatureNotSupported, match="Hive Metastore") as error:
        probe(unfit, unfit)
    assert error.value.primary.endswith(f"does not keep {COMPARE_AND_SET}")
    assert error.value.hint is not None
    assert "leave iceberg.engine.hive.lock-enabled out" in error.value.hint
    [scratch] = unfit.dropped
    assert tables.describe(scratch) is None


def test_a_store_that_no_worker_reaches_breaks_no_promise(tables: GatewayTableApi) -> None:
    elsewhere = Unfit(tables, metadata_and_store=in_a_bucket)
    found = probe(elsewhere, elsewhere, None, elsewhere)
    assert found is not None
    assert "this table lies elsewhere" in found


def in_a_bucket(
    unfit: Unfit, ident: LakeIdent, what: str, *, newest: bool = True
) -> tuple[dict[str, Any], None]:
    assert newest
    return {**unfit.real.metadata(ident, what), "location": "s3://bucket/t"}, None


def test_what_the_store_says_is_passed_on_and_the_table_dropped(tables: GatewayTableApi) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise IoError("no space left")

    unfit = Unfit(tables, commit_empty=full)
    with pytest.raises(IoError, match="no space left"):
        probe(unfit, unfit)
    assert len(unfit.dropped) == 1


def test_an_error_of_the_drop_does_not_hide_the_finding(tables: GatewayTableApi) -> None:
    class NoDrop(Unfit):
        def drop_table(self, ident: LakeIdent) -> None:
            super().drop_table(ident)
            raise ReplicationError("may not drop")

    unfit = NoDrop(tables, create_branch=no_branch)
    with pytest.raises(FeatureNotSupported, match=catalog_probe.BRANCHES):
        probe(unfit, unfit)
