-- What makes a catalog of version 18 one of version 19: followed changes of columns are counted by
-- what happened to the columns.

ALTER TABLE subscription_stats ADD COLUMN column_add_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription_stats ADD COLUMN column_rename_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription_stats ADD COLUMN column_retype_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription_stats ADD COLUMN column_leave_count INTEGER NOT NULL DEFAULT 0;
