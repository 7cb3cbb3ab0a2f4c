"""Applications of Kafka, unmodified, with krammar's broker behind them; docs/applications.md describes them."""
