"""Benchmarks: ``python -m tests.bench``, or ``make bench``. See ``__main__``."""
