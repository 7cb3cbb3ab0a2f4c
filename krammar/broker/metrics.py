"""A broker's metrics, counted from their first use on. ``metrics.csv`` lists them.

Names and units are those of Kafka's MBeans, as the Prometheus JMX exporter spells them. Offsets of
groups have the names of kafka_exporter, because Kafka's brokers do not export them. Other names
begin with ``krammar_``.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import kafka_wire
from kafka_wire import ErrorCode, FetchResponse, ProduceRequest

from krammar.broker.errors import ApiError
from krammar.faults.shape import Schema
from krammar.util.clock import perf_counter
from krammar.util.prometheus import Read, Registry, Values
from krammar.util.turns import Steps
from krammar.wire.batches.header import header_at
from krammar.wire.package import package_of

if TYPE_CHECKING:
    from krammar.broker.apis import Handler
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.connections import Connections
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.groups.host import AnyGroup
    from krammar.broker.log.log import PartitionLog
    from krammar.broker.log.manager import LogManager
    from krammar.broker.session import Session
    from krammar.broker.share.reads import ShareReads
    from krammar.broker.timers import Timers

# The seconds between two measurements of the event loop's delay.
_BEAT = 0.5
_ERRORS = {int(each): each.name for each in ErrorCode}
_REQUESTS = "kafka_network_requestmetrics"
_TOPICS = "kafka_server_brokertopicmetrics"
_SOCKET = "kafka_server_socket_server_metrics"


class Metrics:
    """The metrics of a broker, or of all nodes of a process.

    Attributes:
        all: the metrics in the order of the text
        names: the metrics by the names of their numbers
    """

    def __init__(
        self,
        timers: Timers,
        connections: Sequence[Connections],
        cluster: ClusterMetadata,
        logs: LogManager,
        groups: Sequence[GroupCoordinator],
        shared: ShareReads,
        call: Callable[..., float],
    ) -> None:
        self._timers = timers
        self._connections = list(connections)
        self._cluster = cluster
        self._logs = logs
        self._groups = list(groups)
        self._shared = shared
        self._call = call
        self._schema = Schema(package_of(kafka_wire))
        table = files(__package__).joinpath("metrics.csv")  # the package may be in an archive
        self._registry = found = Registry.of_table(table, self._reads())
        self.all, self.names = found.all, found.names
        self._requests = found.counter(f"{_REQUESTS}_requests_total")
        self._errors = found.counter(f"{_REQUESTS}_errors_total")
        self._times = found.histogram(f"{_REQUESTS}_totaltimems")
        self._records = found.counter(f"{_TOPICS}_messagesin_total")
        self._bytes_in = found.counter(f"{_TOPICS}_bytesin_total")
        self._bytes_out = found.counter(f"{_TOPICS}_bytesout_total")
        self._flushes = found.histogram("kafka_log_logflushstats_logflushrateandtimems")
        self._delays = found.histogram("krammar_event_loop_delay_ms")
        logs.environment.flushed = self._flushed
        cluster.log.flushed = self._flushed
        self._beat_later()

    def add_node(self, connections: Connections, groups: GroupCoordinator) -> None:
        """Include another node."""
        self._connections.append(connections)
        self._groups.append(groups)

    def _reads(self) -> dict[str, Read]:
        """Return the functions that read what other parts count."""
        own = self._connections
        return {
            f"{_SOCKET}_incoming_byte_total": lambda: sum(each.received for each in own),
            f"{_SOCKET}_outgoing_byte_total": lambda: sum(each.sent for each in own),
            f"{_SOCKET}_connection_creation_total": lambda: sum(each.accepted for each in own),
            f"{_SOCKET}_connection_count": lambda: Tally(
                (each.session.listener.name,) for node in own for each in node.open
            ),
            "kafka_log_log_size": self._of_logs(lambda log: log.size),
            "kafka_log_log_logstartoffset": self._of_logs(lambda log: log.log_start_offset),
            "kafka_log_log_logendoffset": self._of_logs(lambda log: log.end_offset),
            "kafka_log_log_numlogsegments": self._of_logs(lambda log: len(log.segments)),
            "kafka_server_replicamanager_partitioncount": lambda: len(self._logs),
            "kafka_server_replicamanager_offlinereplicacount": lambda: len(self._offline()),
            "kafka_log_logmanager_offlinelogdirectorycount": lambda: len(
                {log.path.parent for log in self._offline()}
            ),
            "kafka_controller_kafkacontroller_globaltopiccount": lambda: len(self._cluster.topics),
            "kafka_consumergroup_members": lambda: {
                (group.group_id,): len(group.members) for _, group in self._all_groups()
            },
            "krammar_consumergroup_state": lambda: {
                (group.group_id, group.state.value): 1 for _, group in self._all_groups()
            },
            "kafka_consumergroup_current_offset": lambda: {
                key: offset for key, offset, _ in self._offsets()
            },
            "kafka_consumergroup_lag": lambda: {
                key: max(0, end - offset) for key, offset, end in self._offsets()
            },
            **self._shared.reads(),
            "process_cpu_seconds_total": time.process_time,
        }

    # Reading.

    def value(self, name: str, **labels: object) -> float:
        """Return a number, or the sum of the numbers whose labels have these values; 0 if there are none.

        ```python
        assert broker.metrics.value("kafka_network_requestmetrics_requests_total", request="Fetch") > 0
        ```

        Raises:
            LookupError: no metric has this name, or the metric has no such label.
        """
        return self._call(self._registry.value, name, labels)

    def text(self) -> Steps[str]:
        """Write all numbers as Prometheus' text, in steps."""
        for series in (self._records, self._bytes_in, self._bytes_out):
            for values in [each for each in series if each[0] not in self._cluster.topics]:
                del series[values]
        return self._registry.text()

    def _offline(self) -> list[PartitionLog]:
        return [log for log in self._logs if log.offline]

    def _of_logs(self, read: Callable[[PartitionLog], float]) -> Read:
        return lambda: {(log.topic, str(log.partition)): read(log) for log in self._logs}

    def _all_groups(self) -> Iterator[tuple[GroupCoordinator, AnyGroup]]:
        for coordinator in self._groups:
            try:
                found = coordinator.all_groups()
            except ApiError:  # __consumer_offsets cannot be read, which requests of groups report
                continue
            for group in found:
                yield coordinator, group

    def _offsets(self) -> Iterator[tuple[Values, int, int]]:
        """Yield group, topic and partition, the committed offset, and the end of the log."""
        for coordinator, group in self._all_groups():
            for (topic, partition), committed in coordinator.offsets.of_group(
                group.group_id
            ).items():
                log = self._logs.get(topic, partition)
                if log is not None:
                    key = group.group_id, topic, str(partition)
                    yield key, committed.offset, log.end_offset

    # Counting.

    def _flushed(self, seconds: float) -> None:
        self._flushes.observe(seconds * 1000)

    def _beat(self, due: float) -> None:
        self._delays.observe(max(0.0, self._timers.loop.time() - due) * 1000)
        self._beat_later()

    def _beat_later(self) -> None:
        self._timers.call_later(_BEAT, self._beat, self._timers.loop.time() + _BEAT)

    def observe(self, handler: Handler) -> Handler:
        """Return a handler that answers like another one, and counts its requests."""

        def observed(session: Session, request: Any, version: int) -> Any:
            count = partial(self._count, request, version, perf_counter())
            with _failures(count):
                response = handler(session, request, version)
            return _counted(response, count)

        return observed

    def _count(
        self, request: Any, version: int, started: float, response: Any, *, ok: bool = True
    ) -> None:
        """Count a request. The response is None after a failure, and for Produce without acknowledgement."""
        api = self._schema.name(request.api_key)
        self._requests[api, str(version)] += 1
        self._times.observe((perf_counter() - started) * 1000, api)
        if not ok:
            self._errors[api, ErrorCode.UNKNOWN_SERVER_ERROR.name] += 1
            return
        if response is not None:
            codes = self._schema.error_codes(request.api_key, version, response)
            for code, number in Tally(codes).items():
                self._errors[api, _ERRORS.get(code, str(code))] += number
        if isinstance(request, ProduceRequest):
            for number, topic in enumerate(request.topic_data):
                for at, partition in enumerate(topic.partition_data):
                    done = response and response.responses[number].partition_responses[at]
                    records = partition.records
                    if records and not (done and done.error_code):
                        name = self._name(topic.name, topic.topic_id)
                        header = header_at(records, 0, 0)
                        self._records[name,] += header.records_count if header else 0
                        self._bytes_in[name,] += len(records)
        elif isinstance(response, FetchResponse):
            for answer in response.responses:
                size = sum(len(each.records or b"") for each in answer.partitions)
                if size:
                    self._bytes_out[self._name(answer.topic, answer.topic_id),] += size

    def _name(self, name: str, topic_id: UUID) -> str:
        found = self._cluster.topics_by_id.get(topic_id)
        return name or (found.name if found is not None else str(topic_id))


@contextmanager
def _failures(count: Callable[..., None]) -> Iterator[None]:
    """Count a request that fails."""
    try:
        yield
    except Exception:
        count(None, ok=False)
        raise


def _counted(response: Any, count: Callable[..., None]) -> Any:
    """Return a response, steps or an awaitable of one, which is counted as soon as it exists."""
    if inspect.isgenerator(response):
        return _steps(cast("Steps[Any]", response), count)
    if inspect.isawaitable(response):
        return _wait(response, count)
    count(response)
    return response


def _steps(steps: Steps[Any], count: Callable[..., None]) -> Steps[Any]:
    with _failures(count):
        response = yield from steps
    return _counted(response, count)


async def _wait(response: Awaitable[Any], count: Callable[..., None]) -> Any:
    with _failures(count):
        answer = await response
    return _counted(answer, count)
