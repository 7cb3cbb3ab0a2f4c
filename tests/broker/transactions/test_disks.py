"""A full or failing disk at each call of a transaction: it is committed in all partitions or in none."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from kafka_wire import ErrorCode

from krammar.broker import Broker
from krammar.broker.transactions.completion import Completion
from tests.broker.disk_job import COORDINATOR, started
from tests.broker.faulty_disk import Disk
from tests.broker.requests import create_topic
from tests.broker.support import RawClient
from tests.broker.test_disk_faults import site
from tests.broker.transactions.support import Producer, committed_offset, find_coordinators
from tests.broker.transactions.test_lost_states import T1, T, committed

NONE = ErrorCode.NONE
# Producers retry all of these.
ERRORS = {
    NONE,
    *COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def begin(client: RawClient) -> None:
    find_coordinators(client)
    # Short segments, so that files are created.
    create_topic(client, "t", 2, internal_segment_bytes="100")


def transact(client: RawClient) -> ErrorCode:
    """Write to two partitions and commit offsets in a transaction, and abort it after an error, which is returned."""
    producer = Producer(client)
    steps: list[Callable[[], ErrorCode]] = [
        producer.init,
        lambda: producer.produce(T, b"new"),
        lambda: producer.produce(T1, b"new"),
        lambda: producer.commit_offset("group", "t", 5),
        producer.end,
    ]
    for step in steps:
        if code := step():
            if producer.id >= 0 and step != producer.end:
                producer.end(False)
            return code
    return NONE


def check(broker: Broker, client: RawClient, *, acknowledged: bool) -> None:
    values = committed(broker), committed(broker, 1), committed_offset(client, "group", "t")
    nothing: tuple[list[bytes], list[bytes], int] = [], [], -1
    assert values == ([b"new"], [b"new"], 5) or (values == nothing and not acknowledged)


def places(folder: Path, fsync: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    with monkeypatch.context() as patch:
        disk = Disk(folder, patch)
        with started(folder, fsync) as (broker, client):
            begin(client)
            disk.calls.clear()
            assert transact(client) is NONE
            broker.call(broker.logs.flush)
            return list(dict.fromkeys(site(*call) for call in disk.calls))


@pytest.mark.parametrize(
    ("fsync", "error", "files"),
    [
        ("always", errno.EIO, "N.log"),
        ("interval", errno.ENOSPC, "N.log"),
        pytest.param("always", errno.ENOSPC, "", marks=pytest.mark.sweep),
        pytest.param("interval", errno.EIO, "", marks=pytest.mark.sweep),
    ],
)
def test_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, error: int, files: str
) -> None:
    monkeypatch.setattr(Completion, "retry_seconds", 0.01)
    found = places(tmp_path / "first", fsync, monkeypatch)
    found = [(call, path) for call, path in found if path.endswith(files)]
    folders = {path.split("/")[0] for _, path in found}
    assert {"__transaction_state-0", "__consumer_offsets-0", "t-0", "t-1"} <= folders
    for number, place in enumerate(found):
        folder = tmp_path / f"{number}"
        with monkeypatch.context() as patch:
            disk = Disk(folder, patch)
            with started(folder, fsync) as (broker, client):
                begin(client)
                disk.fail_where(lambda call, path, at=place: site(call, path) == at, error)  # type: ignore[misc]
                code = transact(client)
                acknowledged = code is NONE
                assert code in ERRORS, (place, code)
                with suppress(OSError):
                    broker.call(broker.logs.flush)
                disk.mend()
                assert disk.failed, place
        # The next start verifies the logs, and completes or aborts the transaction.
        with started(folder, fsync) as (broker, client):
            producer = Producer(client)
            while (code := producer.init()) is not NONE:
                assert code is ErrorCode.CONCURRENT_TRANSACTIONS, (place, os.strerror(error))
            check(broker, client, acknowledged=acknowledged)
            assert producer.produce(T, b"next") is NONE
            assert producer.end() is NONE
            assert committed(broker)[-1] == b"next"
