"""A proxy for Kafka's protocol, whose filters are written in Python."""
