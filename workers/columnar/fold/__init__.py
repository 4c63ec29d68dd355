"""Fold the changes of each row in a batch to one change."""
