"""Clients that nobody here wrote, through each chain of filters, in front of krammar's broker and of Apache Kafka."""
