"""``source=logs``: log folders, Kafka's or krammar's, read without a broker."""
