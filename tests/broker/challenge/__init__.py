"""The "Build your own Kafka" challenge, run against the broker over raw sockets.

Nothing here encodes or decodes with krammar: requests and log files are put together byte by byte and
responses are read the same way, so that a mistake in the generated classes cannot hide itself.
"""
