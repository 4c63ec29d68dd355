-- What makes a catalog of version 13 one of version 14: branches that may stay on lake tables.

CREATE TABLE leaked_branch (
    lake_schema TEXT NOT NULL,
    lake_table  TEXT NOT NULL,
    subuuid     TEXT NOT NULL,
    subname     TEXT NOT NULL,
    since       INTEGER NOT NULL,
    reason      TEXT NOT NULL,
    PRIMARY KEY (lake_schema, lake_table, subuuid)
) STRICT;
