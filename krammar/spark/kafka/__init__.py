"""``source=kafka``: topics, read from live brokers."""
