"""The command line: parse, call, print."""

from subscriber.cli.console import app, main

__all__ = ["app", "main"]
