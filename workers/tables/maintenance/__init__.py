"""Maintenance of lake tables: compaction, vacuum, expiry, orphan removal."""
