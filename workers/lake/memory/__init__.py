"""The lake in memory: the twin of `iceberg`, and the shortest way to learn the seam."""
