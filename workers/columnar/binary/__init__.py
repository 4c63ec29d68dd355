"""Turn PostgreSQL's binary values into Arrow columns."""
