-- What makes a catalog of version 21 one of version 22: the shapes that event triggers tell.

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
CREATE TABLE ddl_capture (
    subid    INTEGER PRIMARY KEY REFERENCES pg_subscription (oid) ON DELETE CASCADE,
    triggers TEXT NOT NULL
) STRICT;
