"""``source=frames``: the frames that ``krammar tap --save`` kept, a row each. One task a file, for what
a response is follows from the request before it."""

from __future__ import annotations

import glob
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafka_wire
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
from krammar.tap.capture import Capture, CaptureError, Flag, Kind, Record
from krammar.tap.inspector import Frame, Inspector
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
# Rows, and characters of JSON, in an Arrow batch.
_ROWS = 2048
_CHARACTERS = 8 << 20


def schema(options: Options) -> StructType:
    return _SCHEMA


def reader(options: Options, schema: StructType) -> DataSourceReader:
    return FrameReader(options)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    raise OptionError("source", "frames are read in batches, not as a stream")


class CaptureFile(InputPartition):
    """One file."""

    def __init__(self, path: str) -> None:
        self.path = path


class FrameReader(DataSourceReader):
    """Reads captures: files, or folders of them whose names end in ``.tap``."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> list[CaptureFile]:
        """Raises MissingDataError, and SparkSourceError for a file that is no capture."""
        files: list[str] = []
        for path in paths_of(self.options):
            found = (
                sorted(glob.glob(f"{glob.escape(path)}/*.tap")) if os.path.isdir(path) else [path]
            )
            if not found or not os.path.exists(found[0]):
                raise MissingDataError(f"{path} holds no capture of krammar tap --save")
            files += found
        for file in files:
            _open(file)
        return [CaptureFile(file) for file in files]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Raises SparkSourceError. A capture that is cut off ends there, for the tap may have been
        killed, or may still write."""
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
    """The frames of a capture, read as they were when they were new."""
    package = package_of(kafka_wire)
    inspectors: dict[int, Inspector] = {}
    for record in capture:
        if record.kind == Kind.CLOSED:
            inspectors.pop(record.connection, None)
        elif record.kind in (Kind.REQUEST, Kind.RESPONSE):
            number = record.connection
            if number not in inspectors:
                inspectors[number] = Inspector(package, number)
            frame = _frame(inspectors[number], record)
            if record.flags & Flag.CHANGED:
                frame.note = "changed"
            yield frame


def _frame(inspector: Inspector, record: Record) -> Frame:
    is_request = record.kind == Kind.REQUEST
    if record.flags & Flag.RAW:
        return inspector.raw(is_request, record.data, record.time_ns)
    if record.flags & Flag.CUT:
        return inspector.oversized(is_request, record.data, record.size, record.time_ns)
    if is_request:
        return inspector.request(record.data, record.time_ns)
    return inspector.response(record.data, record.time_ns)


def _row(file: str, frame: Frame) -> dict[str, Any]:
    message = None
    if frame.message is not None:
        message = json.dumps(_finite(frame.message.to_dict()), allow_nan=False)
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
        "message": message,
    }


def _finite(value: Any) -> Any:
    """JSON has no infinities: they become text."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
