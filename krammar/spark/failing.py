"""A reader for a stream whose options are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

if TYPE_CHECKING:
    from krammar.spark.errors import SparkSourceError


class FailingStreamReader(DataSourceStreamReader):
    """Raises an error when Spark calls a method for the first time, so that Spark shows it."""

    def __init__(self, error: SparkSourceError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        raise self._error

    def latestOffset(self, *_: object) -> NoReturn:  # PySpark 4.2 passes the start and a limit
        raise self._error

    def partitions(self, start: object, end: object) -> NoReturn:
        raise self._error

    def read(self, partition: object) -> NoReturn:
        raise self._error
