-- What makes a catalog of version 7 one of version 8: files of expired snapshots that wait.

CREATE TABLE expired_files (
    id           INTEGER PRIMARY KEY,
    subid        INTEGER NOT NULL,
    lake_schema  TEXT NOT NULL,
    lake_table   TEXT NOT NULL,
    table_uuid   TEXT NOT NULL,
    expired      INTEGER NOT NULL,
    files        BLOB NOT NULL
) STRICT;
