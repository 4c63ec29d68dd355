"""The logical replication protocol as bytes and as values; no I/O."""
