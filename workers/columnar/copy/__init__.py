"""Rows of COPY become Arrow columns."""
