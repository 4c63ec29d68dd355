"""The control plane: the command line, the launcher, and what they share."""
