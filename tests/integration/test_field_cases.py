"""Cases that other software got wrong with PostgreSQL's types: what the lake must have instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow

_FUNCTIONS = "LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE"
SHAPE = (
    "CREATE TYPE shape",
    f"CREATE FUNCTION shape_in(cstring) RETURNS shape {_FUNCTIONS} AS 'textin'",
    f"CREATE FUNCTION shape_out(shape) RETURNS cstring {_FUNCTIONS} AS 'textout'",
    f"CREATE FUNCTION shape_recv(internal) RETURNS shape {_FUNCTIONS} AS 'textrecv'",
    f"CREATE FUNCTION shape_send(shape) RETURNS bytea {_FUNCTIONS} AS 'textsend'",
)
AS_TEXT = (
    "CREATE TYPE shape (INPUT = shape_in, OUTPUT = shape_out, LIKE = pg_catalog.text,"
    " DELIMITER = ':')"
)
AS_BINARY = (
    "CREATE TYPE shape (INPUT = shape_in, OUTPUT = shape_out, RECEIVE = shape_recv,"
    " SEND = shape_send, LIKE = pg_catalog.text, DELIMITER = ':')"
)


# github.com/martin-georgiev/postgresql-for-doctrine/issues/724: PostGIS separates the elements of
# geometry[] by ':'. A type of text's own functions shows the same without PostGIS.
@pytest.mark.parametrize(
    "made", [pytest.param(AS_TEXT, id="text"), pytest.param(AS_BINARY, id="binary")]
)
def test_arrays_that_a_colon_separates_are_text(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow], made: str
) -> None:
    flow = make_flow(publisher, f"colon_{'binary' if made is AS_BINARY else 'text'}")
    flow.both(*SHAPE, made, "CREATE TABLE plots (id int PRIMARY KEY, parts shape[])")
    flow.pub.run(
        "INSERT INTO plots VALUES (1, '{0101AA:0101BB}'), (2, '{NULL:x}'), (3, '{}'), (4, NULL),"
        " (5, '{single}')",
        "CREATE PUBLICATION pub FOR TABLE plots",
    )
    flow.subscribe("sub", ["pub"])
    flow.catch_up()
    assert _rows(flow) == [
        (1, "{0101AA:0101BB}"),
        (2, "{NULL:x}"),
        (3, "{}"),
        (4, None),
        (5, "{single}"),
    ]
    flow.pub.run(
        """INSERT INTO plots VALUES (6, '{1,2:3,4}'), (7, '{"a:b":"c d":NULL}')""",
        "UPDATE plots SET parts = '{0101CC:0101DD:0101EE}' WHERE id = 1",
    )
    flow.catch_up()
    published = flow.pub.execute("SELECT id, parts::text FROM plots ORDER BY id")
    assert _rows(flow) == published
    assert published[0] == (1, "{0101CC:0101DD:0101EE}")
    assert published[5][1] == "{1,2:3,4}"


def _rows(flow: Flow) -> list[tuple[object, ...]]:
    return sorted(flow.pgsub.rows(flow.name, "plots", ["id", "parts"]))
