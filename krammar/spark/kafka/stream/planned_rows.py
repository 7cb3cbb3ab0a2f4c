"""Passes the rows of a micro-batch to Spark together with its plan, so that it needs no task in Python.

PySpark has no interface for that. This file depends on how PySpark 4.2 and 4.3 do it: after ``partitions``,
``pyspark.sql.streaming.python_streaming_source_runner`` calls ``getCache`` of a reader that is an instance of
``_SimpleStreamReaderWrapper``, the private class that wraps a ``SimpleDataSourceStreamReader``. Spark keeps these rows as a
block. The runner gives such a reader no limits, and takes no latest offsets from it. So a reader is of that class only from
``partitions`` to ``getCache``.

With any other version, ``PASSES_ROWS`` is false, and tasks read all batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

from krammar.spark.pyspark_version import PYSPARK

if TYPE_CHECKING:
    import pyarrow as pa

_VERSIONS = ((4, 2), (4, 3))
PASSES_ROWS = PYSPARK in _VERSIONS


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
