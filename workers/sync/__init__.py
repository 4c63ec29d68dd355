"""The table-sync worker: copies one table, catches up, and hands the table over."""
