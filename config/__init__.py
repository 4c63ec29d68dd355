"""The user's text: subscriptions and settings, and the place of every mistake."""
