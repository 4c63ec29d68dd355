-- What makes a catalog of version 22 one of version 23: the writer of a lake table's rows.

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
