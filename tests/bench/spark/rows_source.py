"""A data source in Python that reads nothing: it shows what Spark itself costs for any such source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from krammar.spark.schema import arrow_schema, record_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class Part(InputPartition):
    """So many rows."""

    rows: int


class RowsSource(DataSource):
    """``format("rows")``: ``tasks`` tasks that yield ``rows`` constant rows each, with krammar's columns. A
    stream has as many rows, and new ones in each micro-batch."""

    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> StructType:
        return record_schema(False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self.options, schema)


class _Rows:
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.schema = schema
        self.parts = [Part(int(options["rows"])) for _ in range(int(options.get("tasks", "1")))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        assert isinstance(partition, Part)
        row = {"value": b"v" * 100, "topic": "t", "partition": 0, "offset": 0, "timestampType": 0}
        yield pa.RecordBatch.from_pylist([row] * partition.rows, arrow_schema(self.schema))


class Reader(_Rows, DataSourceReader):
    def partitions(self) -> list[Part]:
        return self.parts


class StreamReader(_Rows, DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"time": 0}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        return {"time": time.time_ns()}

    def partitions(self, start: Any, end: Any) -> list[Part]:
        return self.parts
