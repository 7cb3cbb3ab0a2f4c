"""What a broker answers to members of share groups: sequences of ShareFetch and ShareAcknowledge, and the answers
without what differs from run to run (ids, ports, wording)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any
from uuid import UUID

from kafka_wire import (
    AlterShareGroupOffsetsRequest,
    ConfigResourceType,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeShareGroupOffsetsRequest,
    EndTxnRequest,
    IncrementalAlterConfigsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)

from krammar.wire.batches import Record, encode_batch, read_batches
from tests.broker.requests import (
    batch,
    create_topic,
    fetch,
    list_offset,
    open_transaction,
    produce,
    produce_request,
)
from tests.broker.support import RawClient
from tests.support.waiting import until

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
# For requests that get records, and for those that get none, in milliseconds.
_LONG, _SHORT = 20_000, 300
# What the request of a renewal has instead.
_NOTHING = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
# Kafka has no messages for most errors.
_VARIES = {"throttle_time_ms", "unknown_tags", "error_message", "acknowledge_error_message"}

# First offset, last offset, and one type or a type for each record.
Ack = tuple[int, ...]


class ShareTalk:
    """A conversation of the members of a share group with a broker, about one topic.

    Attributes:
        heard: the answers, as far as they can be compared
        joined: whether neighbouring runs of acquired records are compared as one run: Kafka has a
            run for each record where a part of a run was acknowledged before
        name: of the topic and of the group
        topic: the topic's id
    """

    joined = True

    def __init__(self, port: int, name: str, partitions: int = 1) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.name = name
        self._port = port
        self._open = ExitStack()
        self.client = self.connect()
        self.topic = create_topic(self.client, name, partitions)
        until(lambda: produce(self.client, name, b"").error_code not in (3, 5, 6))
        self.configure(auto_offset_reset="earliest")

    def connect(self) -> RawClient:
        return self._open.enter_context(RawClient(self._port))

    def close(self) -> None:
        self._open.close()

    def member(self, name: str = "member") -> ShareReader:
        """A member on a connection of its own, which has its assignment."""
        return ShareReader(self, name, self.connect())

    def configure(self, **settings: str) -> None:
        """Set settings of the group; names have underscores."""
        named = {f"share.{name.replace('_', '.')}": value for name, value in settings.items()}
        self.set_configs(ConfigResourceType.GROUP, named)

    def set_configs(self, kind: ConfigResourceType, values: dict[str, str]) -> None:
        """Set settings of the group, or of the topic."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind,
            resource_name=self.name,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(name=name, value=value)
                for name, value in values.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = self.client.call(request).responses
        assert result.error_code == 0, result

    def fill(self, *sizes: int, partition: int = 0) -> None:
        """Produce record batches of these sizes."""
        for size in sizes:
            done = produce(self.client, self.name, batch(*[b"v"] * size), partition)
            assert done.error_code == 0, done

    def position(self) -> None:
        """Note the lags of the group. Kafka stores start offsets later than krammar, with the next acknowledgement."""
        kind = DescribeShareGroupOffsetsRequest
        asked = kind.Group(group_id=self.name, topics=None)
        (group,) = self.client.call(kind(groups=[asked])).groups
        found = [
            (each.partition_index, each.lag, each.error_code)
            for topic in group.topics
            for each in topic.partitions
        ]
        self.heard.append(("position", (group.error_code, sorted(found))))

    def note(self, label: str, response: Any) -> None:
        self.heard.append((label, self._plain(response.to_dict())))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            plain = {name: self._plain(item) for name, item in value.items() if name not in _VARIES}
            if "acquired_records" in plain and self.joined:
                plain["acquired_records"] = _joined(value["acquired_records"])
            if "records" in plain:
                plain["records"] = _offsets(value["records"])
            return plain
        if isinstance(value, list):
            return sorted(map(self._plain, value), key=repr)
        if value in (self.topic, str(self.topic)):
            return "<topic>"
        return "<port>" if value == self._port and not isinstance(value, bool) else value


def _joined(runs: list[dict[str, int]]) -> list[list[int]]:
    """First offset, last offset and delivery count of records that follow each other with the same count."""
    found: list[list[int]] = []
    for run in runs:
        first, last, deliveries = (
            run[name] for name in ("first_offset", "last_offset", "delivery_count")
        )
        if found and found[-1][1:] == [first - 1, deliveries]:
            found[-1][1] = last
        else:
            found.append([first, last, deliveries])
    return found


def _offsets(records: str | None) -> list[list[int]]:
    """The offsets of the records of each batch."""
    data = b64decode(records or "")
    return [[record.offset for record in each] for each in read_batches(data)]


class ShareReader:
    """A member of a share group. ``epoch`` is that of its next request."""

    def __init__(self, talk: ShareTalk, name: str, client: RawClient) -> None:
        self.talk, self.name, self.client = talk, name, client
        self.epoch = 0

    def join(self) -> ShareReader:
        """Send heartbeats until the group has a state for all partitions."""
        beat = ShareGroupHeartbeatRequest(
            group_id=self.talk.name,
            member_id=self.name,
            member_epoch=0,
            subscribed_topic_names=[self.talk.name],
        )

        def assigned() -> bool:
            response = self.client.call(beat)
            assert response.error_code == 0, response
            beat.member_epoch = response.member_epoch
            return response.assignment is not None and bool(response.assignment.topic_partitions)

        until(assigned)
        return self

    def leave(self) -> None:
        """Leave the group, without the end of the session."""
        leaving = ShareGroupHeartbeatRequest(
            group_id=self.talk.name, member_id=self.name, member_epoch=-1
        )
        response = self.client.call(leaving)
        assert response.error_code == 0, response

    def fetch_request(
        self,
        *acks: Ack,
        partitions: Sequence[int] = (0,),
        topic: UUID | None = None,
        forget: Sequence[int] = (),
        epoch: int | None = None,
        **options: Any,
    ) -> ShareFetchRequest:
        kind = ShareFetchRequest
        fields = {
            "group_id": self.talk.name,
            "member_id": self.name,
            "max_wait_ms": _LONG,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        } | options
        forgotten = kind.ForgottenTopic(topic_id=self.talk.topic, partitions=[*forget])
        return kind(
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                kind.FetchTopic(
                    topic_id=topic or self.talk.topic,
                    partitions=[
                        kind.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=_batches(kind, acks),
                        )
                        for index in partitions
                    ],
                )
            ],
            forgotten_topics_data=[forgotten] if forget else [],
            **fields,
        )

    def fetch(self, *acks: Ack, **options: Any) -> Any:
        """Send a ShareFetch that gets records, and note the answer.

        Kafka releases records some time after its response. So without acknowledgements, an answer without
        records is not noted, and the request is sent again.
        """

        def found() -> Any:
            response = self._ask(*acks, **options)
            return response if acks or response.error_code or _acquired(response) else None

        return self._noted(acks, options, until(found))

    def _ask(self, *acks: Ack, version: int | None = None, **options: Any) -> Any:
        request = self.fetch_request(*acks, **options)
        if version == 1:
            request.share_acquire_mode, request.is_renew_ack = 0, False
        response = self.client.call(request, version)
        if response.error_code == 0:
            self.epoch += 1
        return response

    def _noted(self, acks: Sequence[Ack], options: dict[str, Any], response: Any) -> Any:
        self.talk.note(f"{self.name}: fetch {acks} {options}", response)
        return response

    def none(self, *acks: Ack, **options: Any) -> Any:
        """Send a ShareFetch that gets no records, and note the answer."""
        options = {"max_wait_ms": _SHORT, **options}
        return self._noted(acks, options, self._ask(*acks, **options))

    def renew(self, *acks: Ack, **options: Any) -> Any:
        """Send a ShareFetch that extends locks, and note the answer."""
        options = {"is_renew_ack": True, **_NOTHING, **options}
        return self._noted(acks, options, self._ask(*acks, **options))

    def ack(
        self,
        *acks: Ack,
        partition: int = 0,
        topic: UUID | None = None,
        epoch: int | None = None,
        version: int | None = None,
        silent: bool = False,
        **options: Any,
    ) -> Any:
        """Send a ShareAcknowledge, and note the answer, unless it is ``silent``."""
        kind = ShareAcknowledgeRequest
        batches = _batches(kind, acks)
        part = kind.AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)
        fields = {"group_id": self.talk.name, "member_id": self.name} | options
        request = kind(
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[kind.AcknowledgeTopic(topic_id=topic or self.talk.topic, partitions=[part])],
            **fields,
        )
        response = self.client.call(request, version)
        if not silent:
            self.talk.note(f"{self.name}: acknowledge {acks} {options} v{version}", response)
        if response.error_code == 0:
            self.epoch += 1
        return response


def _batches(kind: Any, acks: Sequence[Ack]) -> list[Any]:
    return [
        kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, *types in acks
    ]


CASES: dict[str, Callable[[ShareTalk], None]] = {}


def _case(function: Callable[[ShareTalk], None]) -> Callable[[ShareTalk], None]:
    CASES[function.__name__.strip("_").replace("_", " ")] = function
    return function


# -- sessions


@_case
def _epochs(talk: ShareTalk) -> None:
    talk.fill(3)
    member = talk.member().join()
    member.none(epoch=1)
    member.none(epoch=-1)
    member.none(epoch=-2)
    member.ack(epoch=0)
    member.ack(epoch=1)
    member.ack(epoch=-1)
    member.fetch()
    member.none(epoch=0, max_wait_ms=0)
    member.epoch = 1
    for epoch in (2, 5, -2):
        member.none(epoch=epoch)
        member.ack((0, 0, ACCEPT), epoch=epoch)
    member.ack((0, 0, ACCEPT), epoch=0)
    member.ack((0, 0, ACCEPT))
    member.none((1, 1, ACCEPT))
    member.none((2, 2, ACCEPT), epoch=-1)
    member.ack((2, 2, ACCEPT))
    member.none()
    talk.position()


@_case
def _the_first_request_acknowledges(talk: ShareTalk) -> None:
    talk.fill(2)
    member = talk.member().join()
    member.fetch((0, 0, ACCEPT))
    member.epoch = 0
    member.fetch()
    member.none((0, 0, ACCEPT), epoch=0)


@_case
def _a_session_begins_again(talk: ShareTalk) -> None:
    """With the records that the member has."""
    talk.fill(3)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch()
    member.epoch = 0
    member.none()
    member.ack((0, 0, ACCEPT))
    other.none()


@_case
def _the_last_fetch_acknowledges(talk: ShareTalk) -> None:
    talk.fill(3, 2)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch()
    member.none((0, 1, ACCEPT), epoch=-1, max_bytes=0, max_records=0)
    other.fetch()
    talk.position()


@_case
def _the_last_acknowledgement(talk: ShareTalk) -> None:
    talk.fill(4)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch()
    member.ack((1, 1, ACCEPT), epoch=-1)
    other.fetch()
    member.ack((2, 2, ACCEPT), epoch=-1)


@_case
def _partitions_come_and_go(talk: ShareTalk) -> None:
    member = talk.member().join()
    member.none(partitions=[])
    talk.fill(2)
    talk.fill(2, partition=1)
    member.none(partitions=[])
    member.fetch(partitions=[0])
    member.fetch(partitions=[1])
    talk.fill(1)
    talk.fill(1, partition=1)
    member.fetch(partitions=[], forget=[0])
    member.none(partitions=[], forget=[0, 1])
    member.ack((0, 2, ACCEPT))
    member.ack((0, 2, ACCEPT), partition=1)
    member.none(partitions=[], epoch=-1)


@_case
def _ids(talk: ShareTalk) -> None:
    """Of groups, members, topics and partitions."""
    talk.fill(1)
    member = talk.member().join()
    for wrong in ({"group_id": None}, {"member_id": ""}, {"member_id": "m" * 37}):
        member.none(**wrong)
        member.ack((0, 0, ACCEPT), **wrong)
    member.fetch()
    unknown = UUID(int=77)
    member.none(topic=unknown)
    member.none(partitions=[9])
    member.ack((0, 0, ACCEPT), partition=9)
    member.ack((0, 0, ACCEPT), topic=unknown)
    member.none((0, 0, ACCEPT), partitions=[9])
    member.none((0, 0, ACCEPT), topic=unknown)
    member.ack((0, 0, ACCEPT))


@_case
def _another_member_and_group(talk: ShareTalk) -> None:
    """Sessions are found by group and member."""
    talk.fill(2)
    member = talk.member().join()
    member.fetch()
    member.none(member_id="other")
    member.none(group_id=f"{talk.name}-2")
    member.ack((0, 0, ACCEPT), member_id="other")
    member.ack((0, 0, ACCEPT))


# -- acknowledgements


@_case
def _acknowledgements_of_others_records(talk: ShareTalk) -> None:
    talk.fill(4)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch()
    other.none()
    other.ack((0, 0, ACCEPT))
    other.ack((0, 3, RELEASE))
    member.ack((0, 0, ACCEPT))
    member.ack((0, 0, ACCEPT))
    member.ack((1, 1, RELEASE))
    member.ack((1, 2, ACCEPT))
    other.fetch()
    member.ack((1, 1, ACCEPT))
    other.ack((1, 1, ACCEPT))
    member.ack((2, 3, ACCEPT))
    talk.position()


@_case
def _acknowledgements_of_what_nobody_has(talk: ShareTalk) -> None:
    member = talk.member().join()
    member.none()
    member.ack((0, 0, ACCEPT))
    talk.fill(3, 3)
    member.fetch(max_records=1)
    member.ack((3, 3, ACCEPT))
    member.ack((2, 3, ACCEPT))
    member.ack((0, 9, ACCEPT))
    member.ack((7, 9, ACCEPT))
    member.none((7, 9, ACCEPT), max_records=1)
    member.ack((0, 0, ACCEPT), (7, 9, ACCEPT))
    member.ack((0, 2, ACCEPT))
    member.ack((0, 2, ACCEPT))
    talk.position()


@_case
def _invalid_acknowledgements(talk: ShareTalk) -> None:
    talk.fill(4)
    member = talk.member().join()
    member.fetch()
    for acks in (
        [(2, 1, ACCEPT)],
        [(1, 2, ACCEPT), (0, 0, ACCEPT)],
        [(0, 1, ACCEPT), (1, 2, ACCEPT)],
        [(0, 2, ACCEPT), (1, 3, ACCEPT)],
        [(0, 0, ACCEPT), (0, 0, ACCEPT)],
        [(0, 2)],
        [(0, 2, ACCEPT, ACCEPT)],
        [(0, 0, ACCEPT, ACCEPT)],
        [(0, 2, 5)],
        [(0, 2, -1)],
        [(0, 2, RENEW)],
        [(0, 1, ACCEPT, RENEW)],
        [(0, 1, ACCEPT, 9)],
        [(-1, 0, ACCEPT)],
    ):
        member.none(*acks)
        member.ack(*acks)
        member.ack(*acks, version=1)
    member.ack()
    member.ack((0, 3, ACCEPT))


@_case
def _types_of_acknowledgements(talk: ShareTalk) -> None:
    talk.fill(6, 6)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch()
    member.ack((0, 5, ACCEPT, RELEASE, REJECT, GAP, RELEASE, ACCEPT))
    talk.position()
    other.fetch()
    member.ack((6, 8, RELEASE), (9, 11, GAP))
    talk.position()
    other.ack((1, 1, REJECT), (4, 4, RELEASE))
    talk.position()
    other.fetch()
    other.ack((4, 4, ACCEPT), (6, 8, ACCEPT))
    talk.position()


@_case
def _acknowledgements_across_batches(talk: ShareTalk) -> None:
    talk.fill(3, 3, 3)
    member = talk.member().join()
    member.fetch()
    member.ack((1, 7, ACCEPT))
    talk.position()
    member.ack((0, 0, RELEASE), (8, 8, RELEASE))
    member.fetch()
    member.ack((0, 8, ACCEPT))
    member.ack((0, 0, ACCEPT), (8, 8, ACCEPT))
    talk.position()


@_case
def _fetches_acknowledge(talk: ShareTalk) -> None:
    talk.fill(3)
    member = talk.member().join()
    member.fetch()
    talk.fill(2)
    member.fetch((0, 0, ACCEPT), (1, 1, REJECT))
    member.none((0, 2, ACCEPT))
    member.none((2, 4, ACCEPT), version=1)
    talk.position()


@_case
def _renewals(talk: ShareTalk) -> None:
    talk.fill(3)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch()
    member.renew((0, 0, RENEW))
    member.ack((0, 1, RENEW), is_renew_ack=True)
    member.ack((0, 2, RENEW, ACCEPT, RELEASE), is_renew_ack=True)
    member.ack((0, 0, ACCEPT), is_renew_ack=True)
    other.fetch()
    member.renew((2, 2, RENEW))
    other.renew((2, 2, ACCEPT))
    talk.position()


@_case
def _invalid_renewals(talk: ShareTalk) -> None:
    talk.fill(2)
    member = talk.member().join()
    member.renew()
    member.epoch = 0
    member.fetch()
    for name in _NOTHING:
        member.renew((0, 1, RENEW), **{name: 1})
    member.renew((0, 1, RENEW), batch_size=0)
    member.renew(partitions=[])
    member.renew((0, 1, RENEW), epoch=0)
    talk.configure(renew_acknowledge_enable="false")
    member.renew((0, 1, RENEW))
    member.ack((0, 1, ACCEPT, RENEW), is_renew_ack=True)
    member.ack((0, 1, ACCEPT), is_renew_ack=True)


# -- acquiring


@_case
def _numbers_of_records(talk: ShareTalk) -> None:
    talk.fill(3, 2, 4, 10, 1)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch(max_records=1)
    other.fetch(max_records=4)
    member.fetch(max_records=10)
    other.fetch(max_records=1)
    member.none(max_records=0)
    member.none(max_records=-1)


@_case
def _sizes_of_runs(talk: ShareTalk) -> None:
    talk.joined = False
    talk.fill(10, 3, 3, 3, 3)
    member = talk.member().join()
    member.fetch(batch_size=4, max_records=5)
    member.ack((0, 9, RELEASE))
    member.fetch(batch_size=4)
    member.ack((0, 21, RELEASE))
    member.fetch(batch_size=6, max_records=8)


@_case
def _strict_limits(talk: ShareTalk) -> None:
    talk.fill(10, 5, 5)
    member, other = talk.member().join(), talk.member("other").join()
    strict = {"share_acquire_mode": 1}
    member.fetch(max_records=3, **strict)
    other.fetch(max_records=4, batch_size=2, **strict)
    member.ack((0, 0, RELEASE), (2, 2, RELEASE))
    member.fetch(max_records=3, **strict)
    other.fetch(max_records=6, batch_size=3, **strict)
    member.fetch()
    talk.position()


@_case
def _both_modes(talk: ShareTalk) -> None:
    """A strict limit divides a batch, and a fetch without gets its rest."""
    talk.fill(10, 10)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch(max_records=3, share_acquire_mode=1)
    other.fetch(max_records=3)
    member.ack((0, 2, RELEASE))
    member.fetch(max_records=1)
    other.fetch(max_records=2)


@_case
def _released_parts_of_batches(talk: ShareTalk) -> None:
    talk.fill(5, 5, 5)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch(batch_size=5)
    member.ack((1, 2, RELEASE), (4, 6, RELEASE), (12, 12, RELEASE))
    other.fetch(max_records=1)
    other.fetch(max_records=2)
    other.fetch()
    other.ack((1, 2, RELEASE), (4, 6, RELEASE), (12, 12, RELEASE))
    other.fetch(batch_size=1)


@_case
def _too_many_locks(talk: ShareTalk) -> None:
    talk.configure(partition_max_record_locks="100")
    talk.fill(*[30] * 6)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch()
    other.none()
    member.ack((0, 29, ACCEPT), (30, 59, RELEASE))
    member.fetch(batch_size=30)
    member.ack((30, 89, RELEASE), (90, 119, ACCEPT))
    other.fetch()
    talk.position()


@_case
def _bytes(talk: ShareTalk) -> None:
    talk.fill(3, 3, 3)
    member = talk.member().join()
    member.fetch(max_bytes=1)
    member.none(max_bytes=0)
    member.fetch(max_bytes=150)
    member.none(min_bytes=1 << 20)
    member.fetch()


@_case
def _two_partitions(talk: ShareTalk) -> None:
    talk.fill(3, 3)
    talk.fill(3, 3, partition=1)
    member = talk.member().join()
    member.fetch(partitions=[0], max_records=3)
    member.fetch(partitions=[1], forget=[0], max_records=3)
    member.ack((0, 2, RELEASE), partition=1)
    member.ack((0, 2, ACCEPT))
    talk.position()


@_case
def _deliveries(talk: ShareTalk) -> None:
    """Five deliveries are the limit, and records that come back often come in smaller numbers."""
    talk.fill(16)
    member = talk.member().join()
    for _ in range(40):
        response = member.none()
        found = _acquired(response)
        if not found:
            break
        member.ack(*[(first, last, RELEASE) for first, last in found])
    talk.position()


def _acquired(response: Any) -> list[tuple[int, int]]:
    return [
        each for topic in response.responses for part in topic.partitions for each in _runs(part)
    ]


def _runs(part: Any) -> list[tuple[int, int]]:
    return [(each.first_offset, each.last_offset) for each in part.acquired_records]


@_case
def _two_deliveries(talk: ShareTalk) -> None:
    talk.configure(delivery_count_limit="2")
    talk.fill(4, 2)
    member = talk.member().join()
    member.fetch()
    member.ack((0, 3, ACCEPT, RELEASE, RELEASE, ACCEPT), (4, 5, RELEASE))
    member.fetch()
    member.ack((1, 2, RELEASE), (4, 5, RELEASE))
    member.none()
    talk.position()


@_case
def _three_deliveries(talk: ShareTalk) -> None:
    talk.configure(delivery_count_limit="3")
    talk.fill(3)
    member = talk.member().join()
    for _ in range(12):
        found = _acquired(member.none())
        if not found:
            break
        member.ack(*[(first, last, RELEASE) for first, last in found])
    talk.position()


@_case
def _deliveries_of_two_batches(talk: ShareTalk) -> None:
    """Some of their records were returned once more than others."""
    talk.fill(4, 4)
    member = talk.member().join()
    member.fetch(batch_size=4)
    member.ack((0, 7, RELEASE))
    member.fetch(max_records=4)
    member.ack((0, 3, RELEASE))
    for _ in range(30):
        found = _acquired(member.none())
        if not found:
            break
        member.ack(*[(first, last, RELEASE) for first, last in found])
    talk.position()


@_case
def _locks_time_out(talk: ShareTalk) -> None:
    talk.configure(record_lock_duration_ms="1000")
    talk.fill(3)
    member, other = talk.member().join(), talk.member("other").join()
    member.fetch()
    talk.configure(record_lock_duration_ms="60000")
    other.fetch()
    member.ack((0, 0, ACCEPT))
    other.ack((0, 2, ACCEPT))
    talk.position()


@_case
def _limits_end_with_time_outs(talk: ShareTalk) -> None:
    """A record whose last lock times out is archived."""
    talk.configure(record_lock_duration_ms="1000", delivery_count_limit="2")
    talk.fill(2)
    member = talk.member().join()
    member.fetch()
    member.fetch()
    member.none(max_wait_ms=2_000)
    talk.position()


# -- start offsets


@_case
def _deleted_records(talk: ShareTalk) -> None:
    talk.fill(3, 3, 3)
    member = talk.member().join()
    member.fetch(max_records=6)
    _delete_records(talk, 4)
    member.ack((0, 1, ACCEPT))
    member.ack((2, 5, ACCEPT, ACCEPT, ACCEPT, RELEASE))
    member.fetch()
    talk.position()


@_case
def _records_deleted_before_the_first_fetch(talk: ShareTalk) -> None:
    talk.fill(3, 3, 3)
    _delete_records(talk, 4)
    member = talk.member().join()
    member.fetch()
    member.ack((3, 8, ACCEPT))
    member.ack((4, 8, ACCEPT))
    talk.position()


def _delete_records(talk: ShareTalk, before: int) -> None:
    kind = DeleteRecordsRequest
    part = kind.DeleteRecordsPartition(partition_index=0, offset=before)
    topics = [kind.DeleteRecordsTopic(name=talk.name, partitions=[part])]
    response = talk.client.call(kind(topics=topics, timeout_ms=10_000))
    assert response.topics[0].partitions[0].error_code == 0, response


@_case
def _all_records_are_deleted(talk: ShareTalk) -> None:
    talk.fill(3)
    member = talk.member().join()
    member.fetch()
    _delete_records(talk, 3)
    member.none()
    member.ack((0, 2, ACCEPT))
    talk.fill(2)
    member.fetch()
    member.ack((3, 4, ACCEPT))
    talk.position()


@_case
def _a_reset_of_the_group(talk: ShareTalk) -> None:
    talk.fill(3, 3)
    member = talk.member().join()
    member.fetch()
    member.ack((0, 2, ACCEPT))
    member.leave()
    for start in (1, 5, 0):
        _reset(talk, start)
    # Kafka notices the new state when it writes, and names itself as the leader.
    member.ack((3, 3, ACCEPT), silent=True)
    again = talk.member("again").join()
    again.fetch()
    again.ack((0, 5, ACCEPT))
    talk.position()


def _reset(talk: ShareTalk, start: int) -> None:
    kind = AlterShareGroupOffsetsRequest
    part = kind.Partition(partition_index=0, start_offset=start)
    topic = kind.Topic(topic_name=talk.name, partitions=[part])
    talk.note(f"reset to {start}", talk.client.call(kind(group_id=talk.name, topics=[topic])))


@_case
def _a_group_begins_at_the_end(talk: ShareTalk) -> None:
    talk.configure(auto_offset_reset="latest")
    talk.fill(3)
    member = talk.member().join()
    member.none()
    talk.fill(2)
    member.fetch()
    member.ack((3, 3, ACCEPT))
    talk.position()


@_case
def _a_deleted_topic(talk: ShareTalk) -> None:
    talk.fill(2)
    member = talk.member().join()
    member.fetch()
    topic = DeleteTopicsRequest.DeleteTopicState(topic_id=talk.topic)
    talk.client.call(DeleteTopicsRequest(topics=[topic], timeout_ms=10_000))
    until(lambda: produce(talk.client, talk.name, batch(b"v")).error_code == 3)
    member.ack((0, 1, ACCEPT))
    member.none(epoch=-1)


# -- compaction


def _compact(talk: ShareTalk) -> None:
    """Let the topic be compacted, and produce records with few keys, in several batches."""
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
    }
    talk.set_configs(ConfigResourceType.TOPIC, settings)
    for keys, age in (("aaa", 9), ("bc", 9), ("aab", 9), ("ad", 9), ("dd", 5), ("e", 1)):
        # Batches that are much younger begin a segment.
        when = 1_700_000_000_000 - age * 60_000
        records = [Record(key=key.encode(), value=b"v", timestamp=when) for key in keys]
        assert produce(talk.client, talk.name, encode_batch(records)).error_code == 0


def _read(talk: ShareTalk, offset: int) -> bytes:
    records: bytes | None = fetch(talk.client, talk.name, offset).records
    return records or b""


def _wait_for_compaction(talk: ShareTalk) -> None:
    def offsets() -> list[int]:
        found: list[int] = []
        while batches := list(read_batches(_read(talk, found[-1] + 1 if found else 0))):
            found += [record.offset for each in batches for record in each]
        return found

    until(lambda: offsets() == [4, 7, 8, 11, 12])


@_case
def _compacted_records(talk: ShareTalk) -> None:
    _compact(talk)
    _wait_for_compaction(talk)
    member = talk.member().join()
    for _ in range(4):
        response = member.none()
        found = _acquired(response)
        if not found:
            break
        member.ack(*[(first, last, ACCEPT) for first, last in found])
    talk.position()


@_case
def _records_that_are_compacted_meanwhile(talk: ShareTalk) -> None:
    """They were returned before."""
    talk.configure(record_lock_duration_ms="60000")
    _compact(talk)
    member = talk.member().join()
    member.fetch(max_records=3)
    member.ack((0, 2, RELEASE))
    _wait_for_compaction(talk)
    for _ in range(4):
        found = _acquired(member.none())
        if not found:
            break
        member.ack(*[(first, last, ACCEPT) for first, last in found])
    talk.position()


# -- transactions


def _transactions(talk: ShareTalk, *ends: bool | None) -> None:
    """Produce three records in a transaction each: committed, aborted, or open."""
    for number, committed in zip(count(), ends):
        name = f"{talk.name}-{number}"
        header = open_transaction(talk.client, name)
        data = batch(b"1", b"2", b"3", **header)
        request = produce_request(talk.name, data, transactional_id=name)
        response = talk.client.call(request, 12).responses[0].partition_responses[0]
        assert response.error_code == 0, response
        last = response.base_offset + 2
        if committed is not None:
            end = EndTxnRequest(
                transactional_id=name,
                producer_id=header["producer_id"],
                producer_epoch=header["producer_epoch"],
                committed=committed,
            )
            assert talk.client.call(end, 4).error_code == 0
            # Kafka writes the marker later.
            until(lambda last=last: list_offset(talk.client, talk.name, -1).offset == last + 2)


@_case
def _read_committed(talk: ShareTalk) -> None:
    talk.configure(isolation_level="read_committed")
    talk.fill(2)
    _transactions(talk, True, False, True)
    talk.fill(2)
    _read_all(talk.member().join(), 10)
    talk.position()


@_case
def _read_uncommitted(talk: ShareTalk) -> None:
    talk.fill(2)
    _transactions(talk, True, False, None)
    talk.fill(2)
    _read_all(talk.member().join(), 13)
    talk.position()


@_case
def _an_open_transaction(talk: ShareTalk) -> None:
    talk.configure(isolation_level="read_committed")
    talk.fill(2)
    _transactions(talk, None)
    talk.fill(2)
    member = talk.member().join()
    _read_all(member, 2)
    member.none()
    talk.position()


@_case
def _only_aborted_records(talk: ShareTalk) -> None:
    talk.configure(isolation_level="read_committed")
    _transactions(talk, False, False)
    talk.fill(1)
    _read_all(talk.member().join(), 1)
    talk.position()


def _read_all(member: ShareReader, records: int) -> None:
    """Fetch and accept until there were so many records. Their offsets are noted.

    Kafka lets members acquire control records, too, and its clients acknowledge them as gaps.
    """
    seen: list[int] = []
    errors = []
    while len(seen) < records:
        response = member.client.call(member.fetch_request())
        member.epoch += 1
        acks: list[Ack] = []
        for part in (part for topic in response.responses for part in topic.partitions):
            errors.append(part.error_code)
            held = _runs(part)
            acks += [(first, last, ACCEPT) for first, last in held]
            seen += [
                record.offset
                for data in read_batches(part.records or b"")
                if not data.is_control
                for record in data
                if any(first <= record.offset <= last for first, last in held)
            ]
        if acks:
            answer = member.ack(*acks, silent=True).responses[0].partitions[0]
            errors.append(answer.error_code)
    member.talk.heard.append(("read", (seen, set(errors))))
