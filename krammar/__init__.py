"""A toolkit to test Kafka programs, to see and change Kafka traffic, to compute with it in Spark, and to define wire
protocols like Kafka's."""

__version__ = "0.1.0"
