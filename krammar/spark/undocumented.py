"""What krammar uses of PySpark that PySpark does not document.

- Filters: if ``spark.sql.python.filterPushdown.enabled`` is off, as it is by default, PySpark rejects readers that
  override ``pushFilters``, and readers cannot see the setting. ``FilterTakingReader`` depends on how PySpark 4.1 to 4.3
  detect that (``pyspark.sql.worker.plan_data_source_read``): they compare ``__func__`` of the reader's method with the
  method of ``DataSourceReader``. With any other version, ``TAKES_FILTERS`` is false: Spark applies all filters after
  reading, and queries have the same rows.
- Rows of a micro-batch that are passed to Spark with its plan, so that it needs no task in Python. ``RowPassingReader``
  depends on how PySpark 4.2 and 4.3 do it: after ``partitions``,
  ``pyspark.sql.streaming.python_streaming_source_runner`` calls ``getCache`` of a reader that is an instance of
  ``_SimpleStreamReaderWrapper``, the private class that wraps a ``SimpleDataSourceStreamReader``. Spark keeps these rows
  as a block. The runner gives such a reader no limits, and takes no latest offsets from it. So a reader is of that class
  only from ``partitions`` to ``getCache``. With any other version, ``PASSES_ROWS`` is false, and tasks read all batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter

if TYPE_CHECKING:
    import pyarrow as pa


# As in (4, 3).
PYSPARK: tuple[int, ...] = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


TAKES_FILTERS = PYSPARK in ((4, 1), (4, 2), (4, 3))
PASSES_ROWS = PYSPARK in ((4, 2), (4, 3))


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


class RowPassingReader(DataSourceStreamReader):
    """A reader that can pass rows with the plan of a batch."""

    _passed: list[pa.RecordBatch]

    def pass_rows(self, rows: list[pa.RecordBatch] | None) -> None:
        """Let Spark take these rows after the call of ``partitions`` that calls this; with None, tasks read."""
        plain = getattr(self, "_without_rows", type(self))
        if rows is None:
            self.__class__ = plain
        else:
            self._passed = rows
            self.__class__ = _with_rows(plain)


@cache
def _with_rows(plain: type[RowPassingReader]) -> type[RowPassingReader]:
    """Return the class of a reader from whom Spark takes rows."""
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    def get_cache(self: RowPassingReader, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        rows, self._passed = self._passed, []
        self.pass_rows(None)
        return iter(rows)

    members = {"getCache": get_cache, "_without_rows": plain}
    return type(plain.__name__, (plain, _SimpleStreamReaderWrapper), members)
