"""The system catalogs and the vocabulary every other package speaks."""
