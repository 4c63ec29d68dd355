"""Connections to Spark Connect: sessions and their errors."""
