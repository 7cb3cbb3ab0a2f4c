"""The twelve situations: the rules that cause them, and the client's behaviour.

A situation returns a phrase for the table. It contains only what does not depend on timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka_wire import CreateTopicsRequest, ErrorCode, FetchRequest

from krammar.broker import Broker
from krammar.faults import Rule
from krammar.wire.batches import read_batches
from tests.broker.support import RawClient
from tests.faults.gallery.clients import TOPIC, Client, Options, consume_apart

_JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" '
    'password="secret" user_broker="secret" user_alice="secret";'
)
_SECURE = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "connections.max.reauth.ms": "3600000",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
}


class Situation(NamedTuple):
    """A situation: its title, its rule as the page shows it, and the function that runs it."""

    title: str
    rules: str
    play: Callable[[Client, str], str]

    def run(self, client: Client) -> str:
        return self.play(client, self.rules)


class World:
    """A broker with an empty topic. It notes every request of the client."""

    def __init__(self, broker: Broker, client: Client, port: int) -> None:
        self.broker = broker
        self.faults = broker.faults
        self.servers = broker.bootstrap_servers
        self._port = port
        self._watch = self.faults.on(client_id=client.name, name="watch").delay(0, of="request")

    def arm(self, rule: str) -> Rule:
        """Add a rule as the page spells it."""
        made: Rule = eval(rule, {"faults": self.faults, "ErrorCode": ErrorCode})
        return made

    def times(self, api: str) -> list[float]:
        """When the client's requests of an API came, in seconds."""
        return [e.time for e in self.faults.history if e.rule is self._watch and e.api == api]

    def fetches_from_start(self) -> int:
        """How many of the client's fetches begin at offset 0."""
        return sum(
            partition.fetch_offset == 0
            for event in self.faults.history
            if event.rule is self._watch and event.api == "Fetch"
            for topic in event.request.topics
            for partition in topic.partitions
        )

    def stored(self) -> list[bytes]:
        """The values in the log, aborted ones too."""
        part = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])], max_bytes=1 << 20
        )
        with RawClient(self._port, client_id="the test") as client:
            response = client.call(request, 11)
        batches = read_batches(response.responses[0].partitions[0].records)
        return [
            record.value or b""
            for batch in batches
            if not batch.is_control
            for record in batch.records()
        ]


@contextlib.contextmanager
def world(client: Client, *values: bytes, secure: bool = False) -> Iterator[World]:
    """Start a broker whose topic has some values."""
    with Broker.start(properties=_SECURE if secure else {}) as broker:
        port = broker.addresses["PLAINTEXT"][1]
        with RawClient(port, client_id="the test") as setup:
            topic = CreateTopicsRequest.CreatableTopic(
                name=TOPIC, num_partitions=1, replication_factor=1
            )
            setup.call(CreateTopicsRequest(topics=[topic]), 5)
        if values:
            plain = f"127.0.0.1:{port}"
            assert not any(client.produce(plain, values, Options()))
        yield World(broker, client, port)


def leader_moved(client: Client, rules: str) -> str:
    with world(client) as here:
        rule = here.arm(rules)
        (error,) = client.produce(here.servers, [b"a"], Options())
        rule.expect(times=2)
        first, *_, last = here.times("Produce")
        asked = any(first < time < last for time in here.times("Metadata"))
        return _told(error, "asks for metadata, retries" if asked else "retries", here)


def answer_lost(client: Client, rules: str) -> str:
    with world(client) as here:
        rule = here.arm(rules)
        (error,) = client.produce(here.servers, [b"a"], Options())
        rule.expect(times=1)
        return _told(error, "retries", here)


def fenced(client: Client, rules: str) -> str:
    with world(client) as here:
        rule = here.arm(rules)
        error = client.transaction(here.servers, [b"a"])
        rule.expect()
        return f"commit raises `{error}`" if error else "commit succeeds"


def coordinator_moved(client: Client, rules: str) -> str:
    with world(client, b"a") as here:
        rule = here.arm(rules)
        error = client.commit(here.servers)
        rule.expect()
        if error:
            return f"commit raises `{error}`"
        refused = here.times("OffsetCommit")[0]
        again = any(time > refused for time in here.times("FindCoordinator"))
        return "finds the coordinator again, commits" if again else "commits"


def rebalance_in_commit(client: Client, rules: str) -> str:
    with world(client, b"a") as here:
        rule = here.arm(rules)
        error = client.commit(here.servers)
        rule.expect()
        return f"commit raises `{error}`" if error else "commits again"


def out_of_range(client: Client, rules: str) -> str:
    with world(client, b"a", b"b") as here:
        rule = here.arm(rules)
        read = client.consume(here.servers, 4, Options())
        rule.expect(times=1)
        raised = f"raises `{read.errors[0]}`, " if read.errors else ""
        if read.values == [b"a", b"b"] * 2:
            return f"{raised}goes back to the earliest record, reads all again"
        return f"{raised}reads {len(read.values)} of 4 records"


def aborted(client: Client, rules: str) -> str:
    with world(client) as here:
        late = here.arm(rules)
        error = client.transaction(here.servers, [b"aborted"])
        late.expect()
        reader = _skips_aborted(here, client)
        said = f"commit raises `{error}`" if error else "commit succeeds"
        return (
            f"{said}; `read_committed` skips the records" if reader else f"{said}; records are read"
        )


def _skips_aborted(here: World, client: Client) -> bool:
    """Whether a consumer of committed records skips what was aborted."""
    assert not any(client.produce(here.servers, [b"later"], Options()))
    assert here.stored() == [b"aborted", b"later"]
    return client.consume(here.servers, 1, Options(read_committed=True)).values == [b"later"]


def timed_out(client: Client, rules: str) -> str:
    with world(client) as here:
        rule = here.arm(rules)
        options = Options(idempotent=True, request_ms=1_500)
        (error,) = client.produce(here.servers, [b"a"], options)
        rule.expect()
        return _told(error, "retries", here)


def throttled(client: Client, rules: str) -> str:
    with world(client) as here:
        rule = here.arm(rules)
        assert client.produce(here.servers, [b"a", b"b"], Options()) == ["", ""]
        rule.expect()
        first, second = here.times("Produce")
        return "waits" if second - first > 1.2 else "sends the next request at once"


def expired(client: Client, rules: str) -> str:
    with world(client, secure=True) as here:
        rule = here.arm(rules)
        options = Options(user="alice")
        errors = [error for error in client.produce(here.servers, [b"a", b"b"], options) if error]
        rule.expect()
        again = "logs in again" if len(here.times("SaslHandshake")) > 1 else "keeps its login"
        return _told(errors[0] if errors else "", again, here, expected=2)


def gone(client: Client, rules: str) -> str:
    with world(client) as here:
        rule = here.arm(rules)
        options = Options(delivery_ms=3_000, request_ms=1_000)
        _, error = client.produce(here.servers, [b"a", b"b"], options)
        rule.expect()
        return f"the delivery fails with `{error}`" if error else "reports a delivery"


def corrupt(client: Client, rules: str) -> str:
    with world(client, b"a") as here:
        rule = here.arm(rules)
        read = consume_apart(client, here.servers, 1, Options())
        rule.expect()
        if read is None:
            return "`poll` never returns"
        if not read.values:
            return f"raises `{read.errors[0]}`, and never reads on"
        if read.errors:
            return f"raises `{read.errors[0]}`, then reads the record"
        again = here.fetches_from_start() > 1
        return "fetches again, reads the record" if again else "reads the record unchecked"


def _told(error: str, how: str, here: World, expected: int = 1) -> str:
    if error:
        return f"the delivery fails with `{error}`"
    copies = len(here.stored())
    if copies == expected:
        return f"{how}, delivers; no duplicate"
    return f"{how}, delivers; {copies - expected} duplicate"


_PRODUCE = 'faults.on("Produce", topic="orders")'
_COMMIT = 'faults.on("OffsetCommit", group="g")'
SITUATIONS = (
    Situation(
        "Leader moved in the middle of a batch",
        f"{_PRODUCE}.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER).times(2)",
        leader_moved,
    ),
    Situation("Acknowledged, but the answer lost", f'{_PRODUCE}.drop("after").once()', answer_lost),
    Situation("Fenced producer", 'faults.on("EndTxn").answer(ErrorCode.PRODUCER_FENCED)', fenced),
    Situation(
        "Coordinator moved",
        f"{_COMMIT}.answer(ErrorCode.NOT_COORDINATOR).once()",
        coordinator_moved,
    ),
    Situation(
        "Rebalance in the middle of a commit",
        f"{_COMMIT}.answer(ErrorCode.REBALANCE_IN_PROGRESS).once()",
        rebalance_in_commit,
    ),
    Situation(
        "Offset out of range after retention",
        'faults.on("Fetch", topic="orders", where="topics[*].partitions[*].fetch_offset > 0")'
        ".answer(ErrorCode.OFFSET_OUT_OF_RANGE).once()",
        out_of_range,
    ),
    Situation(
        "Transaction aborted before the commit",
        'faults.on("EndTxn").advance_clock(120_000).drop().once()',
        aborted,
    ),
    Situation("Request time-out on a slow broker", f"{_PRODUCE}.delay(4_000).once()", timed_out),
    Situation(
        "Throttled client",
        'faults.on("Produce", versions="1-", topic="orders").throttle(1_500).once()',
        throttled,
    ),
    Situation(
        "Expired login",
        'faults.on("Produce", principal="User:alice").advance_clock(3_600_001).once()',
        expired,
    ),
    Situation(
        "Broker gone for good",
        f"faults.on().after({_PRODUCE}.delay(0).once()).drop()",
        gone,
    ),
    Situation("Corrupt batch", 'faults.on("Fetch", topic="orders").corrupt("crc").once()', corrupt),
)
