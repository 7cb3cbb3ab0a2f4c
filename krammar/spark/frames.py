"""``source=frames``: reads the frames that ``krammar tap --save`` has stored, one row per frame.

Each file is one task, because decoding a response requires the request before it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from krammar.spark.errors import MissingDataError, OptionError, SparkSourceError
from krammar.spark.paths import paths_of
from krammar.spark.schema import arrow_schema
from krammar.tap.capture import Capture, CaptureError, Kind, inspect
from krammar.tap.frame import Frame
from krammar.tap.inspector import Inspector
from krammar.tap.listing import to_json
from krammar.wire.package import package_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader

    from krammar.spark.options import Options

_SCHEMA = StructType(
    [
        StructField("file", StringType()),
        StructField("time", TimestampType()),
        StructField("connection", LongType()),
        StructField("direction", StringType()),  # request or response
        StructField("api", StringType()),
        StructField("api_key", ShortType()),
        StructField("version", ShortType()),
        StructField("correlation_id", IntegerType()),
        StructField("size", LongType()),  # bytes, without the length prefix
        StructField("latency_us", LongType()),  # of a response: since its request
        StructField("status", StringType()),
        StructField("error", StringType()),
        StructField("changed", BooleanType()),  # by the tap, before it was passed on
        StructField("message", StringType()),  # JSON
    ]
)
# The limits of an Arrow batch: rows, and characters of JSON.
_ROWS = 2048
_CHARACTERS = 8 << 20


def schema(options: Options) -> StructType:
    return _SCHEMA


def reader(options: Options, schema: StructType) -> DataSourceReader:
    return FrameReader(options)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    raise OptionError("source", "frames are read in batches, not as a stream")


class CaptureFile(InputPartition):
    """A task: one file."""

    def __init__(self, path: str) -> None:
        self.path = path


class FrameReader(DataSourceReader):
    """Reads captures: files, or all files ``*.tap`` in folders."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> list[CaptureFile]:
        """Find the files.

        Raises:
            OptionError: no path is given.
            MissingDataError: a path does not exist, or a folder contains no capture.
            SparkSourceError: a file is not a capture.
        """
        files: list[str] = []
        for path in paths_of(self.options):
            found = (
                sorted(glob.glob(f"{glob.escape(path)}/*.tap")) if os.path.isdir(path) else [path]
            )
            if not os.path.exists(path):
                raise MissingDataError(
                    f"{path} does not exist; write a capture with krammar tap --save"
                )
            if not found:
                raise MissingDataError(
                    f"{path} contains no capture (*.tap); write one with krammar tap --save"
                )
            files += found
        for file in files:
            _open(file)
        return [CaptureFile(file) for file in files]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the frames of a file.

        A truncated capture is not an error: the tap may have been killed, or may still be writing.

        Raises:
            SparkSourceError: the file is not a capture.
        """
        assert isinstance(partition, CaptureFile)
        columns = arrow_schema(_SCHEMA)
        rows: list[dict[str, Any]] = []
        characters = 0
        for frame in _frames(_open(partition.path)):
            rows.append(_row(partition.path, frame))
            characters += len(rows[-1]["message"] or "")
            if len(rows) == _ROWS or characters > _CHARACTERS:
                yield pa.RecordBatch.from_pylist(rows, columns)
                rows = []
                characters = 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, columns)


def _open(path: str) -> Capture:
    try:
        return Capture(Path(path))
    except (CaptureError, OSError) as error:
        raise SparkSourceError(str(error)) from None


def _frames(capture: Capture) -> Iterator[Frame]:
    """Yield the frames of a capture, decoded as the tap decoded them."""
    try:
        package = package_of(capture.protocol())
    except CaptureError as error:
        raise SparkSourceError(str(error)) from None
    inspectors: dict[int, Inspector] = {}
    for record in capture:
        if record.kind == Kind.CLOSED:
            inspectors.pop(record.connection, None)
        elif record.kind in (Kind.REQUEST, Kind.RESPONSE):
            number = record.connection
            if number not in inspectors:
                inspectors[number] = Inspector(package, number)
            yield inspect(inspectors[number], record)


def _row(file: str, frame: Frame) -> dict[str, Any]:
    return {
        "file": file,
        "time": frame.time_ns // 1000,
        "connection": frame.connection,
        "direction": "request" if frame.is_request else "response",
        "api": frame.api,
        "api_key": frame.api_key,
        "version": frame.version,
        "correlation_id": frame.correlation_id,
        "size": frame.size,
        "latency_us": None if frame.latency_ns is None else frame.latency_ns // 1000,
        "status": str(frame.status),
        "error": frame.error or None,
        "changed": bool(frame.note),
        "message": None if frame.message is None else to_json(frame.message.to_dict()),
    }
