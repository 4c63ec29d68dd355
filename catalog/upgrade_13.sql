-- What makes a catalog of version 12 one of version 13: the transaction that ended an apply worker.

CREATE TABLE transaction_at_fault (
    subid      INTEGER PRIMARY KEY REFERENCES pg_subscription (oid) ON DELETE CASCADE,
    finish_lsn TEXT NOT NULL,
    sqlstate   TEXT NOT NULL,
    nspname    TEXT,
    relname    TEXT
) STRICT;
