-- What makes a catalog of version 5 one of version 6: when a lake table was last looked after.

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
