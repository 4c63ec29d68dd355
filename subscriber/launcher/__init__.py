"""The launcher: starts, watches and ends workers and the lake server."""
