"""What can be read: one module for each value of the option ``source``, loaded when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from krammar.spark.options import Options


class Source(Protocol):
    """What the module of a source has. All raise SparkSourceError."""

    def schema(self, options: Options) -> StructType:
        """The columns that these options give."""

    def reader(self, options: Options, schema: StructType) -> DataSourceReader:
        """A batch reader."""

    def stream_reader(self, options: Options, schema: StructType) -> DataSourceStreamReader:
        """A streaming reader."""


_MODULES = {
    "frames": "krammar.spark.frames",
    "journal": "krammar.spark.journal.source",
    "kafka": "krammar.spark.kafka.source",
    "logs": "krammar.spark.logs.source",
}


def source_of(options: Options) -> Source:
    """The module that the options ask for."""
    return cast(Source, import_module(_MODULES[options.source]))
