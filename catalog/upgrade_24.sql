-- What makes a catalog of version 23 one of version 24: tables may join and leave by themselves.

ALTER TABLE pg_subscription ADD COLUMN refresh TEXT NOT NULL DEFAULT 'manual';
