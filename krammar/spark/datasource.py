"""The data source ``krammar``, as PySpark's interface for data sources in Python wants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from krammar.spark.options import Options, Use
from krammar.spark.schema import check_schema
from krammar.spark.sources import source_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class KrammarDataSource(DataSource):
    """``format("krammar")``, to read and to write; ``docs/spark.md`` describes its options.

    Whatever is wrong with the options is an OptionError here, before anything is read.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self._parsed = Options(self.options)

    @classmethod
    def name(cls) -> str:
        return "krammar"

    def schema(self) -> StructType:
        return source_of(self._parsed).schema(self._parsed)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._parsed.check_use(Use.READ)
        check_schema(schema, self.schema())
        return source_of(self._parsed).reader(self._parsed, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._parsed.check_use(Use.READ_STREAM)
        check_schema(schema, self.schema())
        return source_of(self._parsed).stream_reader(self._parsed, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from krammar.spark.kafka.sink import writer

        return writer(self._parsed, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from krammar.spark.kafka.sink import stream_writer

        return stream_writer(self._parsed, schema)
