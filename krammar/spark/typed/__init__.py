"""Columns for messages of generated classes: Spark types, and conversion of values in both directions."""
