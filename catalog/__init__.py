"""The system catalogs, and the vocabulary of all packages."""
