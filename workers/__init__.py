"""The data plane: the processes that move rows from the publisher to the lake."""
