"""Partition logs in Kafka's on-disk form."""
