"""``source=frames`` reads the files of ``krammar tap --save``."""

from __future__ import annotations

import json
from pathlib import Path

import kafka_wire
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import DataFrame, SparkSession

from krammar.tap.capture import Capture, CaptureWriter, replay
from krammar.tap.frame import Frame, Observer
from krammar.tap.inspector import Inspector
from krammar.wire.connection import ClientConnection
from krammar.wire.package import package_of
from tests.spark.support import fails, task_sizes

START_NS = 1_700_000_000_000_000_000


def frames(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("krammar").option("source", "frames").load(str(path))


def capture(path: Path) -> list[Frame]:
    """Two connections' requests with their responses, one frame that is none; what was written."""
    writer = CaptureWriter(path)
    written: list[Frame] = []
    for number in (1, 2):
        writer.opened(START_NS, number, "127.0.0.1:5", "127.0.0.1:9092")
        inspector = Inspector(package_of(kafka_wire), number)
        client = ClientConnection(kafka_wire, client_id=f"client-{number}")
        for version in (1, 9):
            request = kafka_wire.MetadataRequest(
                topics=[kafka_wire.MetadataRequest.Topic(name="orders")]
            )
            data = client.send_request(request, version)[4:]
            now = START_NS + version * 1_000_000_000
            written.append(inspector.request(data, now))
            response = kafka_wire.MetadataResponse(controller_id=number)
            header = kafka_wire.ResponseHeader(correlation_id=written[-1].correlation_id)
            body = header.encode(int(version >= 9)) + response.encode(version)
            written.append(inspector.response(body, now + 5_000_000))
        written.append(inspector.response(b"\0\0\0\x63?", START_NS + 20_000_000_000))
        for frame in written[-5:]:
            writer.frame(frame)
        writer.closed(START_NS, number, "the end")
    writer.close()
    return written


def test_a_row_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders.tap"
    written = capture(path)
    found = frames(spark, path).selectExpr("*", "unix_micros(time) as us").collect()
    assert [
        (row.connection, row.direction == "request", row.api, row.api_key, row.version)
        for row in found
    ] == [
        (each.connection, each.is_request, each.api, each.api_key, each.version) for each in written
    ]
    assert [row.correlation_id for row in found] == [each.correlation_id for each in written]
    assert [row.us for row in found] == [each.time_ns // 1000 for each in written]
    assert [row.size for row in found] == [each.size for each in written]
    assert [row.latency_us for row in found] == [None, 5000, None, 5000, None] * 2
    assert {row.file for row in found} == {str(path)}
    for row, each in zip(found, written, strict=True):
        message = None if each.message is None else each.message.to_dict()
        assert (None if row.message is None else json.loads(row.message)) == message
    assert [row.status for row in found[:5]] == ["ok"] * 4 + ["undecodable"]
    assert "no request with correlation id 99" in found[4].error


def test_as_the_tap_lists_them(spark: SparkSession, tmp_path: Path) -> None:
    class Statuses(Observer):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def frame(self, frame: Frame) -> None:
            self.seen.append(str(frame.status))

    capture(tmp_path / "a.tap")
    statuses = Statuses()
    replay(Capture(tmp_path / "a.tap"), package_of(kafka_wire), [statuses])
    assert [
        row.status for row in frames(spark, tmp_path).select("status").collect()
    ] == statuses.seen


def test_a_folder_of_captures_one_of_them_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a.tap", "b.tap"):
        capture(tmp_path / name)
    cut = tmp_path / "b.tap"
    cut.write_bytes(cut.read_bytes()[:-3])
    (tmp_path / "notes.txt").write_text("no capture")
    frame = frames(spark, tmp_path)
    assert len(task_sizes(frame)) == 2
    assert frame.count() == 20


def test_files_that_are_no_captures(spark: SparkSession, tmp_path: Path) -> None:
    with fails("contains no capture"):
        frames(spark, tmp_path).collect()
    with fails("missing.tap does not exist"):
        frames(spark, tmp_path / "missing.tap").collect()
    (tmp_path / "x.tap").write_text("something else")
    with fails("is not a capture"):
        frames(spark, tmp_path).collect()
    with fails("'decode': has no meaning with source=frames"):
        _ = (
            spark.read.format("krammar")
            .option("source", "frames")
            .option("decode", "X")
            .load("/")
            .schema
        )
