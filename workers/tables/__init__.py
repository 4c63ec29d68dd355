"""A subscription's tables in the lake: open, write, publish."""
