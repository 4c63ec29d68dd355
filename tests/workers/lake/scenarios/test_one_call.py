"""One call for several tables, by Iceberg's client to a REST catalog that answers as it likes.

What each status and a cut connection come to: the tables are looked at again, the call is made
again, an error is raised, or the catalog counts as one without the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest

from catalog.errcodes import FeatureNotSupported, ReplicationError
from catalog.pg_lsn import LSN
from tests.workers.lake.scripted_catalog import (
    BATCH,
    BEFORE,
    CUT,
    MEDDLED,
    Answer,
    ScriptedCatalog,
    serving,
)
from workers.lake.api.gateway import Gateway
from workers.lake.api.java_api import JavaApi
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.iceberg.failed_publish import move_mains
from workers.lake.metadata.snapshots import stamp_properties
from workers.lake.publication import Publication
from workers.lake.table import LakeIdent, Stamp

pytestmark = pytest.mark.spark

BRANCH: Final = "pgsub_1_1_1"
STAMP: Final = Stamp("pg_1", LSN(20), "e", LSN(0))
PARTS: Final = [Publication(LakeIdent("s", name), BRANCH, STAMP) for name in ("a", "b")]
BOTH: Final = ["a", "b"]
MOVED: Final = {"a": BATCH, "b": BATCH}
UNMOVED: Final = {"a": BEFORE, "b": BEFORE}


@pytest.fixture
def catalog(request: pytest.FixtureRequest) -> Iterator[ScriptedCatalog]:
    lists_the_call = getattr(request, "param", True)
    summary = stamp_properties(STAMP)
    scripted = ScriptedCatalog(BRANCH, lists_the_call=lists_the_call, summary=summary)
    with serving(scripted) as running:
        yield running


@pytest.fixture
def tables(
    catalog: ScriptedCatalog, gateway_tables: GatewayTableApi, lake_gateway: Gateway
) -> Iterator[GatewayTableApi]:
    """The tables' API on Iceberg's client of the catalog, which repeats a request once at most."""
    connections = lake_gateway.connections
    properties = connections.jvm.java.util.HashMap()
    properties.put("uri", catalog.uri)
    properties.put("rest.client.max-retries", "1")
    client = connections.jvm.org.apache.iceberg.rest.RESTCatalog()
    client.initialize("scripted", properties)
    api: Any = JavaApi(connections)
    api.catalog = client
    lake_gateway._api = api
    yield gateway_tables
    client.close()


class Fences:
    """Counts fences; the catalog takes none."""

    def __init__(self) -> None:
        self.of: list[str] = []

    def __call__(self, ident: LakeIdent) -> None:
        self.of.append(ident.table)


def in_turn(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


def move(tables: GatewayTableApi, fences: Fences | None = None) -> list[int | None]:
    return move_mains(tables, PARTS, [], in_turn, fences or Fences())


@pytest.mark.parametrize("status", [200, 204])
def test_yes(catalog: ScriptedCatalog, tables: GatewayTableApi, status: int) -> None:
    catalog.answers = [Answer(status, effect=True)]
    assert tables.moves_together
    assert move(tables) == [BATCH, BATCH]
    assert (catalog.calls, catalog.main) == ([BOTH], MOVED)


def test_yes_and_nothing_was_done(catalog: ScriptedCatalog, tables: GatewayTableApi) -> None:
    catalog.answers = [Answer(204)]
    assert move(tables) == [BATCH, BATCH]
    assert (catalog.calls, catalog.main) == ([BOTH, BOTH], MOVED)


@pytest.mark.parametrize("status", [409, 500, 502, 503, 504])
@pytest.mark.parametrize("effect", [True, False])
def test_an_answer_that_says_nothing_has_the_tables_looked_at(
    catalog: ScriptedCatalog, tables: GatewayTableApi, status: int, effect: bool
) -> None:
    """Also a conflict that quotes another refusal: a mix of two batches would be visible."""
    said = "org.apache.iceberg.exceptions.BadRequestException: no"
    catalog.answers = [Answer(status, effect, said)]
    assert move(tables) == [BATCH, BATCH]
    assert catalog.calls == [BOTH] if effect else [BOTH, BOTH]
    assert tables.moves_together


def test_a_conflict_that_stays_is_40001_behind_fences(
    catalog: ScriptedCatalog, tables: GatewayTableApi
) -> None:
    catalog.answers = [Answer(409)] * 9
    fences = Fences()
    with pytest.raises(ReplicationError) as raised:
        move(tables, fences)
    assert (raised.value.code, fences.of) == ("40001", BOTH)
    assert (len(catalog.calls), catalog.main) == (5, UNMOVED)


def test_a_table_that_another_writer_moved_is_40001_and_no_table_moves(
    catalog: ScriptedCatalog, tables: GatewayTableApi
) -> None:
    catalog.main["b"] = MEDDLED
    with pytest.raises(ReplicationError, match=r'"s\.b": main was moved') as raised:
        move(tables)
    assert raised.value.code == "40001"
    assert (catalog.calls, catalog.main["a"]) == ([], BEFORE)


@pytest.mark.parametrize("effect", [True, False])
def test_a_cut_connection(catalog: ScriptedCatalog, tables: GatewayTableApi, effect: bool) -> None:
    """The successor's fences tell whether a call without an answer comes late."""
    catalog.answers = [Answer(CUT, effect)]
    if effect:
        assert move(tables) == [None, None]
    else:
        with pytest.raises(ReplicationError, match="the lake's catalog failed") as raised:
            move(tables)
        assert raised.value.code == "58030"
    assert catalog.calls == [BOTH]


@pytest.mark.parametrize("status", [400, 403, 404, 405, 406, 413, 422, 501])
def test_a_refusal_of_the_call(
    catalog: ScriptedCatalog, tables: GatewayTableApi, status: int
) -> None:
    """Whatever the catalog's words are; none of them is shown."""
    catalog.answers = [Answer(status, said="jakarta.ws.rs.NotFoundException: s3cret")]
    with pytest.raises(FeatureNotSupported) as raised:
        move(tables)
    assert "s3cret" not in raised.value.report()
    assert (catalog.calls, catalog.main) == ([BOTH], UNMOVED)
    assert not tables.moves_together


@pytest.mark.parametrize(("status", "code"), [(401, "42501"), (429, "58030")])
def test_an_answer_that_is_not_about_the_call_is_an_error(
    catalog: ScriptedCatalog, tables: GatewayTableApi, status: int, code: str
) -> None:
    catalog.answers = [Answer(status)] * 2
    assert tables.moves_together
    with pytest.raises(ReplicationError) as raised:
        tables.fast_forward_together(PARTS, in_turn)
    assert (raised.value.code, catalog.main) == (code, UNMOVED)
    assert tables.moves_together


@pytest.mark.parametrize("catalog", [False], indirect=True)
def test_a_catalog_that_does_not_list_the_call(tables: GatewayTableApi) -> None:
    assert not tables.moves_together
