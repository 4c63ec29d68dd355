-- What makes a catalog of version 17 one of version 18: the publisher's columns are remembered, and
-- their changes followed.

CREATE TABLE table_columns (
    subid   INTEGER NOT NULL,
    relid   INTEGER NOT NULL,
    epoch   TEXT NOT NULL,
    columns TEXT NOT NULL,
    PRIMARY KEY (subid, relid),
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;
CREATE TABLE schema_change (
    id      INTEGER PRIMARY KEY,
    subid   INTEGER NOT NULL,
    relid   INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    lsn     TEXT NOT NULL,
    changes TEXT NOT NULL,
    FOREIGN KEY (relid, subid)
        REFERENCES pg_subscription_rel (srrelid, srsubid) ON DELETE CASCADE
) STRICT;
CREATE INDEX schema_change_table ON schema_change (subid, relid);
ALTER TABLE subscription_stats ADD COLUMN schema_change_count INTEGER NOT NULL DEFAULT 0;
