"""Transactions and their errors: our broker says what Apache Kafka says; folders go back and forth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import ErrorCode

from tests.broker.requests import fetch
from tests.broker.support import RawClient
from tests.broker.transactions.support import Producer, find_coordinators
from tests.interop.apache import ApacheKafka
from tests.interop.conftest import our_broker
from tests.interop.processes import Server
from tests.interop.transaction_cases import CASES, Noted, patient, prepared
from tests.support.waiting import until


@pytest.fixture(scope="module")
def clients(
    kafka_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RawClient, RawClient]]:
    """Of our broker and of Apache Kafka."""
    folder = tmp_path_factory.mktemp("alike")
    with (
        our_broker(folder / "ours") as ours,
        ApacheKafka(folder / "theirs") as theirs,
        prepared(ours.port) as our_client,
        prepared(theirs.port) as their_client,
    ):
        yield our_client, their_client


@pytest.mark.parametrize("name", CASES)
def test_the_same_answers(clients: tuple[RawClient, RawClient], name: str) -> None:
    heard: list[list[Any]] = []
    for client in clients:
        notes: list[Any] = []

        def make(
            short: str, *, bare: bool = False, client: RawClient = client, notes: Any = notes
        ) -> Noted:
            return Noted(client, short if bare else f"{name} {short}", notes)

        CASES[name](make, client, notes)
        heard.append(notes)
    ours, theirs = heard
    different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert not different


def values(client: RawClient) -> list[bytes]:
    """What a consumer of committed records would get from the topic ``t``."""
    from krammar.wire.batches import read_batches

    partition = fetch(client, "t", isolation_level=1)
    aborted = {(one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()}
    return [
        record.value or b""
        for batch in read_batches(partition.records)
        if not batch.is_control and (batch.producer_id, batch.base_offset) not in aborted
        for record in batch
    ]


def test_transactions_outlive_a_change_of_brokers(kafka_jars: str, tmp_path: Path) -> None:
    """One transaction continues under the other broker, one times out there; both brokers crash.

    Only the first start of krammar aborts both: Kafka's folder does not show whether the machine was restarted.
    """
    expected: list[bytes] = []
    left: list[Producer] = []
    for turn, kind in enumerate((ApacheKafka, our_broker, ApacheKafka, our_broker)):
        server: Server = kind(tmp_path / "data")
        server.start()
        try:
            if turn == 0:
                with prepared(server.port):
                    pass
            with RawClient(server.port) as client:
                patient(lambda client=client: _code_of_coordinators(client))
                for producer in left:
                    producer.client = client
                if left:
                    going_on, late = left
                    text = b"%d on" % turn
                    code = patient(lambda p=going_on, text=text: p.produce(("t", 0), text))
                    if turn == 1:
                        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
                        until(lambda p=going_on: p.state == "CompleteAbort")
                    else:
                        assert code == 0
                        assert patient(going_on.end) == 0
                        expected += [b"%d begun" % (turn - 1), text]
                    until(lambda late=late: late.state == "CompleteAbort")
                    until(
                        lambda client=client: fetch(
                            client, "t", isolation_level=1
                        ).last_stable_offset
                        >= fetch(client, "t").high_watermark
                    )
                assert values(client) == expected
                left = []
                for name, timeout, text in (("goes on", 600000, b"begun"), ("late", 1500, b"late")):
                    producer = Producer(client, f"{name} {turn}")
                    assert patient(lambda p=producer, t=timeout: p.init(timeout=t)) == 0
                    text = b"%d %s" % (turn, text)
                    assert patient(lambda p=producer, t=text: p.produce(("t", 0), t)) == 0
                    left.append(producer)
        finally:
            server.kill()


def _code_of_coordinators(client: RawClient) -> int:
    try:
        find_coordinators(client)
    except AssertionError:
        return 15
    return 0
