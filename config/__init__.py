"""What the user wrote: subscriptions, settings, and where every mistake in them is."""
