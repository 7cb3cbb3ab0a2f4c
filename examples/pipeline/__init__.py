"""A day of a shop's orders: definitions, broker, clients, Spark, a chart."""
