"""The modules of the sources: one for each value of the option ``source``, imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from krammar.spark.options import Options


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
