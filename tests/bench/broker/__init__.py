"""Brokers beside each other: ours, Apache Kafka, and a broker in Rust."""
