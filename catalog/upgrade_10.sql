-- What makes a catalog of version 9 one of version 10: the command that prints a password.

ALTER TABLE pg_subscription ADD COLUMN password_command TEXT;
ALTER TABLE pg_subscription ADD COLUMN password_command_ttl REAL NOT NULL DEFAULT 0;
