"""The status views, on the terminal and as tables of the lake."""
