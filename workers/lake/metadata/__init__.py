"""Iceberg's table metadata, read as data. Pure."""
