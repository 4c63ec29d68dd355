"""The embedded lake server: JVM, jars, configuration."""
