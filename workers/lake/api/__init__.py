"""Iceberg's Java API, called in the embedded lake server."""
