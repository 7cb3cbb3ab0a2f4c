"""``readStream`` of ``source=journal``."""
