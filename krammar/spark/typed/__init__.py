"""Messages of generated classes as columns: their Spark types, and values both ways."""
