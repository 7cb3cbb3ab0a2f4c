"""A day of a shop's orders through everything: definitions, broker, clients, Spark, a chart."""
