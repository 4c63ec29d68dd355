"""PostgreSQL's binary values become Arrow columns."""
