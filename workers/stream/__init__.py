"""From the replication socket to a batch of whole transactions."""
