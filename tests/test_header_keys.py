"""Records with a header whose key is not UTF-8, through all readers and a filter that encodes records again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from krammar.broker import Broker
from krammar.cli import main
from krammar.client import Client
from krammar.proxy import Proxy
from krammar.proxy.filters.encrypt import Encrypt
from krammar.proxy.filters.envelope import pack_headers, unpack_headers
from krammar.testing import KafkaBroker
from krammar.wire.batches import HeaderKey, read_batches
from krammar.wire.batches.records.model import header_key_bytes
from tests.proxy.filters.encrypted import line

RAW = b"h\xe9"
SHOWN = "h\ufffd"
HEADERS = [(HeaderKey(RAW), b"x"), ("plain", None)]


def test_readers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker.start(data_dir=data) as broker, Client(broker.bootstrap_servers) as client:
        with client.producer() as producer:
            for number in range(3):
                headers = HEADERS if number == 1 else []
                producer.send("t", b"%d" % number, headers=headers, partition=0)
        fetched = [
            record
            for found in client.fetch({("t", 0): 0}, until={("t", 0): 3})
            for batch in read_batches(found.data)
            for record in batch
        ]
        assert [len(record.headers) for record in fetched] == [0, 2, 0]
        assert fetched[1].headers == [(SHOWN, b"x"), ("plain", None)]
        assert header_key_bytes(fetched[1].headers[0][0]) == RAW
        options = ["-b", str(broker.bootstrap_servers)]
        shown = CliRunner().invoke(main, ["consume", "t", *options, "-e", "-J"])
        assert shown.exit_code == 0, shown.output
        lines = [json.loads(text) for text in shown.output.splitlines()]
        assert [one["payload"] for one in lines] == ["0", "1", "2"]
        assert lines[1]["headers"] == [SHOWN, "x", "plain", None]
    inspected = CliRunner().invoke(main, ["inspect", str(data / "t-0"), "--records", "--json"])
    assert inspected.exit_code == 0, inspected.output
    keys = [
        header["key"]
        for text in inspected.output.splitlines()
        for header in json.loads(text).get("headers", [])
    ]
    assert keys == [SHOWN, "plain"]


def test_records_of_a_test_broker() -> None:
    with KafkaBroker.start() as broker, Client(broker.bootstrap_servers) as client:
        with client.producer() as producer:
            producer.send("t", b"v", headers=HEADERS)
        (record,) = broker.records("t")
        assert record.headers == ((SHOWN, b"x"), ("plain", None))
        assert header_key_bytes(record.headers[0][0]) == RAW


def test_a_filter_that_encodes_records_again(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    keys = tmp_path / "keys"
    keys.write_text(line("one"))
    for sealed in (False, True):
        with (
            Broker.start() as broker,
            Proxy.start(
                broker.bootstrap_servers, filters=[Encrypt(keys=keys, headers=sealed)]
            ) as proxy,
        ):
            with Client(proxy.bootstrap_servers) as client:
                with client.producer() as producer:
                    producer.send("t", b"v", headers=HEADERS)
                (found,) = client.fetch({("t", 0): 0}, until={("t", 0): 1})
                ((record,),) = read_batches(found.data)
            assert record.value == b"v"
            assert [header_key_bytes(key) for key, _ in record.headers] == [RAW, b"plain"]
            with Client(broker.bootstrap_servers) as client:
                (stored,) = client.fetch({("t", 0): 0}, until={("t", 0): 1})
            assert (RAW in stored.data) is not sealed
            assert b"\xef\xbf\xbd" not in stored.data


@given(st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9))))
def test_sealed_headers(headers: list[tuple[bytes, bytes | None]]) -> None:
    keyed = [(HeaderKey(key), value) for key, value in headers]
    found = unpack_headers(pack_headers(keyed))
    assert [(header_key_bytes(key), value) for key, value in found] == headers
