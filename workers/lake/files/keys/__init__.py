"""Keys of data files that are remembered: in memory, and on the local disk."""
