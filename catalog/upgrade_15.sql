-- What makes a catalog of version 14 one of version 15: the publisher's types that a table's text
-- came from.

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
