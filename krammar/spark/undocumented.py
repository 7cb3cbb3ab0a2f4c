"""What krammar uses of PySpark that PySpark does not document.

- Filters: if ``spark.sql.python.filterPushdown.enabled`` is off, as it is by default, PySpark rejects readers that
  override ``pushFilters``, and readers cannot see the setting. ``PushFilters`` depends on how PySpark 4.1 to 4.3
  detect that (``pyspark.sql.worker.plan_data_source_read``): they compare ``__func__`` of the reader's method with the
  method of ``DataSourceReader``. With any other version, ``TAKES_FILTERS`` is false: Spark applies all filters after
  reading, and queries have the same rows.
- Rows of a micro-batch that are passed to Spark with its plan, so that it needs no task in Python. ``RowPassingReader``
  depends on how PySpark 4.2 and 4.3 do it: after ``partitions``,
  ``pyspark.sql.streaming.python_streaming_source_runner`` calls ``getCache`` of a reader that is an instance of
  ``_SimpleStreamReaderWrapper``, the private class that wraps a ``SimpleDataSourceStreamReader``. Spark keeps these rows
  as a block. The runner gives such a reader no limits, and takes no latest offsets from it. So a reader is of that class
  only from ``partitions`` to ``getCache``. With any other version, ``PASSES_ROWS`` is false, and tasks read all batches.
- The active session of threads. Spark looks for a data source in Python that is written to in the active session of the
  JVM's thread only. The JVM has a thread for each Python thread, and only the one that starts the session has an active
  session. ``activate_in_threads`` depends on how py4j 0.10.9 makes them: for a new thread, ``JavaClient`` calls its
  ``_create_new_connection``. With any other version nothing is changed: docs/spark.md says what threads can call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


# As in (4, 3).
PYSPARK: tuple[int, ...] = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


TAKES_FILTERS = PYSPARK in ((4, 1), (4, 2), (4, 3))
PASSES_ROWS = PYSPARK in ((4, 2), (4, 3))


class PushFilters:
    """A method ``pushFilters`` that looks to PySpark like the inherited one while push-down is off."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[Filter], None]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        for condition in filters:
            self._take(condition)
        return filters  # Spark applies them too


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


def activate_in_threads(spark: SparkSession) -> None:
    """Let threads that use Spark for the first time from now on have ``spark`` as their active session.

    Sessions of Spark Connect need no active session, and are unchanged.
    """
    from pyspark import SparkContext

    client: Any = getattr(SparkContext._gateway, "_gateway_client", None)
    create = getattr(client, "_create_new_connection", None)
    java = getattr(spark, "_jsparkSession", None)
    if create is None or java is None:
        return
    # A session that is registered later takes the place of this one.
    create = getattr(create, "without_session", create)

    def create_and_activate() -> Any:
        connection = create()
        if spark.sparkContext._jsc is None:
            return connection  # stopped
        with suppress(Exception):  # if the JVM has ended, the caller gets that error anyway
            type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(java)
        return connection

    create_and_activate.without_session = create  # type: ignore[attr-defined]
    client._create_new_connection = create_and_activate
