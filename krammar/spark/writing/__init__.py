"""Writes rows: the writers that Spark calls, and the interface of deliveries."""
