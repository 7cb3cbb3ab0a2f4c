"""krammar compiles the DEFINITIONS grammar of Kafka-style wire protocols into typed Python."""

__version__ = "0.1.0"
