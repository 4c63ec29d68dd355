"""The limits of logs, terminals, metrics, health checks, comparisons and password commands.

Also those of files before a commit, of rows before their lake table, of commits, of a store's lent
keys, and of the demo.

As in ``config.limits``, a name ends in its unit and the line below gives the reason.
"""

from __future__ import annotations

from typing import Final

_MB: Final = 2**20

# -- logs ------------------------------------------------------------------------------------------

LOG_FILE_BYTES: Final = 20 << 20
"""The size at which a log file is renamed; the lake server's log has the same limit."""
LOG_KEPT_FILES: Final = 3
"""Renamed log files that are kept: hours of the busiest log, and a bounded disk."""
LOG_EQUAL_LINES: Final = 10
"""Equal log lines that are written within ``LOG_EQUAL_SECONDS``: an error is seen to last."""
LOG_EQUAL_SECONDS: Final = 600.0
"""Time after which a counted line is written once more: an operator sees the count soon."""
LOG_EQUAL_TEXTS: Final = 200
"""Different lines that are counted at a time: more would make every log line slow."""

# -- what a terminal shows -------------------------------------------------------------------------

WATCH_SECONDS: Final = 1.0
"""Time between two displays of ``pgsub status --watch``."""
LIVE_SECONDS: Final = 1.0
"""Time between two displays of ``pgsub up`` on a terminal."""
LIVE_RATE_SECONDS: Final = 5.0
"""A rate on the terminal of ``pgsub up`` is taken over this time."""
LOG_END_LINES: Final = 10
"""Lines of the log that a launcher's failed end shows on a terminal."""
LIVE_END_SECONDS: Final = 5.0
"""Time for the display to draw a last time and end."""

# -- metrics and health ----------------------------------------------------------------------------

LAKE_ERRORS_SECONDS: Final = 300.0
"""Time for which every subscription has errors of the lake before the lake server is replaced. A
store that is away for minutes comes back, and a new server would not help."""
LAKE_ERRORS_POLL_SECONDS: Final = 10.0
"""Time between two looks of the launcher at the errors of the workers."""
CATALOG_PROBE_SECONDS: Final = 86_400.0
"""Time between two probes of the lake's catalog: an upgrade that loses rows is found in a day."""
PUBLICATION_LOOK_SECONDS: Final = 30.0
"""Time between two looks for tables that joined or left a publication (``refresh: auto``)."""
PUBLICATION_LOOK_MOST_SECONDS: Final = 600.0
"""The most time for a look: a frozen publisher does not hold the other subscriptions for longer."""
SLOT_WAIT_SECONDS: Final = 0.5
"""Time for a scrape to wait for the publishers: a monitor gives up after ten seconds."""
SLOT_ASK_SECONDS: Final = 10.0
"""Time for one connection and query to a publisher; a frozen publisher holds one thread."""
SLOT_FRESH_SECONDS: Final = 60.0
"""Age at which an answer about a slot is dropped: two scrapes of the usual pace are less."""
HEALTH_ANSWER_SECONDS: Final = 5.0
"""Time for the launcher's loop to answer a health check: probes give up after about as long."""
LAKE_PROBE_SECONDS: Final = 1.0
"""Time for the lake server to accept the connection of a health check."""
HTTP_CLIENTS: Final = 8
"""Requests to the metrics listener at a time; a further connection is closed at once."""
HTTP_IDLE_SECONDS: Final = 10.0
"""Time for a client of the metrics listener to send its request, and between two requests."""
LISTEN_RETRY_SECONDS: Final = 10.0
"""Time between two attempts to bind the metrics listener: the address may be in use for a time."""
SERVICE_START_POLL_SECONDS: Final = 1.0
"""Time between two looks whether the service is ready: ``systemctl start`` waits for it."""
SERVICE_STATUS_SECONDS: Final = 10.0
"""Time between two looks for the line that ``systemctl status`` shows: people read it."""

# -- memory of an idle lake server -----------------------------------------------------------------

LAKE_QUIET_SHARE: Final = 0.05
"""A lake server that uses no more than this share of one processor is quiet: heartbeats and Spark's
timers take a hundredth, a batch every few seconds a third."""
LAKE_QUIET_SECONDS: Final = 45.0
"""Time for which a lake server is quiet before the heap is given back: two heartbeats, and longer
than the pause between two batches of a subscription that somebody works with."""
LAKE_QUIET_WORK_SECONDS: Final = 8.0
"""Processor time that a lake server uses between two returns of the heap, of which each takes some
tenths of a second."""

LAKE_SMALL_HEAP_BYTES: Final = 64 << 20
"""The heap of a starting lake server, and the least that is left of the heap when it is idle."""
MANIFEST_THREADS: Final = 32
"""Threads of the lake server that read and write manifests together."""
STORE_TASK_THREADS: Final = 16
"""Tasks of the lake server at a time for tables in a store, unless there are more processors or
the heap is too small. A task waits for a request most of the time: 180 small files with 90 delete
files, 30 ms a request, were counted in 12 s by two tasks, in 3.7 s by eight, in 1.6 s by
sixteen."""
STORE_ROW_GROUP_BYTES: Final = 16 * 2**20
"""Row groups of tables that the lake server makes in a store."""
STORE_DICTIONARY_BYTES: Final = 256 * 2**10
"""Dictionary of a column of such a row group: as large a part of the row group as with Iceberg's
defaults. A task that writes keeps a dictionary for each column. With Iceberg's 2 MB sixteen tasks
that wrote fifty columns took 1.8 GB of heap, and with the size above 1.35 GB. Tables that pgsub
creates have a size of their own (``NEW_TABLE_PROPERTIES``)."""
STORE_TASK_BYTES: Final = 128 * 2**20
"""Heap of the lake server for each of these tasks, which may write. Sixteen tasks that wrote 100
and 200 columns had a heap of 1.4 and 1.5 GB at most, with the row groups and dictionaries above.
With Iceberg's row groups of 128 MB eight tasks that wrote 1.5 GB filled a heap of 2 GB."""
MANIFEST_LIST_THREADS: Final = 4
"""Threads of a worker that have lists of manifests read ahead of the next commits."""
METASTORE_LOCK_SECONDS: Final = 20
"""Iceberg asks a Hive Metastore that fails to make a lock again and again for three minutes."""
MANIFEST_CACHE_BYTES: Final = 16 << 20
"""Manifests that the lake server keeps for a minute, for each of two accesses to a store."""
SERIAL_COLLECTOR_THREADS: Final = 2
"""With so many processors, or fewer, one thread collects the lake server's garbage: two threads
were no quicker."""
NATIVE_TRIM_SECONDS: Final = 10.0
"""Time between two looks of the C library for free pages, which take milliseconds. Batches of forty
tables leave 60 MB of free pages within a minute."""

FREED_MEMORY_SHARE: Final = 0.01
"""The part of the time in which a worker gives freed memory back: a call takes milliseconds."""

HASHED_STEP_ROWS: Final = 32_768
"""Rows whose keys are read and hashed in one step, by up to eight threads at a time: their texts
take 1 MB, and 5 MB with the steps of keys that are numbers (``LOOK_UP_STEP_ROWS``)."""

PYTHON_IDLE_SECONDS: Final = 5.0
"""Time for which Spark's Python stays after the last task: a next copy often follows at once."""
PYTHON_FORK_SECONDS: Final = 5.0
"""Time for which Spark waits for a forked Python, while the fork server may be loading. Then
the program that Spark has started loads the modules itself, in a second or two."""
PYTHON_ASK_SECONDS: Final = 2.0
"""The part of this time in which the launcher has to answer."""
PYTHON_FIRST_TASK_SECONDS: Final = 30.0
"""Time for which a new Python of Spark waits for the first task, on a machine without a free
processor too."""

# -- text that changes on the publisher ------------------------------------------------------------

TEXT_COMPARISON_SECONDS: Final = 10.0
"""Time between two looks at changed text without a batch, in subscriptions with an enum or a
composite: one short query. Each batch has a look of its own."""
ALL_TABLES_SECONDS: Final = 60.0
"""Time between two comparisons of the names and columns of all tables: a connection and a query
over the catalog, in every subscription. A table that is swapped in stays for hours."""
TEXT_COMPARISON_RETRY_SECONDS: Final = 60.0
"""Time after a comparison that the publisher did not answer: its connections may be used up."""

# -- password_command ------------------------------------------------------------------------------

PASSWORD_COMMAND_SECONDS: Final = 30.0
"""Time for a password_command: a cloud's login takes seconds, and a worker may not hang."""
PASSWORD_REFRESH_SECONDS: Final = 300.0
"""Time between two runs of a password_command without a ttl while Spark's tasks copy a table: the
shortest tokens of clouds live for 15 minutes."""

# -- suspended tables ------------------------------------------------------------------------------

LOOKED_FOR_TABLES: Final = 10
"""Other tables that are looked for when a lake table is missing: a wrong catalog has none."""
COPY_GIGABYTE_SECONDS: Final = 50.0
"""Time to copy a gigabyte of a publisher's table, for an estimate: a cautious one."""

# -- files before a commit (streaming = parallel) --------------------------------------------------

PARALLEL_LOOK_BYTES: Final = 8 * _MB
"""Received bytes of a transaction in progress after which the worker looks at the transaction."""
PARALLEL_LEAST_BYTES: Final = 24 * _MB
"""The least records of a slice that becomes data files: some 200,000 rows. Less is written at the
commit, in a second."""
PARALLEL_MOST_BYTES: Final = 32 * _MB
"""The most records of such a slice: they are in memory until its files are written."""
PARALLEL_MEMORY_BYTES: Final = 96 * _MB
"""The memory of such a slice, changes included (``SLICE_CHANGE_BYTES``)."""
PARALLEL_STAND_IN_BYTES: Final = _MB
"""The most records in place of such a slice at the commit: more are read once more."""
PARALLEL_WAIT_SECONDS: Final = 1.0
"""Beside batches, a slice waits so long before its files are written. A publisher sends a large
transaction in bursts: small transactions wait behind a burst, and come first."""
PARALLEL_QUIET_SECONDS: Final = 2.0
"""Without a batch for so long, nothing waits behind a burst, and a slice is written at once."""
PARALLEL_REFUSED_SECONDS: Final = 3600.0
"""A table whose files cannot be searched at a commit has no files for updates and deletes for so
long: every large transaction would be applied twice. Maintenance may join the files meanwhile."""
PREPARED_GROUP_BYTES: Final = 4 * _MB
"""Prepared transactions that share a file. The file stays as long as one of them is prepared. A
larger transaction has a file of its own."""
PARALLEL_FILE_SECONDS: Final = 12 * 3600.0
"""Files written so long before the commit are not used: orphan removal takes files without a
snapshot once they are a day old."""

# -- rows before their lake table ------------------------------------------------------------------

COPY_AHEAD_BYTES: Final = 64 * _MB
"""COPY data that a sync worker keeps in memory while the lake table is made: half a second's rows
of a fast publisher, and few tables of a single range have more."""

# -- stores ----------------------------------------------------------------------------------------

LENT_KEYS_SECONDS: Final = 300.0
"""A catalog's keys of a store are asked for anew so long before they end: longer than a batch."""
S3_REPEATED_ATTEMPTS: Final = 6
"""Repetitions of a request to S3, in two seconds: a store that is busy refuses several in a row.
Arrow's other strategy has a quota that never fills again: the hundredth repetition of a process
would be the last one."""
OBSTORE_REPEATED_ATTEMPTS: Final = 2
"""Repetitions of a request for a small object by obstore; then pyarrow makes the request."""
OBSTORE_FIRST_PAUSE_SECONDS: Final = 0.025
"""Before the first repetition of such a request."""
OBSTORE_LONGEST_PAUSE_SECONDS: Final = 0.2
"""Before a later repetition, at most."""
OBSTORE_CONNECT_SECONDS: Final = 5.0
"""A connection for small objects may take so long to begin."""
OBSTORE_REQUEST_SECONDS: Final = 10.0
"""A small object's request may take so long, then pyarrow makes it: a frozen store, a slow line."""
OBSTORE_IDLE_CONNECTION_SECONDS: Final = 20.0
"""A connection for small objects without a request is closed: each lent key has its own ones."""
PYARROW_ALONE_SECONDS: Final = 60.0
"""Obstore is not asked for so long after a request that it did not bring to an end."""
LONGEST_PYARROW_ALONE_SECONDS: Final = 3600.0
"""The time above doubles with each such request, up to this one, until obstore succeeds."""
WRITE_AT_ONCE_BYTES: Final = 1 * 2**20
"""An object up to this size is gathered in memory and written by one request."""
GCS_RETRY_SECONDS: Final = 30.0
"""Pyarrow repeats a request to Google Cloud Storage so long; without a limit, 15 minutes. A worker
then ends with the error, and its successor tries again."""
LENT_KEY_SESSIONS: Final = 256
"""Buckets and keys whose connections are kept: former keys must not gather in a long life."""

# -- commits ---------------------------------------------------------------------------------------

HELD_DELETES_ROWS: Final = 100_000
"""Deleted rows of a branch's small delete files in memory, and 300 bytes for each data file."""
HELD_FILE_ROWS: Final = 2_000
"""A partition's small file with fewer rows is written again with the next batch's rows."""
HELD_FILE_BYTES: Final = 128 * 1024
"""The same for the rows in memory: every batch writes them again."""
HELD_ROWS_BYTES: Final = 32 * 1024 * 1024
"""Rows of such files that are in memory, of all tables together."""
HELD_COLUMN_BYTES: Final = 1024
"""What a column of a held file takes besides the values: of a few rows that is nearly all."""
SMALL_BATCH_BYTES: Final = 8 * 1024 * 1024
"""A batch with more bytes of new rows is not gathered in memory partition by partition."""
TAKEN_IN_DELETES_ROWS: Final = 10_000
"""Deleted rows of a partition's small delete files that every next delete file takes in."""
WRITE_THREADS: Final = 16
"""Files of the partitions of a small batch that are written at a time."""
STORE_THREADS: Final = 32
"""Requests of one step of a worker to a store at a time, and Arrow's threads for requests. With
Arrow's default of eight, sixteen writers of small files waited for one another, 74 ms a file where
a request takes 30 ms."""

READ_TOGETHER_BYTES: Final = 4 * 2**20
"""Small files of a store that are read at a time, in bytes; all their rows are in memory."""
READ_TOGETHER_ROWS: Final = 65_536
"""The same in rows: rows that are alike take few bytes in a file."""
LARGE_SHARED_DELETES_ROWS: Final = 100_000
"""A delete file for several data files with more rows is read alone."""

COMMIT_PAUSE_SECONDS: Final = 0.1
"""The pause before a refused commit is tried again; twice as long each time, as in Iceberg."""

# -- the demo --------------------------------------------------------------------------------------

DEMO_TRANSACTIONS_PER_SECOND: Final = 60.0
"""The shop's load: enough to be seen, and little for a laptop."""
DEMO_STREAM_SECONDS: Final = 20.0
"""Time of the demo after every table follows the stream."""
DEMO_SYNC_SECONDS: Final = 1800.0
"""Time until every table has to be in state r: a first start fetches jars."""
DEMO_CATCH_UP_SECONDS: Final = 300
"""Time for the lake to reach the publisher once the load has ended."""
DEMO_STOP_SECONDS: Final = 60.0
"""Time for the launcher to end before the demo kills the launcher."""
DEMO_TICK_SECONDS: Final = 0.25
"""Time between two displays."""
DEMO_PLAIN_LINE_SECONDS: Final = 2.0
"""Time between two lines without a terminal."""
DEMO_RATE_SECONDS: Final = 3.0
"""The time over which a displayed rate is the mean."""
DEMO_ERROR_SECONDS: Final = 10.0
"""Time for which an error of the stream is displayed; a table's error stays until the copy ends."""
DEMO_STATUS_SECONDS: Final = 2.0
"""Time for the launcher to reply to the display; the display goes on without a reply."""
DEMO_LOG_BYTES: Final = 1 * _MB
"""The amount of the log that one look for errors reads."""
POSTGRES_START_SECONDS: Final = 60.0
"""Time for the embedded PostgreSQL to answer after its start, recovery included."""
POSTGRES_CONNECT_SECONDS: Final = 5
"""Time for one attempt to connect while the embedded PostgreSQL starts."""
POSTGRES_START_POLL_SECONDS: Final = 0.02
"""Time between two attempts to connect: a start takes some tenths of a second."""
POSTGRES_STOP_SECONDS: Final = 30
"""Time for the embedded PostgreSQL to end before the next, harder signal."""
POSTGRES_START_AGAIN_SECONDS: Final = 15
"""After a kill, the former children may hold the shared memory for some seconds."""
POSTGRES_START_AGAIN_POLL_SECONDS: Final = 0.1
"""Time between two starts while the shared memory is held."""
COPY_FOOTERS_FILES: Final = 100
"""Files of a copy's task whose footers go to the worker; of a task with more files the commit reads
the footers: a footer has kilobytes, and a partitioned table many files."""
PYTHON_START_SECONDS: Final = 5.0
"""The time that a command, or a worker, waits at the end for Spark's Python to have started."""
CONFIRMED_FILE_SECONDS: Final = 30.0
"""The age up to which a commit does not ask an object store whether a staged file is there."""
