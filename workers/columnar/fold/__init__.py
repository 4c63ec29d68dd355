"""A batch's changes of each row become one change."""
