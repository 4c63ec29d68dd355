"""What every worker process has: its life, its lake, its link to the launcher."""
