"""The apply worker: applies the batches of a subscription's stream."""
