"""Reading a table by COPY: CSV into typed Arrow batches, here and in Spark's executors.

Spark tasks of a parallel copy get the module *by value*: an executor may lack pgsub. So the module
imports, of pgsub, only ``workers.columnar.text_values``, which travels by value too, and imports
more modules only inside functions that never run in an executor without pgsub. Compiled kernels
read the binary form, and kernels do not travel: an executor with the kernels installed copies in
binary form, an executor without kernels copies text, and the values are the same.

A task imports the exported snapshot, so that all tasks and the sync worker see the same rows::

    connect · zero the timeouts, empty search_path · BEGIN READ ONLY REPEATABLE READ
    SET TRANSACTION SNAPSHOT '…' · COPY (SELECT … WHERE ctid >= … AND ctid < …) TO STDOUT (csv)

In CSV an unquoted empty field is NULL and a quoted empty field is the empty string. A quoted value
may hold newlines, so a block is cut only behind a newline with an even number of quotes before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.csv

from workers.columnar.text_values import Unrepresentable, typed

csv: Final[Any] = pyarrow.csv

Whole = bytes | bytearray
Bytes = Whole | memoryview
Nodes = tuple[Sequence[Sequence[int]], Sequence[int]]
"""How to read a binary COPY's columns (``workers.columnar.copy.binary_reader``)."""

CSV: Final = "(FORMAT csv)"
BINARY: Final = "WITH (FORMAT binary)"
"""COPY's options, at the end of the statement."""

_BOM: Final = b"\xef\xbb\xbf"
BLOCK: Final = 3 << 20
"""The least number of bytes of CSV in a batch."""
_CHUNK: Final = 1 << 20
TASK_ERROR: Final = "PGSUB-TASK-ERROR:"
"""Marks a task's error, a line of JSON, in the text that Spark reports."""

_ZERO_TIMEOUTS: Final = (
    "SELECT count(pg_catalog.set_config(name, '0', false)),"
    " pg_catalog.set_config('search_path', '', false) FROM pg_catalog.pg_settings"
    " WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',"
    " 'idle_session_timeout', 'transaction_timeout') GROUP BY 2"
)

_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '10s'"
"""The sync worker's lock keeps all sessions from rewriting the table. A session that waits to do so
is in the queue before a range's lock. Without a timeout the copy and the session would wait for
each other for ever."""


class CopiedColumn(Protocol):
    """The part of a ``LakeColumn`` that a copy needs."""

    @property
    def name(self) -> str:
        """The name, for messages."""

    @property
    def type(self) -> pa.DataType:
        """The type to read text as."""


class BatchReader(Protocol):
    """Reads a COPY's data."""

    def batches(self, chunks: Iterable[Bytes]) -> Iterator[pa.RecordBatch]:
        """The rows."""


class CopyTaskError(Exception):
    """An error with PostgreSQL's fields. Spark reports its ``str()`` from a task to the worker."""

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
    clamped: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of a COPY … (FORMAT csv) as batches with columns ``c0…`` of the columns' types.

    ``chunks`` may be cut anywhere. With ``nodes`` the data are (FORMAT binary). Raises 22003 with
    the names of table and column for a value that the column cannot hold (with
    ``null_unrepresentable`` the value becomes NULL, and a date or timestamp in a column of
    ``clamped`` becomes the first or last one), 08P01 for data that are not CSV of as many
    columns, and PostgreSQL's errors for data that are not a binary COPY of the columns' types.
    """
    from catalog.errcodes import ReplicationError

    copied = [(c.name, c.type) for c in columns]
    csv_reader = CopyReader(copied, null_unrepresentable, relation, frozenset(clamped))
    reader = csv_reader if nodes is None else _binary_reader(csv_reader, nodes)
    try:
        yield from reader.batches(chunks)
    except CopyTaskError as error:
        raise ReplicationError(
            error.primary, detail=error.detail, hint=error.hint, sqlstate=error.sqlstate
        ) from None


@dataclass(frozen=True, slots=True)
class CopyReader:
    """Makes batches of CSV; ``columns`` are (name, type) in the COPY's order."""

    columns: Sequence[tuple[str, pa.DataType]]
    null_unrepresentable: bool = False
    relation: str = ""
    clamped: frozenset[str] = frozenset()
    block: int = BLOCK

    def batches(self, chunks: Iterable[Bytes]) -> Iterator[pa.RecordBatch]:
        """A batch for about every ``block`` bytes."""
        # One growing buffer: a list of 40,000 rows costs three times the reading of them.
        data = bytearray()
        for chunk in chunks:
            data += chunk
            whole = len(data) >= self.block and data.endswith(b"\n")
            if whole and data.count(b'"') % 2 == 0:  # an odd number: the line ends inside a value
                yield self.parse(data)
                data = bytearray()
        if data:
            yield self.parse(data)

    def parse(self, data: Whole) -> pa.RecordBatch:
        """A batch of whole rows.

        The CSV parser reads most types at once. Types for which the parser is too generous, and
        data that the parser refuses, are read as text first and then converted.
        """
        as_read = True
        try:
            table = self._read(data, {n: direct(t) for n, (_, t) in enumerate(self.columns)})
        except pa.ArrowInvalid:
            table = self._read_text(data)
            as_read = False  # also for text columns, which may not be valid UTF-8
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
            # ``typed`` finds bytes that are not UTF-8, and can name the column.
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
            # The parser removes a byte order mark at the start. The mark here is part of a value.
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
            return typed(
                _one_chunk(column),
                type,
                null_unrepresentable=self.null_unrepresentable,
                clamp=name in self.clamped,
            )
        except Unrepresentable:
            raise CopyTaskError(
                "22003",
                f'column "{name}" of lake table "{self.relation}" cannot hold a value that the'
                " publisher sent",
                f"The column's type in the lake is {type}.",
                "Declare on_unrepresentable: null or text for the table, or clamp for dates and"
                " timestamps; or correct the value on the publisher.",
            ) from None


def _binary_reader(reader: CopyReader, nodes: Nodes) -> BatchReader:
    """A reader of binary COPY data; ImportError if the kernels are not installed."""
    from workers.columnar.copy.binary_reader import BinaryCopyReader

    null, relation = reader.null_unrepresentable, reader.relation
    return BinaryCopyReader(reader.columns, nodes, null, relation, CopyTaskError, reader.clamped)


def direct(type: pa.DataType) -> pa.DataType | None:
    """The type for the CSV parser to read, or None for text.

    Only types for which the parser is as strict as ``typed``. Floating point is excluded, because
    the parser turns too large numbers into infinity. Decimals are excluded, because the parser
    brings a decimal to the column's scale even if the decimal does not fit.
    """
    strict = pa.types.is_integer(type) or pa.types.is_boolean(type) or pa.types.is_string(type)
    return type if strict else None


def _one_chunk(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


# -- in an executor -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turns:
    """Lets ``at_once`` tasks of a machine read at a time; the others wait for a turn.

    A turn is the lock of a file in ``folder``, which ends with the process. Spark may start more
    tasks than may read, where tasks mostly wait for a store.
    """

    folder: str
    at_once: int

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The turn of a task."""
        import fcntl
        import os

        paths = [os.path.join(self.folder, f"copy-turn-{n}") for n in range(self.at_once)]
        files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for path in paths]
        try:
            for file in files:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    continue
            else:
                fcntl.flock(files[os.getpid() % len(files)], fcntl.LOCK_EX)
            yield
        finally:
            for file in files:
                os.close(file)


@dataclass(frozen=True, slots=True)
class CopyTask:
    """The work of all ``tasks`` tasks of a copy; called with a task's number.

    ``kernels`` is the digest of the kernels for which the ``nodes`` were made
    (``workers.columnar.kernel``).
    """

    conninfo: str
    passfile: str | None
    snapshot: str
    statements: Sequence[str]
    tasks: int
    reader: CopyReader
    nodes: Nodes | None = None
    kernels: str = ""
    turns: Turns | None = None

    def __call__(self, numbered: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``mapInArrow``'s function: batches of task numbers in, batches of rows out.

        A task's ranges are spread over the table, so that the empty ranges are spread too.
        """
        compiled = self._has_kernels()
        reader, statements = self._readable(compiled)
        with self.turns.taken() if self.turns else nullcontext():
            for batch in numbered:
                numbers: list[Any] = batch.column(0).to_pylist()
                for number in numbers:
                    for statement in statements[number :: self.tasks]:
                        yield from reader.batches(self.copy_range(statement, compiled))

    def _has_kernels(self) -> bool:
        """Does the executor have the same kernels as the copy's worker?

        An executor whose kernels fail for any reason copies text.
        """
        try:
            from workers.columnar import kernel, libpq
            from workers.columnar.copy import binary_reader, libpq_rows

            libpq.register_symbols()
        except Exception:  # pgsub is not installed, or a library is missing
            return False
        return (
            bool(binary_reader and libpq_rows) and kernel.kept() and self.kernels == kernel.DIGEST
        )

    def _readable(self, compiled: bool) -> tuple[BatchReader, Sequence[str]]:
        """The reader for the executor, and the statements in the format of the reader."""
        if self.nodes is None:
            return self.reader, self.statements
        if compiled:
            return _binary_reader(self.reader, self.nodes), self.statements
        text = [each.removesuffix(BINARY) + CSV for each in self.statements]
        return self.reader, text

    def copy_range(self, statement: str, compiled: bool) -> Iterator[Bytes]:
        """The data of a range, on a separate connection; ``compiled``: the kernels are there."""
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
            try:
                self._run(conn, f"SET TRANSACTION SNAPSHOT {quoted}")
            except CopyTaskError as error:
                # The connection that exported the snapshot has ended.
                raise CopyTaskError(
                    "08006", "lost the snapshot of a copy on the publisher", error.primary
                ) from None
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
    """The data of a running COPY, many rows at a time."""
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
    """The publisher's error with its SQLSTATE, but without DETAIL, which may quote rows."""
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
    """A snapshot's name as a literal. The name comes from the server, and is checked anyway."""
    if not value or not all(c.isalnum() or c == "-" for c in value):
        raise CopyTaskError("XX000", "the exported snapshot has an impossible name")
    return f"'{value}'"
