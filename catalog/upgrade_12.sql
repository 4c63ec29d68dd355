-- What makes a catalog of version 11 one of version 12: how often in turn a worker failed with the
-- error, and when the next attempt is due.

ALTER TABLE last_error ADD COLUMN failures INTEGER NOT NULL DEFAULT 1;
ALTER TABLE last_error ADD COLUMN next_attempt INTEGER;
