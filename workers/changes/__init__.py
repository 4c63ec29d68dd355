"""Received bytes become changes of tables."""
