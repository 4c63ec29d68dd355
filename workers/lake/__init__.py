"""The lake: Spark Connect and Iceberg, behind ``destination.Destination``."""
