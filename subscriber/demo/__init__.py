"""``pgsub demo``: a live PostgreSQL replicated into Iceberg tables, and the proof."""
