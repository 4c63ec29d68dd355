-- What makes a catalog of version 15 one of version 16: tables that an error has suspended.

ALTER TABLE pg_subscription_rel ADD COLUMN suspend_time INTEGER;
ALTER TABLE pg_subscription_rel ADD COLUMN suspend_sqlstate TEXT;
ALTER TABLE pg_subscription_rel ADD COLUMN suspend_error TEXT;
ALTER TABLE pg_subscription_rel ADD COLUMN suspend_lsn TEXT;
ALTER TABLE pg_subscription_rel ADD COLUMN resuming INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription_stats ADD COLUMN suspension_count INTEGER NOT NULL DEFAULT 0;
