"""A Kafka-compatible broker of one node, made of the generated classes."""
