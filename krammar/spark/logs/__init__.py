"""``source=logs``: reads log folders of Kafka or krammar without a broker."""
