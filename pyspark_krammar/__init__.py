"""Registers krammar's data source in Spark.

Spark imports every top-level package whose name begins with ``pyspark_``, and registers its ``DefaultSource``.
"""

from __future__ import annotations

from krammar.spark.datasource import KrammarDataSource as DefaultSource

__all__ = ["DefaultSource"]
