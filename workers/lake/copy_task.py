"""Reading a table by COPY: CSV into typed Arrow batches, here and in Spark's executors.

Spark tasks of a parallel copy get this module *by value* (executors need not have it installed),
so it imports nothing of ours but ``workers.columnar.text_values``, which travels the same way, and
names other modules only inside functions that never run over there. Binary form is read by compiled
kernels, which do not travel: an executor that has them installed copies in binary form, another
one text, and both bring the same values.

A task imports the exported snapshot, so that all tasks and the sync worker see the same rows::

    connect · zero the timeouts, empty search_path · BEGIN READ ONLY REPEATABLE READ
    SET TRANSACTION SNAPSHOT '…' · COPY (SELECT … WHERE ctid >= … AND ctid < …) TO STDOUT (csv)

In CSV an unquoted empty field is NULL and a quoted one is the empty string, and a quoted value may
hold newlines: so blocks are cut only where a row ends, which is where the number of quotes is even.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.csv

from workers.columnar.text_values import Unrepresentable, typed

csv: Final[Any] = pyarrow.csv

Whole = bytes | bytearray
Bytes = Whole | memoryview
Nodes = tuple[Sequence[Sequence[int]], Sequence[int]]
"""How a binary COPY's columns are read (``workers.columnar.copy.binary_reader``)."""

CSV: Final = "(FORMAT csv)"
BINARY: Final = "WITH (FORMAT binary)"
"""COPY's options, as they end its statement."""

_BOM: Final = b"\xef\xbb\xbf"
BLOCK: Final = 3 << 20
"""Bytes of CSV that become one batch, at least."""
_CHUNK: Final = 1 << 20
TASK_ERROR: Final = "PGSUB-TASK-ERROR:"
"""What stands before a task's error, one line of JSON, in the text Spark reports."""

_ZERO_TIMEOUTS: Final = (
    "SELECT count(pg_catalog.set_config(name, '0', false)),"
    " pg_catalog.set_config('search_path', '', false) FROM pg_catalog.pg_settings"
    " WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',"
    " 'idle_session_timeout', 'transaction_timeout') GROUP BY 2"
)

_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '10s'"
"""The sync worker's lock keeps everybody from rewriting the table. Whoever waits to do that is in
front of a range's own lock, and would wait for ever for a copy that waits for it."""


class CopiedColumn(Protocol):
    """What is needed of a ``LakeColumn``."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    @property
    def type(self) -> pa.DataType:
        """What its text is read as."""


class BatchReader(Protocol):
    """What reads a COPY's data."""

    def batches(self, chunks: Iterable[Bytes]) -> Iterator[pa.RecordBatch]:
        """The rows."""


class CopyTaskError(Exception):
    """An error with PostgreSQL's fields; ``str()`` is what Spark carries home from a task."""

    def __init__(
        self, sqlstate: str, primary: str, detail: str | None = None, hint: str | None = None
    ) -> None:
        self.sqlstate = sqlstate
        self.primary = primary
        self.detail = detail
        self.hint = hint
        fields = {"sqlstate": sqlstate, "primary": primary, "detail": detail, "hint": hint}
        super().__init__(f"{TASK_ERROR} {json.dumps(fields)}")


def read_copy(
    chunks: Iterable[Bytes],
    columns: Sequence[CopiedColumn],
    null_unrepresentable: bool = False,
    relation: str = "",
    nodes: Nodes | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a COPY … (FORMAT csv) as batches with columns ``c0…`` of the columns' types.

    ``chunks`` may be cut anywhere. With ``nodes`` they are (FORMAT binary). Raises 22003 naming
    table and column for a value its column cannot hold (NULL instead with
    ``null_unrepresentable``), 08P01 for what is no CSV of as many columns, what PostgreSQL raises
    for what is no binary COPY of the columns' types.
    """
    from catalog.errcodes import ReplicationError

    csv_reader = CopyReader([(c.name, c.type) for c in columns], null_unrepresentable, relation)
    reader = csv_reader if nodes is None else _binary_reader(csv_reader, nodes)
    try:
        yield from reader.batches(chunks)
    except CopyTaskError as error:
        raise ReplicationError(
            error.primary, detail=error.detail, hint=error.hint, sqlstate=error.sqlstate
        ) from None


@dataclass(frozen=True, slots=True)
class CopyReader:
    """CSV to batches; ``columns`` are (name, type) in the COPY's order."""

    columns: Sequence[tuple[str, pa.DataType]]
    null_unrepresentable: bool = False
    relation: str = ""
    block: int = BLOCK

    def batches(self, chunks: Iterable[Bytes]) -> Iterator[pa.RecordBatch]:
        """A batch for every ``block`` bytes or so."""
        # One growing buffer: a list of 40,000 rows costs three times the reading of them.
        data = bytearray()
        for chunk in chunks:
            data += chunk
            whole = len(data) >= self.block and data.endswith(b"\n")
            if whole and data.count(b'"') % 2 == 0:  # else in a value that ends this line
                yield self.parse(data)
                data = bytearray()
        if data:
            yield self.parse(data)

    def parse(self, data: Whole) -> pa.RecordBatch:
        """Whole rows. Most types are read by the CSV parser at once; where it refuses, and for
        types it would read too generously, text is read first and then made typed."""
        as_read = True
        try:
            table = self._read(data, {n: direct(t) for n, (_, t) in enumerate(self.columns)})
        except pa.ArrowInvalid:
            table = self._read_text(data)
            as_read = False  # even text may be no text
        arrays = [
            column if as_read and column.type == type else self._typed(column, name, type)
            for column, (name, type) in zip(table.columns, self.columns, strict=True)
        ]
        names = [f"c{n}" for n in range(len(arrays))]
        batch: pa.RecordBatch = pa.RecordBatch.from_arrays(
            [_one_chunk(array) for array in arrays], names
        )
        return batch

    def _read_text(self, data: Whole) -> Any:
        try:
            # Bytes that are no UTF-8 are found by ``typed``, which says in which column.
            return self._read(data, dict.fromkeys(range(len(self.columns))), check_utf8=False)
        except pa.ArrowInvalid:
            raise CopyTaskError(
                "08P01",
                f'the COPY of table "{self.relation}" did not send {len(self.columns)} columns',
            ) from None

    def _read(
        self, data: Whole, types: dict[int, pa.DataType | None], *, check_utf8: bool = True
    ) -> Any:
        names = [f"c{n}" for n in range(len(self.columns))]
        if data.startswith(_BOM):
            # The parser takes one off the start of its input. This one is part of a value.
            data = _BOM + data
        return csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(data) + 1
            ),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types={f"c{n}": type or pa.string() for n, type in types.items()},
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                timestamp_parsers=[csv.ISO8601],
                check_utf8=check_utf8,
            ),
        )

    def _typed(self, column: Any, name: str, type: pa.DataType) -> Any:
        try:
            return typed(_one_chunk(column), type, null_unrepresentable=self.null_unrepresentable)
        except Unrepresentable:
            raise CopyTaskError(
                "22003",
                f'column "{name}" of lake table "{self.relation}" cannot hold a value that the'
                " publisher sent",
                f"The column's type in the lake is {type}.",
                "Declare on_unrepresentable: null or text for the table, or correct the value on"
                " the publisher.",
            ) from None


def _binary_reader(reader: CopyReader, nodes: Nodes) -> BatchReader:
    """A reader of binary COPY data; ImportError where its kernels are not installed."""
    from workers.columnar.copy.binary_reader import BinaryCopyReader

    null, relation = reader.null_unrepresentable, reader.relation
    return BinaryCopyReader(reader.columns, nodes, null, relation, CopyTaskError)


def direct(type: pa.DataType) -> pa.DataType | None:
    """The type to let the CSV parser read, None for text: only where it is as strict as ``typed``.

    Floating point is not: the parser turns what is too large into infinity. Nor are decimals: it
    brings them to the column's scale without a look at what no longer fits.
    """
    strict = pa.types.is_integer(type) or pa.types.is_boolean(type) or pa.types.is_string(type)
    return type if strict else None


def _one_chunk(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


# -- in an executor -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyTask:
    """What every one of ``tasks`` tasks of one copy knows; called with a task's number.

    ``kernels`` are those that ``nodes`` are for (``workers.columnar.kernel``).
    """

    conninfo: str
    passfile: str | None
    snapshot: str
    statements: Sequence[str]
    tasks: int
    reader: CopyReader
    nodes: Nodes | None = None
    kernels: str = ""

    def __call__(self, numbered: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``mapInArrow``'s function: batches of task numbers in, batches of rows out.

        A task's ranges lie all over the table, so that none has all the empty ones.
        """
        compiled = self._has_kernels()
        reader, statements = self._readable(compiled)
        for batch in numbered:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                for statement in statements[number :: self.tasks]:
                    yield from reader.batches(self.copy_range(statement, compiled))

    def _has_kernels(self) -> bool:
        """Whether the very kernels are here that the copy's worker has.

        Nothing that keeps them from working may keep this executor from copying.
        """
        try:
            from workers.columnar import kernel, libpq
            from workers.columnar.copy import binary_reader, libpq_rows

            libpq.register_symbols()
        except Exception:  # not installed, or nothing there that it stands on
            return False
        return (
            bool(binary_reader and libpq_rows) and kernel.kept() and self.kernels == kernel.DIGEST
        )

    def _readable(self, compiled: bool) -> tuple[BatchReader, Sequence[str]]:
        """The statements as this executor can read them, and what reads them."""
        if self.nodes is None:
            return self.reader, self.statements
        if compiled:
            return _binary_reader(self.reader, self.nodes), self.statements
        text = [each.removesuffix(BINARY) + CSV for each in self.statements]
        return self.reader, text

    def copy_range(self, statement: str, compiled: bool) -> Iterator[Bytes]:
        """One range on a connection of its own; ``compiled``: our kernels are here."""
        from psycopg import pq
        from psycopg.conninfo import make_conninfo

        more = {"passfile": self.passfile} if self.passfile else {}
        conn = pq.PGconn.connect(make_conninfo(self.conninfo, **more).encode())
        try:
            if conn.status != pq.ConnStatus.OK:
                raise CopyTaskError(
                    "08006", "could not connect to the publisher", _words(conn.error_message)
                )
            self._run(conn, _ZERO_TIMEOUTS)
            self._run(conn, "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
            quoted = conn_literal(self.snapshot)
            self._run(conn, f"SET TRANSACTION SNAPSHOT {quoted}")
            self._run(conn, _LOCK_TIMEOUT)
            self._run(conn, statement)
            yield from _copied(conn, compiled)
            self._run(conn, "COMMIT")
        finally:
            conn.finish()

    @staticmethod
    def _run(conn: Any, sql: str) -> None:
        from psycopg import pq

        result = conn.exec_(sql.encode())
        fine = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COPY_OUT)
        if result.status not in fine:
            raise _server_error(conn, result)


def _copied(conn: Any, compiled: bool) -> Iterator[Bytes]:
    """The data of a COPY that has begun, many rows at a time."""
    from psycopg import OperationalError, pq

    try:
        yield from _pieces(conn) if compiled else _row_by_row(conn.get_copy_data)
    except OperationalError as error:
        raise _lost(str(error).encode()) from None
    while (result := conn.get_result()) is not None:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise _server_error(conn, result)


def _pieces(conn: Any) -> Iterator[memoryview]:
    from workers.columnar.copy.libpq_rows import CopyFailed, copy_data

    try:
        yield from copy_data(conn.pgconn_ptr)
    except CopyFailed:
        raise _lost(conn.error_message) from None


def _row_by_row(get_copy_data: Callable[[int], tuple[int, Any]]) -> Iterator[bytearray]:
    size = 0
    while size >= 0:
        rows = bytearray()
        while len(rows) < _CHUNK and size >= 0:
            size, data = get_copy_data(0)
            rows += data
        yield rows


def _lost(message: bytes) -> CopyTaskError:
    return CopyTaskError("08006", "lost the connection to the publisher", _words(message))


def _server_error(conn: Any, result: Any) -> CopyTaskError:
    """The publisher's error with its own SQLSTATE; DETAIL may quote rows and stays there."""
    from psycopg import pq

    field = pq.DiagnosticField
    sqlstate = result.error_field(field.SQLSTATE)
    primary = result.error_field(field.MESSAGE_PRIMARY)
    if not sqlstate:
        return _lost(conn.error_message)
    if sqlstate == b"55P03":
        return CopyTaskError(
            "55P03",
            "a session that waits to lock a table exclusively stands in the way of its copy",
            _words(primary or b"unknown error"),
            "Nothing is to be done: the copy lets it pass and starts again by itself.",
        )
    return CopyTaskError(
        sqlstate.decode(), f"could not copy a table: {_words(primary or b'unknown error')}"
    )


def _words(message: bytes) -> str:
    return " ".join(message.decode("utf-8", "replace").split())


def conn_literal(value: str) -> str:
    """A snapshot's name as a literal; its letters are the server's, and checked all the same."""
    if not value or not all(c.isalnum() or c == "-" for c in value):
        raise CopyTaskError("XX000", "the exported snapshot has an impossible name")
    return f"'{value}'"
