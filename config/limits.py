"""Every limit that is no setting: time-outs, sizes and counts, all named with a unit.

A user changes a setting (``config.guc``). A developer changes a limit, here, or for logs and
metrics in ``config.monitor_limits``, and nowhere else. The line below a limit gives the reason.
Three kinds of numbers stay where the code uses the number: codes of compiled kernels, constants of
a file format or of a protocol, and the numbers of ``workers.lake.copy_task``, which travels to
Spark's executors alone.
"""

from __future__ import annotations

from typing import Final

_KB: Final = 1 << 10
_MB: Final = 1 << 20

# -- the launcher ----------------------------------------------------------------------------------

CATALOG_POLL_SECONDS: Final = 5.0
"""Time between two reads of the catalog without a notice: a notice may be lost."""
GAP_RETRY_SECONDS: Final = 60.0
"""Time until a worker that a gap ended starts again, for example after a lost slot. Waiting does
not bring the slot back. The commands that mend the gap do not wait for this time."""
REPEATED_ERROR_RETRY_SECONDS: Final = 180.0
"""Longest time until a worker starts again that ended with its predecessor's error. A life of a
worker costs sessions of the lake server, a walsender, and for a copy a slot and the copied rows."""
WORKER_STOP_SECONDS: Final = 30.0
"""Time between SIGTERM and SIGKILL: a worker may finish the lake commit in flight."""
WORKER_ATTACH_SECONDS: Final = 60.0
"""Time for a worker to attach, or wal_receiver_timeout if longer. The launcher sees a dead worker
at once, so the limit is for frozen workers only and must leave time to load on a busy machine."""
KILL_AGAIN_SECONDS: Final = 1.0
"""Time until the launcher looks again at a process that SIGKILL has not ended yet."""
LAKE_START_POLL_SECONDS: Final = 0.1
"""Time between two looks of the launcher at a starting lake server."""
LAKE_FIRST_START_ATTEMPTS: Final = 3
"""Starts of a launcher's first lake server before the launcher reports the error and ends."""
LAKE_RESTART_LONGEST_SECONDS: Final = 120.0
"""The wait for the next start of a lake server doubles after each failed start, up to this time."""
LAKE_REPLACE_FIRST_SECONDS: Final = 60.0
"""A lake server of this age may be replaced. Every replacement doubles the age: a lasting cause,
perhaps in one table, must not take the server from all tables for ever."""
LAKE_REPLACE_LONGEST_SECONDS: Final = 3600.0
"""The doubling of ``LAKE_REPLACE_FIRST_SECONDS`` ends here."""
PREDECESSOR_EXIT_SECONDS: Final = 30.0
"""Time for the processes of the former launcher to end."""
PREDECESSOR_POLL_SECONDS: Final = 0.1
"""Time between two looks of a new launcher for the end of the former processes."""
PASSFILE_UNNAMED_SECONDS: Final = 3600.0
"""The launcher removes a password file of this age without a row in the catalog. Every command
takes less time between the file and the row."""

# -- the launcher's socket -------------------------------------------------------------------------

LAUNCHER_CLIENTS: Final = 512
"""Connections at a time: one for a worker, one for a command during a question."""
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Pause of the launcher's loop when no descriptor is free for a waiting client."""
LAUNCHER_BACKLOG_CLIENTS: Final = 64
"""Connections before their acceptance: the workers of all tables may start together."""
SOCKET_CHUNK_BYTES: Final = 64 * _KB
"""One read of the socket: most messages fit."""
SOCKET_LINE_BYTES: Final = 4 * _MB
"""The longest message: a report of many tables fits, and a stranger cannot fill the memory."""
SOCKET_PATH_BYTES: Final = 100
"""The longest path of the socket: the kernel allows 108 bytes, other systems 104."""
LAUNCHER_REPLY_SECONDS: Final = 60.0
"""Time until a worker takes a launcher without a reply for frozen."""
LAUNCHER_LAKE_SECONDS: Final = 600.0
"""Time for the lake server to be ready for a worker: a first start may fetch jars."""
LAUNCHER_QUERY_SECONDS: Final = 10.0
"""Time for the launcher to reply to a command: the user is watching."""
REPORT_SECONDS: Final = 0.1
"""Time between two reports of one worker; reports in between are merged."""

# -- commands --------------------------------------------------------------------------------------

WORKER_EXIT_SECONDS: Final = 120.0
"""Time for a worker to end at a command's request: the worker finishes a lake commit first."""
WORKER_EXIT_POLL_SECONDS: Final = 0.05
"""Time between two looks of a command for the end of a worker."""
HOLD_ANSWER_SECONDS: Final = 10.0
"""Time for the launcher to answer, beyond the wait for the workers."""
BATCH_END_SECONDS: Final = 120.0
"""Time for a worker to end the batch in flight at a command's request."""
SLOT_RELEASE_SECONDS: Final = 10.0
"""Time for the publisher to notice during DROP that the reader of a slot is gone."""
SLOT_RELEASE_POLL_SECONDS: Final = 0.1
"""Time between two looks of a command for a released slot."""
LAKE_FIRST_START_SECONDS: Final = 600.0
"""Time for a launcher's first lake server to answer a command: the server may be fetching jars."""
LAKE_RESTART_SECONDS: Final = 150.0
"""Time for a restarted lake server to answer a command, or for a launcher to end."""
LAKE_ANSWER_SECONDS: Final = 45.0
"""Time for a command's lake server to answer once the server listens."""
LAKE_WAIT_POLL_SECONDS: Final = 0.1
"""Time between two looks of a command for the launcher's lake server."""
WAIT_NOTICE_SECONDS: Final = 2.0
"""Time after which a waiting command tells the user the reason."""
RENAMES_SECONDS: Final = 60.0
"""Time for ``up`` to bring a subscription in line between the renames that workers finish."""
LOOK_UP_AT_ONCE_TABLES: Final = 4
"""Tables in one look-up of a command; a table is a round trip of a tenth of a second."""
ACCEPT_GAP_AT_ONCE_TABLES: Final = 4
"""Tables that accepting a gap writes at a time; a table is a handful of round trips."""
FENCE_AT_ONCE_TABLES: Final = 4
"""Tables that a rebuild fences at a time; a fence is a commit of some tenths of a second."""
WAIT_POLL_SECONDS: Final = 0.1
"""Time between two comparisons of positions by ``pgsub wait``."""

# -- waits of workers ------------------------------------------------------------------------------

NAPTIME_PER_CYCLE_SECONDS: Final = 1.0
"""The wait of an idle turn of an apply loop, as in PostgreSQL. Every event ends the wait."""
SLOT_POLL_SECONDS: Final = 0.05
"""Time between two looks of a new worker whether the former walsender released the slot."""
FAILPOINT_POLL_SECONDS: Final = 0.02
"""Time between two looks of a process at a failpoint whether the test lets the process go on."""
BATCH_DELAY_TRANSACTIONS: Final = 500
"""The smallest batch that a pause follows: smaller batches say that little comes."""
SMALL_TRANSACTION_CHANGES: Final = 20
"""Changes of a transaction, on average, up to which transactions are small."""
BATCH_DELAY_QUIET_SECONDS: Final = 0.1
"""Silence of this length ends the pause. The time is longer than a turn of the receive thread: the
thread reports received bytes after a turn only."""
SYNC_STANDSTILL_SECONDS: Final = 900.0
"""A sync worker that the apply worker waits for is stopped when it gives no sign for this long."""
STILL_WAITING_SECONDS: Final = 60.0
"""Time between two looks of a waiting slot creation for the transaction that holds it up."""
TABLE_LOCK_SECONDS: Final = 1800.0
"""A worker waits this long for its turn at a shared table: longer than any batch of others."""
TABLE_LOCK_POLL_SECONDS: Final = 0.02
"""Time between two tries of a worker to get its turn at a shared table."""

# -- connections to the publisher ------------------------------------------------------------------

CONNECT_SECONDS: Final = 30
"""``connect_timeout`` without a value in the connection string: libpq would wait for ever."""
WAIT_SLICE_SECONDS: Final = 0.2
"""The length of one wait for the publisher; between two waits the worker looks for signals."""
KEEPALIVE_IDLE_SECONDS: Final = 10
"""``tcp_keepalives_idle`` of a session: the silence before the publisher probes the worker's host.
With the two limits below, the temporary slot of a vanished host is free in under a minute."""
KEEPALIVE_INTERVAL_SECONDS: Final = 10
"""``tcp_keepalives_interval`` of a session: the time between two probes."""
KEEPALIVE_PROBES: Final = 3
"""``tcp_keepalives_count`` of a session: the number of lost probes that ends the connection."""
UNACKNOWLEDGED_SECONDS: Final = 30
"""libpq's ``tcp_user_timeout``: how long sent bytes may stay unacknowledged before the connection
ends. Keepalives do not run while sent bytes wait, so a vanished publisher needs this limit too."""
LOCK_WAIT_SECONDS: Final = 1
"""``lock_timeout`` of a question that needs a lock: the holder may wait for the worker's
confirmation (TRUNCATE under synchronous_standby_names)."""
STREAMED_PIECE_BYTES: Final = 16 * _MB
"""``logical_decoding_work_mem`` of a walsender that sends transactions in progress.

The walsender sends a large transaction in pieces of this size, and small transactions wait behind a
piece. With PostgreSQL's 64 MB the p95 freshness of small transactions was 1.2 to 1.5 times the p95
without the large transaction, with 16 MB 0.9 times, in turn in the same hour."""
RECEIVE_BUFFER_BYTES: Final = 128 * _KB
"""Receive buffer (the kernel doubles the size) when the publisher is on the worker's machine.

The buffer fills while the reader naps (``workers.columnar.drain``); only then the walsender's
messages gather into large packets. The default buffer grows far beyond the messages of a nap. Half
of the limit holds less than loopback's packet of 64 KB and the sender waits: 84 MB of wide rows
took 1.9 to 3.7 s instead of 1.1 to 1.5. Over a real network the limit would bound the rate, and
network cards gather messages without help."""

# -- receiving and spooling ------------------------------------------------------------------------

RECEIVE_TURN_SECONDS: Final = 1.0
"""The longest wait of the receive thread for the socket."""
RECEIVED_FEEDBACK_SECONDS: Final = 0.1
"""Time between two confirmations of pieces of a transaction. Each costs a write to the catalog, and
a publisher that sends its changes one by one would have thousands a second."""
PAUSED_FEEDBACK_SECONDS: Final = 10.0
"""Time between two confirmations of a paused receiver if ``wal_receiver_status_interval`` is 0."""
SENDER_TIMEOUT_SECONDS: Final = 60.0
"""A paused receiver's ``wal_sender_timeout`` for a publisher without a time-out."""
SENDER_TIMEOUT_CONFIRMATIONS: Final = 3
"""Confirmations of a paused receiver in one ``wal_sender_timeout``: two may be late."""
SEGMENT_FIRST_BYTES: Final = 1 * _MB
"""A segment's first buffer; the buffer doubles. A larger streamed transaction is not copied."""
SEGMENT_SCRATCH_BYTES: Final = 4 * _MB
"""Received bytes of a segment on disk before the next write."""
INDEX_READ_TRANSACTIONS: Final = 65_536
"""Entries of a spool's index that are read from disk at a time: 2.6 MB."""
GIVE_PAGES_BACK_SECONDS: Final = 0.05
"""Time after which a batch on disk gives pages back. A kernel touches some tens of megabytes in the
time, and memory stays flat."""
DRAIN_COMMITS: Final = 4096
"""Commits that one call of the drain kernel can report."""
DRAIN_FEW_BYTES: Final = 4096
"""The next read waits a little if fewer bytes came from a read and fewer wait in the socket."""
DRAIN_FIRST_NAP_NANOSECONDS: Final = 200_000
"""The first nap between two reads. Also the longest where the publisher is on a different machine,
or behind a Unix socket, which holds some 270 messages."""
DRAIN_LONGEST_NAP_NANOSECONDS: Final = 20_000_000
"""Naps of 1 and 3 ms end before the receive buffer is full and save little. Naps of 10 ms cost the
walsender 2.5 and 3.9 s, beside 1.9 and 2.8 s with 20 ms; naps of 40 ms, with twice the buffer, 2.2
and 2.7 s."""
DRAIN_BUDGET_NANOSECONDS: Final = 50_000_000
"""The longest call of the drain kernel: afterwards Python looks for signals and sends feedback."""
FRAME_WINDOW_BYTES: Final = 16 * _MB
"""Bytes that are framed before pages are given back; a kernel needs some milliseconds."""
SLICE_CHANGE_BYTES: Final = 128
"""Memory of a change of a slice besides the change's record: frame 30, fold 81, the rest for what
is looked up in the lake."""
SLICE_CHANGES: Final = 1_000_000
"""The most changes of a slice: ``LOOK_UP_CHANGES`` existing rows are found without a MERGE."""
SLICE_OF_ROWS_CHANGES: Final = 500_000
"""The most of them that change or delete a row. The look-up of a million took 160 MB more."""

# -- building Arrow arrays -------------------------------------------------------------------------

CHUNK_ROWS: Final = 65_536
"""The most rows of an output chunk."""
CHUNK_BYTES: Final = 16 * _MB
"""The most text in an output chunk, unless a single row has more."""
CHUNK_VALUES: Final = 2 << 20
"""Values with positions in memory at once: 12 bytes for a value."""
TEXT_ARRAY_BYTES: Final = 16 * _MB
"""The most text in an array, unless a single value has more."""
COPY_PIECE_BYTES: Final = 4 * _MB
"""A piece of COPY data; a piece with a single large row has more."""
COPY_BLOCK_BYTES: Final = 3 * _MB
"""COPY data that is read at a time, at least. A full buffer of ``libpq_rows`` has more, and is read
in place."""

# -- writing and publishing batches ----------------------------------------------------------------

PUBLISH_ATTEMPTS: Final = 5
"""Attempts to publish a table whose ``main`` an other writer moves meanwhile."""
SHARED_TABLE_ATTEMPTS: Final = 20
"""Attempts on a shared table. A new attempt follows the success of a different source, and a row of
20 takes busy sources and slow steps here."""
COUNT_AT_ONCE_TABLES: Final = 10
"""Number of tables in a query for MERGE results: 40 tables take 1.5 s singly, 0.8 s in tens."""
STAGED_INLINE_BYTES: Final = 8 * _MB
"""A Spark plan with more rows inside is slower than a file."""
STAGED_MEMORY_BYTES: Final = 32 * _MB
"""Staged rows in memory that no other process reads: a file of them takes 0.2 µs a row."""
ROW_GROUP_ROWS: Final = 131_072
"""The most rows of a row group: a reader of few neighbouring keys skips all other row groups."""
ROW_GROUP_BYTES: Final = 8 * _MB
"""A row group of this size takes no more rows: the rows are in memory until the write."""
DATA_FILE_BYTES: Final = 128 * _MB
"""The size after which the next data file begins."""
PARTITIONED_BYTES: Final = 64 * _MB
"""Rows of all partitions of a table that wait in memory until a partition has a row group."""
OPEN_PARTITIONS: Final = 10
"""Data files of different partitions that are written at a time; an upload to S3 has a buffer."""
DICTIONARY_PAGE_BYTES: Final = 16 * _KB
"""The largest dictionary of a column in a Parquet file."""
PAGE_BYTES: Final = 128 * _KB
"""The amount that a reader unpacks at a time. With 1 MB a scan of 3 M rows took 8 % longer."""
LOADED_TABLE_SECONDS: Final = 30.0
"""The age up to which a commit uses the object of a table from the commit before: the keys of the
store that came with it last for minutes at least."""
LOADED_AT_ONCE_TABLES: Final = 100
"""Such objects of a process: each holds a table's metadata, up to some MB, in the lake server."""
OPEN_COMMITS: Final = 10
"""The commits of a lake table that a power cut may take, before they are synchronised: half of the
metadata files that Iceberg keeps (``TABLE_PROPERTIES``)."""
UNSTORED_BATCHES: Final = 4
"""Published batches that may wait for the disk with ``synchronous_commit = off``."""
SEGMENT_COMMITS: Final = 3
"""The most commits for a segment of a batch, or for a compaction."""

# -- looking up keys -------------------------------------------------------------------------------

LOOK_UP_CHANGES: Final = 1_000_000
"""Changes of existing rows that are looked up at a time; more are a MERGE, for memory's sake."""
LOOK_UP_AHEAD_CHANGES: Final = 500_000
"""The same for changes with new rows in files: the worker holds other slices besides. A million
took 60 MB more, and half as many look-ups in the table's keys."""
DELETES_AHEAD_ROWS: Final = 10_000
"""Fewer deletes without a new row, in a slice of a transaction in progress, wait for the commit."""
FETCHING_CHANGES: Final = 10_000
"""The limit when updates keep values that only the table has: the writer fetches the values, and
they may be large."""
LISTED_FILES: Final = 2_000
"""Data files of a table that are listed, one call for a file; Spark reads a longer list faster."""
LOOK_UP_STEP_ROWS: Final = 131_072
"""Rows that are compared in one step."""
PARALLEL_LOOK_UP_ROWS: Final = 1_000_000
"""Rows of a table from which on several files are read at a time."""
LOOK_UP_THREADS: Final = 8
"""Files of a table, or of its partitions, that are read or written at a time."""
ALWAYS_READ_ROWS: Final = 65_536
"""A file with no more rows is always read, and the keys are remembered: opening the file takes as
long."""
FETCHED_BYTES: Final = 256 * _MB
"""Values that are fetched at a time: further values stay in the table."""
FETCH_STEP_BYTES: Final = 8 * _MB
"""Bytes that are read in one step from columns that may be large."""
FETCH_STEP_ROWS: Final = 4_096
"""Rows that are read in one step from columns that may be large."""
READ_AT_ONCE_BYTES: Final = 1 * _MB
"""An object up to this size is read by one request; footer and columns would be several."""
FETCH_NUMBERS_STEP_ROWS: Final = 131_072
"""Rows that are read in one step if the columns are numbers."""
FETCH_BUFFER_BYTES: Final = 1 * _MB
"""The buffer of one reader of a file."""
KEY_CACHE_BYTES: Final = 64 * _MB
"""Keys that a process remembers, of all tables together."""
KEY_CACHE_IDLE_SECONDS: Final = 600.0
"""Keys without a look-up for this time make room for new keys. A shorter time would let every file
of a too large table take the place of the file that is needed next."""
KEY_CACHE_ENTRY_BYTES: Final = 1000
"""The cost of a file's entry besides the keys."""
HASHED_AT_ONCE_ROWS: Final = 524_288
"""Hashed keys with one table of buckets: 36 bytes a row while the table is made, and a search looks
into each table of a file."""
HASHED_KEY_BYTES: Final = 20
"""Memory, or disk, of a remembered key that is hashed."""
KEY_FILE_READ_BYTES: Final = _MB
"""The amount of a file of remembered keys that is read at a time for its checksum."""
KEY_FILE_NOTED_SECONDS: Final = 60.0
"""Time between two notes on the disk that a file of remembered keys is in use, and time without new
files after one found no room."""
KEY_FILES_SPARED_BYTES: Final = 256 * _MB
"""Free room of the disk that remembered keys leave to the catalog and the spool."""
KEY_BLOCK_ROWS: Final = 256
"""Keys with one least value."""
UNPACK_AT_ONCE_BLOCKS: Final = 512
"""Blocks of keys that are unpacked in one step."""
DELETED_ROWS_CACHE_BYTES: Final = 32 * _MB
"""Deleted rows that a process remembers, of all tables together."""
DELETED_ROWS_SHARED_ROWS: Final = 1_000_000
"""Deleted rows of one delete file, or of delete files for several data files, that are remembered
unpacked."""
KEY_BOUNDS_SECONDS: Final = 60.0
"""A table's key ranges are read again after this time."""
SCANNED_TABLE_ROWS: Final = 200_000
"""A smaller table is scanned faster than its key ranges are compared."""
KEY_BOUNDS_TABLE_SHARE: Final = 0.6
"""A MERGE names key bounds if at most this share of the table's rows lies in files inside the
bounds."""
OTHER_WRITERS_COMMITS: Final = 1_000
"""Remembered commits of other writers, the newest first: a table property is read and written whole
with the table's metadata."""
CACHED_KEY_DIGESTS: Final = 4096
"""Relations whose key's digest a worker remembers."""

# -- maintenance -----------------------------------------------------------------------------------

SMALL_BATCH_ROWS: Final = 10_000
"""The files of a larger batch may be large enough to stay."""
IDLE_AFTER_SECONDS: Final = 1.0
"""A table without a change for this time is idle: maintenance waits for no further batch."""
FRAGMENTED_POINTS: Final = 30
"""Points of a table that needs compaction: the files of three small batches."""
COMPACTION_REST_FACTOR: Final = 9
"""Rest for small files after a compaction, as a multiple of the compaction's duration."""
FIRST_MAINTENANCE_BATCHES: Final = 10
"""Batches of a worker before the first maintenance of a table; a small maintenance is enough for
the files of the first batches."""
SMALL_FILE_BYTES: Final = 1 * _MB
"""A smaller data file is small: compaction joins small files."""
WHOLE_FILE_BYTES: Final = 64 * _MB
"""Compaction writes files of this size."""
COMPACTION_AT_ONCE_BYTES: Final = 128 * _MB
"""Files with deleted rows that one compaction rewrites."""
SMALL_FILES: Final = 8
"""Small files that are worth a commit; compaction leaves fewer alone."""
JOINED_ROWS: Final = 1_000_000
"""Rows of larger files that are joined at a time: the next batch waits for a second, not for
many."""
JOIN_STEP_FILES: Final = 4
"""Files of a size that become a file of the next size, and the factor between the two sizes."""
BATCH_DELETE_FILES: Final = 8
"""Delete files of single batches; the next delete file takes them in."""
LARGE_DELETE_FILE_ROWS: Final = 250_000
"""A delete file with more rows stays until maintenance."""
MERGED_DELETES_ROWS: Final = 4_000_000
"""Deleted rows in memory during maintenance; further rows wait for the next maintenance."""
IDLE_DELETE_FILES: Final = 8
"""Delete files, beyond one for a data file, that maintenance leaves alone."""
FILE_REMOVAL_POLL_SECONDS: Final = 30.0
"""Time between two looks for files of expired snapshots whose grace is over."""
LIST_GIVEN_UP_SECONDS: Final = 24 * 3600.0
"""A list of such files that cannot be removed for this long is left to orphan removal."""
ORPHAN_POLL_SECONDS: Final = 60.0
"""Time between two looks of orphan removal for a due table, and before a worker's first look."""
CLOCK_SETTLING_SECONDS: Final = 3600.0
"""The clock may differ this much from the elapsed time. Orphan removal rests as long after somebody
set the clock."""
CLOCK_MARGIN_SECONDS: Final = 60.0
"""The lake server's clock may be this slow: the server refuses an age below a day by the clock."""
STATUS_SNAPSHOTS: Final = 10
"""Snapshots that a table of the status views keeps."""

# -- the lake server and its sessions --------------------------------------------------------------

LAKE_SERVER_READY_SECONDS: Final = 120.0
"""Time for a lake server to listen, on a busy machine too."""
LAKE_SERVER_STOP_SECONDS: Final = 10.0
"""Time for a lake server to end before SIGKILL."""
LAKE_SERVER_ARCHIVE_SECONDS: Final = 40.0
"""Time for the first lake server to end: the server writes the archive of loaded classes then."""
LAKE_SERVER_POLL_SECONDS: Final = 0.05
"""Time between two looks at the output of a starting lake server."""
LAKE_CATALOG_BUSY_SECONDS: Final = 30.0
"""Time for the lock on the lake's SQLite catalog: while its tables are made, or are set back."""
CLASS_DUMP_SECONDS: Final = 60.0
"""Time for Java to write a class archive."""
CLASS_DUMP_STALE_SECONDS: Final = 600.0
"""An unfinished class archive of this age has no living writer."""
JARS_FETCH_SECONDS: Final = 600.0
"""Time to fetch the jars on a slow network."""
JAVA_VERSION_SECONDS: Final = 30
"""Time for ``java -version`` to answer."""
WARM_SERVER_MEMORY_BYTES: Final = 1024 * _MB
"""Heap of the lake server that writes the class archive at build time: the data is tiny."""
WARM_ARCHIVE_SECONDS: Final = 300.0
"""Time to write the class archive at build time, on however slow a machine."""
GATEWAY_SECRET_BYTES: Final = 24
"""Random bytes in the secret of a process's gateway, and in the name of the gateway."""
SHARED_SESSION_SECONDS: Final = 20.0
"""Time for the lake server to clone a session."""
LAKE_BUDGET_SOON_SHARE: Final = 0.75
"""Share of a limit of the lake server from which the launcher starts a new server when no worker
copies a table."""
LAKE_BUDGET_NOW_SHARE: Final = 0.9
"""Share of a limit from which the launcher does not wait for copies."""
LAKE_THREADS: Final = 4_000
"""Threads of a lake server: below the limits that systems set for a service."""
LAKE_SESSIONS: Final = 1_000
"""Sessions of a lake server: hundreds of workers have no more."""
SESSION_FORGET_SECONDS: Final = 3600.0
"""The watch closes a session after this time. No worker uses one after ``SESSION_IDLE_SECONDS``."""
MODEL_FOLDER_SECONDS: Final = 60.0
"""The watch removes an empty session folder of this age if the server lists no session with the
folder's name: a new session is listed sooner."""
SESSION_IDLE_SECONDS: Final = 1800.0
"""A session idle for this time is replaced: servers forget a session after an hour by default."""
KEEPALIVE_POSITIONS_SECONDS: Final = 600.0
"""Status tables that differ in positions of keepalives only are written this long after a write."""
SESSION_TOUCH_SECONDS: Final = 60.0
"""Time between two requests that keep a session known to the server, far below an hour."""
CHANNEL_PING_SECONDS: Final = 360.0
"""Silence of the server during a call until the connection is tested. A Spark Connect server
permits a test every 300 s, and ends the connection after the third test that comes earlier."""
CHANNEL_PING_ANSWER_SECONDS: Final = 60.0
"""Time for the answer to the test, which needs no thread of Spark: a busy server answers too."""
SESSION_RELEASE_SECONDS: Final = 20.0
"""Time for the lake server to release or to touch a session, and to close the catalogs before."""
COMMIT_ATTEMPTS: Final = 5
"""Attempts at a commit that Iceberg refused because the table changed."""
