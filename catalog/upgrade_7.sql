-- What makes a catalog of version 6 one of version 7: the upkeep of each lake table.

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
