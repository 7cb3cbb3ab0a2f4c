"""The data source ``krammar``: an implementation of PySpark's interface for Python data sources."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from krammar.spark.errors import SparkSourceError
from krammar.spark.kafka.plan import named_topics
from krammar.spark.option_table import Use
from krammar.spark.options import Options
from krammar.spark.schema import check_schema
from krammar.spark.tables import (
    NO_OPTIONS,
    columns_of_new_table,
    options_of_new_table,
    stored_options,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class SparkSource(Protocol):
    """The functions in the module of a source. They raise SparkSourceError."""

    def schema(self, options: Options) -> StructType:
        """Return the columns, which depend on the options."""

    def reader(self, options: Options, schema: StructType) -> DataSourceReader:
        """Return a reader for batches."""

    def stream_reader(self, options: Options, schema: StructType) -> DataSourceStreamReader:
        """Return a reader for streams."""


_MODULES = {
    "frames": "krammar.spark.frames",
    "journal": "krammar.spark.journal.source",
    "kafka": "krammar.spark.kafka.source",
    "logs": "krammar.spark.logs.source",
}


def source_of(options: Options) -> SparkSource:
    """Return the module of the source that the options name."""
    return cast(SparkSource, import_module(_MODULES[options.source]))


class KrammarDataSource(DataSource):
    """``format("krammar")``, for reading and writing; ``docs/spark-options.md`` describes its options.

    Raises:
        OptionError: an option is wrong; raised before anything is read.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._new_table = options_of_new_table(options)
        self.options = dict(options) if self._new_table is None else self._new_table
        self._parsed = Options(self.options)

    @classmethod
    def name(cls) -> str:
        return "krammar"

    def schema(self) -> StructType:
        columns = source_of(self._parsed).schema(self._parsed)
        if self._new_table is None:
            return columns
        return columns_of_new_table(self._new_table, columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(schema, Use.READ)
        source = source_of(options)
        check_schema(schema, source.schema(options))
        return source.reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        # If this method raises, PySpark stops a reader that it does not have, and its UnboundLocalError hides ours.
        try:
            options = self._options(schema, Use.READ_STREAM)
            source = source_of(options)
            check_schema(schema, source.schema(options))
            return source.stream_reader(options, schema)
        except SparkSourceError as error:
            return FailingStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from krammar.spark.writing.writers import writer

        return writer(self._options(schema, Use.WRITE), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from krammar.spark.writing.writers import stream_writer

        return stream_writer(self._options(schema, Use.WRITE_STREAM), schema)

    def _options(self, columns: StructType, use: Use) -> Options:
        """The options of a query, with those of the table that these columns belong to."""
        stored = stored_options(columns, use)
        if not stored and not self.options:
            raise SparkSourceError(NO_OPTIONS)
        if stored:
            given = {name.lower(): value for name, value in self.options.items()}
            options = Options(stored | given)
            if use in (Use.READ, Use.READ_STREAM) and options.source == "kafka":
                named_topics(options)  # a table that can only be written
        else:
            options = self._parsed
        options.check_use(use)
        return options


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
