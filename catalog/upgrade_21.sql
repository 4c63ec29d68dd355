-- What makes a catalog of version 20 one of version 21: tables that have another name on the
-- publisher.

ALTER TABLE pg_subscription_rel ADD COLUMN former_names TEXT NOT NULL DEFAULT '[]';
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
