"""``pgsub schema``: the publisher's columns of a table beside the lake's."""
