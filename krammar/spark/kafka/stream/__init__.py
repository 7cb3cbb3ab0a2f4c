"""``readStream`` of ``source=kafka``."""
