"""Journals: written exactly once (``delivery=journal``), and read (``source=journal``)."""
