"""Questions to the publisher: connections, queries, slots, identity."""
