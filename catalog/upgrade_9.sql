-- What makes a catalog of version 8 one of version 9: the state of each lake table that is on the
-- disk for certain.

CREATE TABLE lake_durable (
    lake_schema       TEXT NOT NULL,
    lake_table        TEXT NOT NULL,
    metadata_location TEXT NOT NULL,
    PRIMARY KEY (lake_schema, lake_table)
) STRICT;
