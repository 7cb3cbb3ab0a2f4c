"""Lets readers receive the filters that Spark pushes down, whether push-down is on or not.

If ``spark.sql.python.filterPushdown.enabled`` is off, as it is by default, PySpark rejects readers that override
``pushFilters``, and readers cannot see the setting. This file depends on how PySpark 4.1 to 4.3 detect that
(``pyspark.sql.worker.plan_data_source_read``): they compare ``__func__`` of the reader's method with the method of
``DataSourceReader``.

With any other version, ``TAKES_FILTERS`` is false: Spark applies all filters after reading, and queries have the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter

from krammar.spark.pyspark_version import PYSPARK

_VERSIONS = ((4, 1), (4, 2), (4, 3))
TAKES_FILTERS = PYSPARK in _VERSIONS


class _PushFilters:
    """A method ``pushFilters`` that looks to PySpark like the inherited one while push-down is off."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[Filter], None]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        for condition in filters:
            self._take(condition)
        return filters  # Spark applies them too


class FilterTakingReader(DataSourceReader):
    """A reader whose ``take_filter`` gets each filter that Spark pushes down."""

    def take_filter(self, condition: Filter) -> None:
        """Use a filter, or ignore it."""
        raise NotImplementedError

    @property
    def pushFilters(self) -> Any:
        """The method that Spark calls with the filters."""
        return _PushFilters(self.take_filter) if TAKES_FILTERS else super().pushFilters
