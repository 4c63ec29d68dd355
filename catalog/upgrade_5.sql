-- What makes a catalog of version 4 one of version 5: which database of which server.

ALTER TABLE pg_subscription ADD COLUMN datoid INTEGER;

ALTER TABLE leaked_slot RENAME TO leaked_slot_4;
CREATE TABLE leaked_slot (
    slot_name TEXT NOT NULL,
    conninfo  TEXT NOT NULL,
    sysid     TEXT NOT NULL,
    datoid    INTEGER,
    subname   TEXT NOT NULL,
    passfile  TEXT,
    reason    TEXT NOT NULL,
    PRIMARY KEY (slot_name, sysid, conninfo)
) STRICT;
INSERT INTO leaked_slot
SELECT slot_name, conninfo, '', NULL, subname, passfile, reason FROM leaked_slot_4;
DROP TABLE leaked_slot_4;
