"""The embedded lake server: its JVM, its jars, its configuration."""
