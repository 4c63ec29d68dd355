"""The control plane: the command line, the launcher, and shared output."""
