"""What the command line and the SQL statements do; one verb or statement a file."""
