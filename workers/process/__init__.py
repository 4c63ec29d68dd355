"""The parts of every worker process: life, lake, link to the launcher, log."""
