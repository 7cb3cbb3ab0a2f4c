"""The data source ``krammar``: an implementation of PySpark's interface for Python data sources.

It finds the options of a query, which a table of Spark's catalog may have, and passes them to the module of the source,
or to a delivery.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from krammar.client.settings import client_settings
from krammar.spark.errors import OptionError, SparkSourceError
from krammar.spark.kafka.plan import named_topics
from krammar.spark.option_table import CLIENT_PREFIX, TABLE, Use
from krammar.spark.options import Options
from krammar.spark.schema import HEADERS_TYPE, check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

    from krammar.spark.writing import Messages, WriteDelivery, Written


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
        self._new_table = _options_of_new_table(options)
        self.options = dict(options) if self._new_table is None else self._new_table
        self._parsed = Options(self.options)

    @classmethod
    def name(cls) -> str:
        return "krammar"

    def schema(self) -> StructType:
        columns = source_of(self._parsed).schema(self._parsed)
        if self._new_table is None:
            return columns
        return _columns_of_new_table(self._new_table, columns)

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
        options = self._options(schema, Use.WRITE)
        _check_written(options)
        if overwrite:
            raise SparkSourceError("mode overwrite is not supported: use mode append")
        return KafkaWriter(_delivery(options, schema, Use.WRITE))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # As in Spark's Kafka connector, output mode complete appends all rows of each micro-batch.
        options = self._options(schema, Use.WRITE_STREAM)
        _check_written(options)
        return KafkaStreamWriter(_delivery(options, schema, Use.WRITE_STREAM))

    def _options(self, columns: StructType, use: Use) -> Options:
        """The options of a query, with those of the table that these columns belong to."""
        stored = _stored_options(columns, use)
        if not stored and not self.options:
            raise SparkSourceError(_NO_OPTIONS)
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


# Writing. Modules of deliveries are imported only if they are used. Writers pass all calls to a delivery.


def _check_written(options: Options) -> None:
    if options.source != "kafka":
        raise OptionError("source", f"{options.source!r} can be read, but not written")


def _delivery(options: Options, schema: StructType, use: Use) -> WriteDelivery:
    """Return the delivery that the options request.

    Raises:
        OptionError: an option is missing or does not fit.
        SchemaError: a column is missing or has another type.
        SparkSourceError: delivery=journal cannot finish an earlier write.
    """
    if options["delivery"] == "journal":
        from krammar.spark.journal import delivery

        return delivery.journal_delivery(options, schema, use)
    if options.given("failOnDataLoss"):
        raise OptionError(
            "failOnDataLoss", f"has no meaning in {use.value} without delivery=journal"
        )
    from krammar.spark.kafka.rows_out import OutColumns
    from krammar.spark.kafka.sink import AtLeastOnce

    return AtLeastOnce(options, OutColumns.of(schema, options["topic"]))


class KafkaWriter(DataSourceArrowWriter):
    """Writes the rows of ``df.write``."""

    def __init__(self, delivery: WriteDelivery) -> None:
        self.delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.delivery.write(iterator)

    def commit(self, messages: Messages) -> None:
        self.delivery.commit(messages, None)

    def abort(self, messages: Messages) -> None:
        self.delivery.abort(messages, None)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of each micro-batch of ``df.writeStream``."""

    def __init__(self, delivery: WriteDelivery) -> None:
        self.delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.delivery.write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        self.delivery.commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        self.delivery.abort(messages, batchId)


# Tables of Spark's catalog: ``CREATE TABLE … USING krammar OPTIONS (…)``.
#
# Spark tells a data source in Python the options of a table only when it asks for the columns of a new
# table. Queries pass their own options alone. The catalog stores the columns with their metadata and
# hands them over in each query, so the options travel in the metadata of one column.

_NO_OPTIONS = (
    "no options are given. Spark stores options of a table only with CREATE TABLE name USING krammar "
    "OPTIONS (…), without a list of columns and without AS SELECT: create the table this way, and write "
    "with INSERT INTO name (key, value) …; or give the options in the query: SELECT … FROM name WITH (…)"
)
_TABLE_PREFIX = "option."
_TABLE_KEY = "krammar.options"
# A query whose columns match a table's exactly reaches the data source without the table's metadata.
# The last two columns prevent that for the usual query; Spark fills them with null.
_COLUMNS_TO_WRITE = StructType(
    [
        StructField("key", StringType()),
        StructField("value", StringType()),
        StructField("headers", HEADERS_TYPE),
        StructField("partition", IntegerType()),
    ]
)


def _options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that Spark creates, None if it creates none.

    Spark then mixes options with the properties of the table, such as ``provider``, ``owner`` and
    ``comment``, and repeats each option with a prefix.
    """
    if "provider" not in given:
        return None
    options = {
        name.removeprefix(_TABLE_PREFIX): value
        for name, value in given.items()
        if name.startswith(_TABLE_PREFIX)
    }
    return options | {name: given[name] for name in ("path",) if name in given}


def _columns_of_new_table(options: Mapping[str, str], columns: StructType) -> StructType:
    """Return the columns of a table, with its options in the metadata of the first one.

    Args:
        columns: The columns that the options give when they are read.

    Raises:
        OptionError: An option must not be stored in a catalog.
    """
    names = {name.lower() for name in options}
    for name in names:
        setting = client_settings().lookup(name.removeprefix(CLIENT_PREFIX))
        if setting is not None and setting.secret:
            raise OptionError(
                name,
                "would be stored readably in the catalog and in files written from the table; "
                "use CREATE TEMPORARY VIEW … USING krammar OPTIONS (…), or give the option in each "
                "query: SELECT … FROM name WITH (`…` '…')",
            )
    if "topic" in names and not names & {"subscribe", "subscribepattern", "assign"}:
        columns = _COLUMNS_TO_WRITE
    first, *rest = columns.fields
    stored = StructField(first.name, first.dataType, first.nullable, {_TABLE_KEY: dict(options)})
    return StructType([stored, *rest])


def _stored_options(columns: StructType, use: Use) -> dict[str, str]:
    """Return the options of the table with these columns that concern a use; none without a table.

    A table that is written and read again has options of both kinds. INSERT INTO a table that names one
    topic writes to that topic.
    """
    found: dict[str, str] = {}
    for field in columns.fields:
        metadata: dict[str, Any] = field.metadata or {}
        found.update(metadata.get(_TABLE_KEY, {}))
    lower = {name.lower(): value for name, value in found.items()}
    kept = {n: v for n, v in lower.items() if n not in TABLE or use in TABLE[n].applies_to}
    if use in (Use.WRITE, Use.WRITE_STREAM) and "topic" not in kept:
        topics = [topic.strip() for topic in lower.get("subscribe", "").split(",")]
        if len(topics) == 1 and topics[0]:
            kept["topic"] = topics[0]
    return kept
