"""Spark SQL against the lake's tables."""
