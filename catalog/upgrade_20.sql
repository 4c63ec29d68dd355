-- What makes a catalog of version 19 one of version 20: a change of columns for which the table is
-- copied again, and the end of the copy.

ALTER TABLE schema_change ADD COLUMN copies INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schema_change ADD COLUMN copied INTEGER;
