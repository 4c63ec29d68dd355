"""The Protocols inside the lake; `api`, `sql` and `files` implement them."""
