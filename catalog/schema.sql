-- The durable catalog of a data directory. PostgreSQL's columns come first in each table; an LSN
-- is stored as its text in 16 hexadecimal digits, so that text order is LSN order.

CREATE TABLE object_id (
    next_oid INTEGER NOT NULL
) STRICT;
INSERT INTO object_id VALUES (16384);

CREATE TABLE pg_subscription (
    oid                 INTEGER PRIMARY KEY,
    subdbid             INTEGER NOT NULL,
    subskiplsn          TEXT NOT NULL,
    subname             TEXT NOT NULL,
    subowner            INTEGER NOT NULL,
    subenabled          INTEGER NOT NULL,
    subbinary           INTEGER NOT NULL,
    substream           TEXT NOT NULL,
    subtwophasestate    TEXT NOT NULL,
    subdisableonerr     INTEGER NOT NULL,
    subpasswordrequired INTEGER NOT NULL,
    subrunasowner       INTEGER NOT NULL,
    subfailover         INTEGER NOT NULL,
    subconninfo         TEXT NOT NULL,
    subslotname         TEXT,
    subsynccommit       TEXT NOT NULL,
    subpublications     TEXT NOT NULL,
    suborigin           TEXT NOT NULL,
    subuuid             TEXT NOT NULL UNIQUE,
    subcreate           TEXT NOT NULL,
    create_slot         INTEGER NOT NULL,
    sync_slot           TEXT NOT NULL,
    passfile            TEXT,
    password_env        TEXT,
    generation          INTEGER NOT NULL,
    sysid               TEXT,
    timeline            INTEGER,
    max_flush_lsn       TEXT NOT NULL,
    tables              TEXT NOT NULL,
    datoid              INTEGER,
    password_command    TEXT,
    password_command_ttl REAL NOT NULL DEFAULT 0,
    refresh             TEXT NOT NULL DEFAULT 'manual',
    UNIQUE (subdbid, subname)
) STRICT;

-- Uuids of subscriptions that were dropped: their lake tables are free to be adopted.
CREATE TABLE former_owner (
    subuuid TEXT PRIMARY KEY
) STRICT;

-- Which oid stands for which lake table; a row outlives the subscriptions that used it.
CREATE TABLE lake_relation (
    oid         INTEGER PRIMARY KEY,
    lake_schema TEXT NOT NULL,
    lake_table  TEXT NOT NULL
) STRICT;
CREATE INDEX lake_relation_ident ON lake_relation (lake_schema, lake_table);

CREATE TABLE pg_subscription_rel (
    srsubid       INTEGER NOT NULL REFERENCES pg_subscription (oid) ON DELETE CASCADE,
    srrelid       INTEGER NOT NULL REFERENCES lake_relation (oid),
    srsubstate    TEXT NOT NULL CHECK (srsubstate IN ('i', 'd', 'f', 's', 'r')),
    srsublsn      TEXT,
    nspname       TEXT NOT NULL,
    relname       TEXT NOT NULL,
    lake_schema   TEXT NOT NULL,
    lake_table    TEXT NOT NULL,
    epoch         TEXT,
    attempt       INTEGER NOT NULL,
    base_snapshot INTEGER,
    floor         TEXT NOT NULL,
    lake_lsn      TEXT NOT NULL,
    copied        INTEGER NOT NULL,
    fingerprint   TEXT,
    remote_relid  INTEGER,
    recopy        INTEGER NOT NULL,
    other_relid   INTEGER,
    suspend_time     INTEGER,
    suspend_sqlstate TEXT,
    suspend_error    TEXT,
    suspend_lsn      TEXT,
    resuming         INTEGER NOT NULL DEFAULT 0,
    former_names     TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (srrelid, srsubid),
    UNIQUE (srsubid, nspname, relname)
) STRICT;

CREATE TABLE pg_replication_origin (
    roident    INTEGER PRIMARY KEY,
    roname     TEXT NOT NULL UNIQUE,
    remote_lsn TEXT NOT NULL,
    local_lsn  TEXT
) STRICT;

-- Tables of a batch that is being published: what a successor has to settle by reading the lake.
CREATE TABLE in_flight (
    subid INTEGER NOT NULL REFERENCES pg_subscription (oid) ON DELETE CASCADE,
    relid INTEGER NOT NULL,
    lsn   TEXT NOT NULL,
    PRIMARY KEY (subid, relid)
) STRICT;

-- Spark sessions of workers, stored before first use: closing them is what stops a dead worker's
-- call. No reference to pg_subscription: a dropped subscription's sessions must still be closed.
CREATE TABLE spark_session (
    subid      INTEGER NOT NULL,
    relid      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    user_id    TEXT NOT NULL,
    session_id TEXT NOT NULL,
    PRIMARY KEY (session_id, user_id)
) STRICT;
CREATE INDEX spark_session_worker ON spark_session (subid, relid);

-- Spark sessions nobody uses, for the next copy. The time is Unix's, in seconds.
CREATE TABLE idle_spark_session (
    user_id    TEXT NOT NULL,
    session_id TEXT NOT NULL,
    since      REAL NOT NULL,
    PRIMARY KEY (session_id, user_id)
) STRICT;

-- Replication slots that nobody could remove from the publisher. What is not known any more of
-- where they are is ''.
CREATE TABLE leaked_slot (
    slot_name TEXT NOT NULL,
    conninfo  TEXT NOT NULL,
    sysid     TEXT NOT NULL,
    datoid    INTEGER,
    subname   TEXT NOT NULL,
    passfile  TEXT,
    reason    TEXT NOT NULL,
    PRIMARY KEY (slot_name, sysid, conninfo)
) STRICT;

-- Lake tables that left a subscription and may still have its branches. The time is Unix's, in
-- microseconds.
CREATE TABLE leaked_branch (
    lake_schema TEXT NOT NULL,
    lake_table  TEXT NOT NULL,
    subuuid     TEXT NOT NULL,
    subname     TEXT NOT NULL,
    since       INTEGER NOT NULL,
    reason      TEXT NOT NULL,
    PRIMARY KEY (lake_schema, lake_table, subuuid)
) STRICT;

-- What last ended a worker of a subscription (relid 0: the apply worker) until one goes well, how
-- often in turn, and when the next attempt is due. The times are Unix's, in microseconds.
CREATE TABLE last_error (
    subid        INTEGER NOT NULL REFERENCES pg_subscription (oid) ON DELETE CASCADE,
    relid        INTEGER NOT NULL,
    since        INTEGER NOT NULL,
    sqlstate     TEXT NOT NULL,
    message      TEXT NOT NULL,
    detail       TEXT,
    hint         TEXT,
    failures     INTEGER NOT NULL DEFAULT 1,
    next_attempt INTEGER,
    PRIMARY KEY (subid, relid)
) STRICT;

-- The transaction that ended the last apply worker of a subscription: where it finished, the error,
-- and the table on the publisher if it is known. The next worker tries it alone.
CREATE TABLE transaction_at_fault (
    subid      INTEGER PRIMARY KEY REFERENCES pg_subscription (oid) ON DELETE CASCADE,
    finish_lsn TEXT NOT NULL,
    sqlstate   TEXT NOT NULL,
    nspname    TEXT,
    relname    TEXT
) STRICT;

-- What pg_stat_subscription_stats counts; a subscription without a row has counted nothing. The
-- time is Unix's, in microseconds.
CREATE TABLE subscription_stats (
    subid                           INTEGER PRIMARY KEY
                                    REFERENCES pg_subscription (oid) ON DELETE CASCADE,
    apply_error_count               INTEGER NOT NULL,
    sync_error_count                INTEGER NOT NULL,
    confl_insert_exists             INTEGER NOT NULL,
    confl_update_origin_differs     INTEGER NOT NULL,
    confl_update_exists             INTEGER NOT NULL,
    confl_update_missing            INTEGER NOT NULL,
    confl_delete_origin_differs     INTEGER NOT NULL,
    confl_delete_missing            INTEGER NOT NULL,
    confl_multiple_unique_conflicts INTEGER NOT NULL,
    stats_reset                     INTEGER,
    suspension_count                INTEGER NOT NULL DEFAULT 0,
    schema_change_count             INTEGER NOT NULL DEFAULT 0,
    column_add_count                INTEGER NOT NULL DEFAULT 0,
    column_rename_count             INTEGER NOT NULL DEFAULT 0,
    column_retype_count             INTEGER NOT NULL DEFAULT 0,
    column_leave_count              INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What was done about files of a lake table that no snapshot knows. The time is Unix's, in
-- microseconds: when that was, or since when it is counted.
CREATE TABLE lake_maintenance (
    subid           INTEGER NOT NULL,
    relid           INTEGER NOT NULL,
    since           INTEGER NOT NULL,
    orphan_removals INTEGER NOT NULL,
    orphan_files    INTEGER NOT NULL,
    reason          TEXT,
    PRIMARY KEY (subid, relid),
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;

-- What an apply worker did between its batches to keep a lake table small to read: how often, when
-- last, and when and why each kind failed, until it goes well. Times are Unix's, in microseconds.
CREATE TABLE lake_upkeep (
    subid  INTEGER NOT NULL,
    relid  INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    times  INTEGER NOT NULL,
    done   INTEGER,
    failed INTEGER,
    error  TEXT,
    PRIMARY KEY (subid, relid, kind),
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;

-- The writer of a lake table's rows as a worker chose last: the configuration's word, the choice,
-- and the reason.
CREATE TABLE lake_writer (
    subid  INTEGER NOT NULL,
    relid  INTEGER NOT NULL,
    asked  TEXT NOT NULL,
    writer TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (subid, relid),
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;

-- The enums and composites of a table's columns when the publisher was last asked, as JSON, under
-- the copy id of the rows; and what has changed since the copy. The time is Unix's, in
-- microseconds.
CREATE TABLE text_types (
    subid   INTEGER NOT NULL,
    relid   INTEGER NOT NULL,
    epoch   TEXT NOT NULL,
    types   TEXT NOT NULL,
    changes TEXT NOT NULL,
    since   INTEGER,
    PRIMARY KEY (subid, relid),
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;

-- The publisher's columns that a lake table was last brought in line with, as JSON, under the copy
-- id of the rows. The lake table has the same text as a property.
CREATE TABLE table_columns (
    subid   INTEGER NOT NULL,
    relid   INTEGER NOT NULL,
    epoch   TEXT NOT NULL,
    columns TEXT NOT NULL,
    PRIMARY KEY (subid, relid),
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;

-- The last shape of a table that event triggers of the publisher told, as JSON, under a copy id,
-- and the end of the transaction. "rewritten" is 0 unless a row change has yet to follow a command
-- that gave rows new values.
CREATE TABLE captured_shape (
    subid      INTEGER NOT NULL,
    relid      INTEGER NOT NULL,
    epoch      TEXT NOT NULL,
    lsn        TEXT NOT NULL,
    shape      TEXT NOT NULL,
    rewritten  INTEGER NOT NULL,
    with_using INTEGER NOT NULL,
    PRIMARY KEY (subid, relid),
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;

-- Subscriptions with ddl_capture: which event triggers had the publisher when a worker started?
CREATE TABLE ddl_capture (
    subid    INTEGER PRIMARY KEY REFERENCES pg_subscription (oid) ON DELETE CASCADE,
    triggers TEXT NOT NULL
) STRICT;

-- Changes of the publisher's columns that a lake table has followed: when (Unix's time, in
-- microseconds), the end of the first transaction with the new columns, and sentences as JSON.
-- "copies" is 1 if the table is copied again for the change, and "copied" is the end of the copy.
CREATE TABLE schema_change (
    id      INTEGER PRIMARY KEY,
    subid   INTEGER NOT NULL,
    relid   INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    lsn     TEXT NOT NULL,
    changes TEXT NOT NULL,
    copies  INTEGER NOT NULL DEFAULT 0,
    copied  INTEGER,
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;
CREATE INDEX schema_change_table ON schema_change (subid, relid);

-- Tables that have another name on the publisher, and whose lake table is to be renamed by the next
-- apply worker. The names are the new ones, the lake's too; "lsn" is the position at which the new
-- name was seen, "noted" the time, in microseconds since 1970.
CREATE TABLE table_rename (
    subid       INTEGER NOT NULL,
    relid       INTEGER NOT NULL,
    nspname     TEXT NOT NULL,
    relname     TEXT NOT NULL,
    lake_schema TEXT NOT NULL,
    lake_table  TEXT NOT NULL,
    noted       INTEGER NOT NULL,
    lsn         TEXT NOT NULL,
    PRIMARY KEY (subid, relid),
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;

-- Files that an expiry left without a snapshot, until the grace of readers is over. A row is one
-- expiry of one lake table; the row outlives table and subscription. ``files`` are paths as JSON,
-- compressed. The time is Unix's, in microseconds.
CREATE TABLE expired_files (
    id           INTEGER PRIMARY KEY,
    subid        INTEGER NOT NULL,
    lake_schema  TEXT NOT NULL,
    lake_table   TEXT NOT NULL,
    table_uuid   TEXT NOT NULL,
    expired      INTEGER NOT NULL,
    files        BLOB NOT NULL
) STRICT;

-- The metadata file of each lake table as of the last stored position: it is on the disk with every
-- file that it names. After a power cut the lake goes back to it, or to a later one that is whole.
CREATE TABLE lake_durable (
    lake_schema       TEXT NOT NULL,
    lake_table        TEXT NOT NULL,
    metadata_location TEXT NOT NULL,
    PRIMARY KEY (lake_schema, lake_table)
) STRICT;

CREATE TABLE setting (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    value TEXT NOT NULL
) STRICT;
