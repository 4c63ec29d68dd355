"""The lake as Iceberg tables: the real implementation of `Destination`."""
