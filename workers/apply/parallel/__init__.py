"""Files of transactions in progress, written before the commit (``streaming = parallel``)."""
