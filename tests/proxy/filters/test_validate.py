"""Validate: JSON, JSON Schema and messages; refusals per record and per batch; transactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka_wire import ErrorCode, OffsetCommitValue, ProduceRequest

from krammar.client import Client as KrammarClient
from krammar.client.errors import InvalidRecord
from krammar.proxy.filters.validate import Validate
from krammar.wire.batches import Compression, Record, encode_batch
from tests.proxy.filters.support import Client, address, produce, through
from tests.support.waiting import PATIENCE

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"id": {"type": "integer"}},
    "required": ["id"],
}
GOOD, BAD = b'{"id": 1}', b'{"id": "x"}'


@pytest.mark.parametrize("version", [3, 7, 8, 13])
def test_records_are_named_and_other_partitions_are_written(version: int) -> None:
    batch = encode_batch(
        [Record(value=each) for each in (GOOD, BAD, None, b"{")], compression=Compression.GZIP
    )
    with through(Validate(schema=SCHEMA), topics={"orders": 2}) as (broker, proxy):
        found = produce(proxy, version, {("orders", 0): batch, ("orders", 1): [GOOD]})
        records = broker.records("orders")
    assert [(each.partition, each.value) for each in records] == [(1, GOOD)]
    assert found["orders", 1].error_code == 0
    refused = found["orders", 0]
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    if version < 8:
        return
    first = "$.id: 'x' is not of type 'integer'"
    assert refused.error_message == f"2 of 4 records are invalid; the first is record 1: {first}"
    assert [
        (each.batch_index, each.batch_index_error_message) for each in refused.record_errors
    ] == [
        (1, first),
        (
            3,
            "the value is not JSON: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
        ),
    ]


def test_a_request_of_which_nothing_is_left_is_answered() -> None:
    with through(Validate()) as (broker, proxy):
        found = produce(proxy, 9, {("orders", 0): [b"{"]})
        assert found["orders", 0].error_code == ErrorCode.INVALID_RECORD
        assert not broker.records("orders")


@pytest.mark.parametrize(
    "value", [b"NaN", b'"\xff"', b"", b"[" * 100_000, b'"a"'.decode().encode("utf-16")]
)
def test_what_is_not_json(value: bytes) -> None:
    with through(Validate()) as (_, proxy):
        found = produce(proxy, 9, {("orders", 0): [value]})["orders", 0]
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert "record 0: the value is not JSON" in (found.error_message or "")


def test_messages() -> None:
    good = OffsetCommitValue(version=3, offset=7, metadata="", commit_timestamp=1).encode()
    with through(Validate(message="kafka_wire:OffsetCommitValue", nulls=False)) as (broker, proxy):
        assert produce(proxy, 9, {("orders", 0): [good]})["orders", 0].error_code == 0
        found = produce(proxy, 9, {("orders", 0): [good[:-1]]})["orders", 0]
        assert found.error_code == ErrorCode.INVALID_RECORD
        assert "record 0: OffsetCommitValue v3: " in (found.error_message or "")
        null = encode_batch([Record(value=None)])
        found = produce(proxy, 9, {("orders", 0): null})["orders", 0]
        assert "record 0: the value is null" in (found.error_message or "")
        assert len(broker.records("orders")) == 1


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (encode_batch([Record(value=GOOD)])[:-1], ErrorCode.INVALID_RECORD),
        (encode_batch([Record(value=GOOD)])[:-1] + b"\1", ErrorCode.CORRUPT_MESSAGE),
        (
            encode_batch([Record(value=bytes(80 << 20))], compression=Compression.ZSTD),
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_batches_that_cannot_be_read(records: bytes, code: int) -> None:
    with through(Validate()) as (broker, proxy):
        found = produce(proxy, 9, {("orders", 0): records})["orders", 0]
        assert found.error_code == code
        assert found.error_message
        assert not broker.records("orders")


def test_an_idempotent_producer_goes_on_after_a_refusal() -> None:
    with through(Validate(schema=SCHEMA)) as (broker, proxy):
        producer = Producer(
            {
                "bootstrap.servers": proxy.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
            }
        )
        errors = []
        for value in (GOOD, BAD, GOOD):
            producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(PATIENCE) == 0
        assert [error and error.code() for error in errors] == [
            None,
            KafkaError.INVALID_RECORD,
            None,
        ]
        assert [each.value for each in broker.records("orders")] == [GOOD, GOOD]


def test_a_transaction_with_a_refused_record_is_aborted() -> None:
    with (
        through(Validate(schema=SCHEMA)) as (broker, proxy),
        KrammarClient(proxy.bootstrap_servers) as client,
        client.producer(transactional_id="t") as producer,
    ):
        producer.init_transactions()
        producer.begin()
        producer.send("orders", GOOD)
        producer.flush()
        refused = producer.send("orders", BAD)
        with pytest.raises(InvalidRecord):
            producer.wait_for(refused)
        producer.abort()
        with producer.transaction():
            producer.send("orders", b'{"id": 2}')
        committed = [each.value for each in broker.records("orders")]
        assert committed == [b'{"id": 2}']


def test_a_file_with_a_schema(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(SCHEMA))
    with through(Validate(schema=tmp_path / "order.json")) as (_, proxy):
        found = produce(proxy, 9, {("orders", 0): [BAD]})["orders", 0]
        assert found.error_code == ErrorCode.INVALID_RECORD


def test_a_reference_is_not_loaded(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="orders",
                partition_data=[
                    ProduceRequest.PartitionProduceData(
                        index=0, records=encode_batch([Record(value=GOOD)])
                    )
                ],
            )
        ],
    )
    with through(Validate(schema=schema)) as (_, proxy), Client(address(proxy)) as client:
        client.socket.sendall(client.connection.send_request(request, 9))
        assert client.read_to_end() == b""
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "raised ValueError: schema: a reference leads to nothing" in line


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"schema": {"type": "no"}}, r"schema: \$.type: 'no' is not valid"),
        ({"schema": {}, "message": "a:b"}, "schema, message: give one of them"),
        ({"message": "kafka_wire:Nothing"}, "message: module 'kafka_wire' has no 'Nothing'"),
        ({"message": "json:loads"}, "message = 'json:loads': it is no message"),
        (
            {"message": "kafka_wire:MetadataRequest", "version": 99},
            "version = 99: MetadataRequest has versions 0 to 13",
        ),
        ({"version": 1}, "version: needs message"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Validate(**arguments)
