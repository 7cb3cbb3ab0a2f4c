"""``decode``: internal topics and classes of one's own as typed columns, malformed records by mode."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import kafka_wire
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructType

from krammar.spark.datasource import KrammarDataSource
from krammar.spark.decoding import schema_of
from krammar.spark.errors import MalformedRecordError, OptionError
from krammar.spark.options import Options
from krammar.spark.typed.messages import Decoder, Encoder, named_class
from krammar.wire.batches import Record, encode_batch
from krammar.wire.classes import encode_as
from krammar.wire.message import Codec
from tests.spark.logs_support import Folder, write_segment
from tests.spark.support import fails, load
from tests.support.groups import in_groups


def test_offsets_of_groups(spark: SparkSession, folder: Folder) -> None:
    frame = load(spark, folder.path, subscribe="__consumer_offsets", decode="OffsetCommitValue")
    assert frame.columns[:2] == ["key", "value"]
    found = frame.selectExpr("key.group", "key.topic", "key.partition", "value.offset").collect()
    assert {(row[0], row[1], row[2]): row[3] for row in found} == folder.offsets


def test_other_kinds_of_records_are_left_out(spark: SparkSession, folder: Folder) -> None:
    everything = load(spark, folder.path, subscribe="__consumer_offsets").count()
    offsets = load(spark, folder.path, subscribe="__consumer_offsets", decode="OffsetCommitValue")
    groups = load(
        spark,
        folder.path,
        subscribe="__consumer_offsets",
        decode="GroupMetadataValue",
        mode="FAILFAST",
    )
    assert offsets.count() + groups.count() == everything


def test_failfast_fails_for_kinds_that_nothing_knows(spark: SparkSession, tmp_path: Path) -> None:
    """Other records of the same topic are skipped; keys of another topic are not."""
    key = encode_as(kafka_wire.OffsetCommitKey(group="g", topic="t", partition=0), None)
    value = encode_as(kafka_wire.OffsetCommitValue(offset=3), None)
    records = [Record(key=key, value=value), Record(key=b"user-1", value=b"{}")]
    write_segment(tmp_path / "mixed-0", 0, encode_batch(records))
    assert load(spark, tmp_path, decode="OffsetCommitValue").count() == 1
    with fails(
        "mixed-0, offset 1: the key is of kind 30067, which no class beside OffsetCommitValue has "
        "(OffsetCommitValue has 0 or 1): the topic has records that decode=OffsetCommitValue cannot read"
    ):
        load(spark, tmp_path, decode="OffsetCommitValue", mode="FAILFAST").collect()


def test_failfast_fails_for_unknown_metadata_records(spark: SparkSession, tmp_path: Path) -> None:
    value = bytes([1, 99, 0])  # frame version, type, version
    write_segment(tmp_path / "metadata-0", 0, encode_batch([Record(value=value)]))
    assert load(spark, tmp_path, decode="TopicRecord").count() == 0
    with fails("metadata-0, offset 0: unknown metadata record type 99"):
        load(spark, tmp_path, decode="TopicRecord", mode="FAILFAST").collect()


def test_transactions(spark: SparkSession, folder: Folder) -> None:
    frame = load(spark, folder.path, subscribe="__transaction_state", decode="TransactionLogValue")
    found = frame.selectExpr("key.transactional_id", "value.transaction_status", "value").collect()
    by_id: dict[str, list[int]] = {}
    for transactional_id, status, _ in found:
        by_id.setdefault(transactional_id, []).append(status)
    assert set(by_id) == {"ledger-0", "ledger-1", "ledger-open"}
    # 1 is ongoing, 4 is committed, 5 is aborted.
    assert by_id["ledger-0"].count(4) == 2
    assert by_id["ledger-1"].count(5) == 2
    assert by_id["ledger-open"][-1] == 1
    topics = {part.topic for _, _, value in found for part in value.transaction_partitions or []}
    assert topics == {"ledger"}


def test_cluster_metadata(spark: SparkSession, folder: Folder) -> None:
    topics = load(
        spark, folder.path, subscribe="__cluster_metadata", decode="TopicRecord", mode="FAILFAST"
    )
    names = {row[0]: row[1] for row in topics.selectExpr("value.name", "value.topic_id").collect()}
    assert set(folder.rows) <= set(names)
    everything = load(
        spark, folder.path, subscribe="__cluster_metadata", decode="cluster_metadata"
    ).selectExpr("value.*", "_corrupt_record")
    rows = everything.collect()
    assert all(row._corrupt_record is None for row in rows)
    in_json = {
        message["name"]: message["topic_id"]
        for message in (json.loads(row.message) for row in rows if row.type == "TopicRecord")
    }
    assert in_json == names


def test_a_package_of_ones_own(spark: SparkSession, tmp_path: Path, orders: Any) -> None:
    line = orders.OrderPlaced.Line(article="pen", count=3)
    identity = UUID(int=5)
    values = [
        orders.OrderPlaced(id=identity, customer=None, lines=[line, line], total=1.5).encode(1),
        orders.OrderPlaced(id=identity, customer="eve", lines=None).encode(1),
        b"?",
    ]
    write_segment(tmp_path / "orders-0", 0, encode_batch([Record(value=value) for value in values]))
    frame = load(spark, tmp_path, decode="mypkg.orders.OrderPlaced", decodeVersion=1)
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:string,customer:string,kind:smallint,"
        "lines:array<struct<article:string,count:int>>,total:double>"
    )
    first, second, third = frame.orderBy("offset").collect()
    assert first.value.asDict(recursive=True) == {
        "id": str(identity),
        "customer": None,
        "kind": 0,
        "lines": [{"article": "pen", "count": 3}] * 2,
        "total": 1.5,
    }
    assert second.value.customer == "eve"
    assert second.value.lines is None
    assert third.value is None
    assert third._corrupt_record is not None


def corrupt_folder(path: Path) -> Path:
    """Good and bad values of AbortedTxn, and a tombstone."""
    good = kafka_wire.AbortedTxn(producer_id=7, first_offset=1, last_offset=2).encode(0)
    values = [good, good[:-1], None, good + b"x", b"", good]
    write_segment(
        path / "raw-0", 0, encode_batch([Record(value=value, key=b"k") for value in values])
    )
    return path


def test_permissive(spark: SparkSession, tmp_path: Path) -> None:
    frame = load(spark, corrupt_folder(tmp_path), decode="AbortedTxn")
    assert frame.schema["key"].dataType == BinaryType()
    rows = frame.orderBy("offset").collect()
    assert [None if row.value is None else row.value.producer_id for row in rows] == [
        7,
        None,
        None,
        None,
        None,
        7,
    ]
    corrupt = [row._corrupt_record for row in rows]
    assert [each is not None for each in corrupt] == [False, True, False, True, True, False]
    assert "last_stable_offset" in corrupt[1].error
    assert bytes(corrupt[3].value).endswith(b"x")
    assert bytes(corrupt[4].key) == b"k"


def test_the_name_of_the_column_for_corrupt_records(spark: SparkSession, tmp_path: Path) -> None:
    frame = load(
        spark, corrupt_folder(tmp_path), decode="AbortedTxn", columnNameOfCorruptRecord="bad"
    )
    assert frame.where("bad is not null").count() == 3


def test_drop_malformed(spark: SparkSession, tmp_path: Path) -> None:
    frame = load(spark, corrupt_folder(tmp_path), decode="AbortedTxn", mode="DROPMALFORMED")
    assert "_corrupt_record" not in frame.columns
    assert [row.offset for row in frame.orderBy("offset").collect()] == [0, 2, 5]


def test_fail_fast(spark: SparkSession, tmp_path: Path) -> None:
    with fails("raw-0, offset 1: value: AbortedTxn"):
        load(spark, corrupt_folder(tmp_path), decode="AbortedTxn", mode="FAILFAST").collect()


def test_a_malformed_key(spark: SparkSession, tmp_path: Path) -> None:
    key = kafka_wire.OffsetCommitKey(version=1, group="g", topic="t", partition=3).encode()
    value = kafka_wire.OffsetCommitValue(version=3, offset=9).encode()
    records = [Record(key=key, value=value), Record(key=key[:-1], value=value), Record(key=b"\x01")]
    write_segment(tmp_path / "__consumer_offsets-0", 0, encode_batch(records))
    rows = load(spark, tmp_path, decode="OffsetCommitValue").orderBy("offset").collect()
    assert [row.key and row.key.partition for row in rows] == [3, None, None]
    assert [row.value and row.value.offset for row in rows] == [9, 9, None]
    assert [row._corrupt_record is None for row in rows] == [True, False, False]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decode": "OfsetCommitValue"}, "kafka_wire has no message 'OfsetCommitValue'"),
        (
            {"decode": "no.such.Thing"},
            "module 'no.such' does not exist, or cannot be imported from here",
        ),
        ({"decode": "..such.Thing"}, "module '..such' does not exist"),
        ({"decode": "xml.dom.Node"}, "'xml.dom' is not a package that krammar generated"),
        ({"decode": "sys.path"}, "'sys' is not a package that krammar generated"),
        ({"decode": "krammar.wire.message.Codec"}, "'krammar.wire.message' is not a package"),
        ({"decode": "ErrorCode"}, "has no message 'ErrorCode'"),
        ({"decode": "MetadataRequest"}, "'decodeVersion': is required"),
        ({"decode": "MetadataRequest", "decodeVersion": "99"}, "99"),
    ],
)
def test_classes_that_cannot_be_decoded(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as failure:
        schema_of(Options({"source": "logs", "path": "/", **given}))
    assert message in str(failure.value)


@pytest.mark.parametrize("name", ["innocent.Thing", "innocent.inner.Thing", "innocent.other.Thing"])
def test_other_modules_are_not_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "innocent"
    (folder / "inner").mkdir(parents=True)
    for path in ("__init__.py", "other.py", "inner/__init__.py"):
        (folder / path).write_text(f"raise SystemExit({path!r} + ' has run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OptionError) as failure:
        schema_of(Options({"source": "logs", "path": "/", "decode": name}))
    assert "is not a package that krammar generated, so it is not imported" in str(failure.value)


def test_a_class_by_its_module_and_from_an_archive(
    orders: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = orders.OrderPlaced
    assert named_class("decode", "mypkg.orders.OrderPlaced") is cls
    assert named_class("decode", f"{cls.__module__}.OrderPlaced") is cls
    source = Path(str(orders.__file__)).parent
    archive = shutil.make_archive(str(tmp_path / "a"), "zip", source.parent, source.name)
    monkeypatch.syspath_prepend(archive)
    with monkeypatch.context() as changed:
        changed.delitem(sys.modules, "orders", raising=False)
        found = named_class("decode", "orders.OrderPlaced")
        assert found is not cls and found.__name__ == "OrderPlaced"
        for name in [name for name in sys.modules if name.split(".")[0] == "orders"]:
            del sys.modules[name]


def _codecs() -> list[type[Codec]]:
    found = []
    for name in dir(kafka_wire):
        cls = getattr(kafka_wire, name)
        if isinstance(cls, type) and issubclass(cls, Codec):
            found.append(cls)
    return found


@in_groups("cls", _codecs(), ids=lambda cls: str(cls.__name__), size=100)
def test_every_class_has_columns(cls: type[Codec]) -> None:
    """Defaults go to Spark's form and back to the same bytes, at the newest version."""
    value = cls()
    version = getattr(value, getattr(cls, "_version_field", ""), cls.max_version)
    data = encode_as(value, version)
    decoder = Decoder(cls, version)
    assert isinstance(decoder.type, StructType)
    row = decoder.row(data)
    assert set(row) == set(decoder.type.names)
    assert Encoder(cls, version).bytes_of(row) == data


def test_columns_that_are_not_selected_are_not_decoded(folder: Folder) -> None:
    """The values are not messages of this class. FAILFAST would report that."""
    given = {"source": "logs", "path": str(folder.path), "subscribe": "sizes", "mode": "FAILFAST"}

    def offsets(columns: str) -> list[int]:
        source = KrammarDataSource({**given, "decode": "TopicRecord", "columns": columns})
        reader = source.reader(source.schema())
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        assert all(batch.schema.names == columns.split(",") for batch in batches)
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    assert offsets("offset,topic") == [0, 1, 2, 3]
    with pytest.raises(MalformedRecordError, match="sizes-0, offset 0"):
        offsets("value,offset")
