"""Other projects' clients, through each chain of filters, in front of krammar's broker and of Apache Kafka."""
