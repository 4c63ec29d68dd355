"""Data files and delete files that pgsub writes and reads itself, without Spark."""
