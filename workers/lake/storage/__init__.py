"""Where files lie: a table's folder, the staging folder."""
