"""A broker's metrics, counted from their first use on, and read as Prometheus' text or in Python.

Names and units are those of Kafka's MBeans, as the Prometheus JMX exporter spells them. Offsets of groups have the
names of kafka_exporter, because Kafka's brokers do not export them. Other names begin with ``krammar_``.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import kafka_wire
from kafka_wire import ErrorCode, FetchResponse, ProduceRequest

from krammar.broker.errors import ApiError
from krammar.broker.slices import Steps
from krammar.faults.shape import Place, Schema, error_places
from krammar.util import prometheus
from krammar.util.prometheus import Counter, Histogram, Reading, Values
from krammar.wire.batches.header import header_at
from krammar.wire.package import package_of

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.connections import Connections
    from krammar.broker.dispatch import Handler
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.groups.group import Group
    from krammar.broker.log.log import PartitionLog
    from krammar.broker.log.manager import LogManager
    from krammar.broker.session import Session
    from krammar.broker.timers import Timers

_MILLISECONDS = (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
# The seconds between two measurements of the event loop's delay.
_BEAT = 0.5
_ERRORS = {int(each): each.name for each in ErrorCode}
_Read = Callable[[], float | Mapping[Values, float]]


class Metrics:
    """The metrics of one broker.

    ``all``    the metrics in the order of the text
    ``names``  the metrics by the names of their numbers
    """

    def __init__(
        self,
        timers: Timers,
        connections: Connections,
        cluster: ClusterMetadata,
        logs: LogManager,
        groups: GroupCoordinator,
        call: Callable[[Callable[[], float]], float],
    ) -> None:
        self._timers = timers
        self._connections = connections
        self._cluster = cluster
        self._logs = logs
        self._groups = groups
        self._call = call
        self._schema = Schema(package_of(kafka_wire))
        self._places: dict[tuple[int, int], list[Place]] = {}
        network, broker = "kafka_network_requestmetrics", "kafka_server_brokertopicmetrics"
        self._requests = Counter(f"{network}_requests_total", "requests", "request", "version")
        self._errors = Counter(
            f"{network}_errors_total",
            "error codes in responses, NONE included, one per place",
            "request",
            "error",
        )
        self._times = Histogram(
            f"{network}_totaltimems",
            "milliseconds from the decoded request to the response, waits included",
            "request",
            bounds=_MILLISECONDS,
        )
        self._messages = Counter(f"{broker}_messagesin_total", "appended records", "topic")
        self._bytes_in = Counter(
            f"{broker}_bytesin_total", "bytes of appended record batches", "topic"
        )
        self._bytes_out = Counter(
            f"{broker}_bytesout_total", "bytes of record batches in Fetch responses", "topic"
        )
        self._flushes = Histogram(
            "kafka_log_logflushstats_logflushrateandtimems",
            "milliseconds of each flush of a log to the disk, the metadata log included",
            bounds=_MILLISECONDS,
        )
        self._delays = Histogram(
            "krammar_event_loop_delay_seconds",
            "how late the event loop runs a timer that is due twice per second",
            bounds=_SECONDS,
        )
        self.all: list[prometheus.Metric] = [
            self._requests,
            self._errors,
            self._times,
            self._messages,
            self._bytes_in,
            self._bytes_out,
            self._flushes,
            self._delays,
            *(Reading(*row) for row in self._readings()),
        ]
        self.names = {name: each for each in self.all for name in each.names}
        logs.environment.flushed = self._flushed
        cluster.flushed_by(self._flushed)
        self._beat_later()

    def _readings(self) -> list[tuple[str, str, str, Values, _Read]]:
        """Return what other parts count: kind, name, meaning, labels, and the function that reads it."""
        own, cluster, logs = self._connections, self._cluster, self._logs
        socket, log = "kafka_server_socket_server_metrics", "kafka_log_log"
        group, where = ("consumergroup",), ("topic", "partition")
        counter, gauge = "counter", "gauge"
        return [
            (counter, f"{socket}_incoming_byte_total", "bytes received", (), lambda: own.received),
            (counter, f"{socket}_outgoing_byte_total", "bytes of responses", (), lambda: own.sent),
            (
                counter,
                f"{socket}_connection_creation_total",
                "connections",
                (),
                lambda: own.accepted,
            ),
            (gauge, f"{socket}_connection_count", "open connections", ("listener",), self._open),
            (
                gauge,
                f"{log}_size",
                "bytes of a partition",
                where,
                self._of_logs(lambda log: log.size),
            ),
            (
                gauge,
                f"{log}_logstartoffset",
                "first offset",
                where,
                self._of_logs(lambda log: log.log_start_offset),
            ),
            (
                gauge,
                f"{log}_logendoffset",
                "next offset",
                where,
                self._of_logs(lambda log: log.end_offset),
            ),
            (
                gauge,
                f"{log}_numlogsegments",
                "segments",
                where,
                self._of_logs(lambda log: len(log.segments)),
            ),
            (
                gauge,
                "kafka_server_replicamanager_partitioncount",
                "partitions on this broker",
                (),
                lambda: len(logs),
            ),
            (
                gauge,
                "kafka_controller_kafkacontroller_globaltopiccount",
                "topics",
                (),
                lambda: len(cluster.topics),
            ),
            (gauge, "kafka_consumergroup_members", "members of a group", group, self._members),
            (
                gauge,
                "krammar_consumergroup_state",
                "1 for the current state of a group",
                (*group, "state"),
                self._states,
            ),
            (
                gauge,
                "kafka_consumergroup_current_offset",
                "committed offset",
                (*group, *where),
                lambda: {key: offset for key, offset, _ in self._offsets()},
            ),
            (
                gauge,
                "kafka_consumergroup_lag",
                "records after the committed offset",
                (*group, *where),
                lambda: {key: max(0, end - offset) for key, offset, end in self._offsets()},
            ),
            (
                counter,
                "process_cpu_seconds_total",
                "processor time of the process",
                (),
                time.process_time,
            ),
        ]

    # Reading.

    def value(self, name: str, **labels: object) -> float:
        """Return a number, or the sum of the numbers whose labels have these values; 0 if there are none.

        ```python
        assert broker.metrics.value("kafka_network_requestmetrics_requests_total", request="Fetch") > 0
        ```

        Raises:
            LookupError: no metric has this name, or the metric has no such label.
        """
        metric = self.names.get(name)
        if metric is None:
            from difflib import get_close_matches

            near = get_close_matches(name, self.names, 1)
            raise LookupError(f"no metric {name}" + "".join(f"; did you mean {it}?" for it in near))
        allowed = (*metric.labels, "le") if name.endswith("_bucket") else metric.labels
        for label in labels:
            if label not in allowed:
                known = ", ".join(allowed) or "none"
                raise LookupError(f"{name} has no label {label}; its labels: {known}")
        wanted = {label: str(value) for label, value in labels.items()}.items()

        def read() -> float:
            found = (each for each in metric.samples() if each.name == name)
            return sum(each.value for each in found if wanted <= each.labels.items())

        return self._call(read)

    def text(self) -> Steps[str]:
        """Write all numbers as Prometheus' text, in steps."""
        for counter in (self._messages, self._bytes_in, self._bytes_out):
            for values in [each for each in counter.series if each[0] not in self._cluster.topics]:
                del counter.series[values]
        return prometheus.text(self.all)

    def _open(self) -> dict[Values, float]:
        return dict(Tally((each.session.listener.name,) for each in self._connections.open))

    def _of_logs(self, read: Callable[[PartitionLog], float]) -> Callable[[], dict[Values, float]]:
        return lambda: {(log.topic, str(log.partition)): read(log) for log in self._logs}

    def _members(self) -> dict[Values, float]:
        return {(each.group_id,): len(each.members) for each in self._all_groups()}

    def _states(self) -> dict[Values, float]:
        return {(each.group_id, each.state.value): 1 for each in self._all_groups()}

    def _all_groups(self) -> list[Group]:
        try:
            return self._groups.all_groups()
        except ApiError:  # __consumer_offsets cannot be read, which requests of groups report
            return []

    def _offsets(self) -> Iterator[tuple[Values, int, int]]:
        """Yield group, topic and partition, the committed offset, and the end of the log."""
        for group in self._all_groups():
            for (topic, partition), committed in self._groups.offsets_of(group.group_id).items():
                log = self._logs.get(topic, partition)
                if log is not None:
                    key = group.group_id, topic, str(partition)
                    yield key, committed.offset, log.end_offset

    # Counting.

    def _flushed(self, seconds: float) -> None:
        self._flushes.observe(seconds * 1000)

    def _beat(self, due: float) -> None:
        self._delays.observe(max(0.0, self._timers.loop.time() - due))
        self._beat_later()

    def _beat_later(self) -> None:
        self._timers.call_later(_BEAT, self._beat, self._timers.loop.time() + _BEAT)

    def observe(self, handler: Handler) -> Handler:
        """Return a handler that answers like another one, and counts its requests."""

        def observed(session: Session, request: Any, version: int) -> Any:
            call = _Call(self, request, version)
            with call:
                response = handler(session, request, version)
            return call.follow(response)

        return observed

    def count(self, request: Any, version: int, seconds: float, codes: Mapping[str, int]) -> None:
        """Count a request that was answered with these error codes."""
        api = _api(request)
        self._requests.series[api, str(version)] += 1
        self._times.observe(seconds * 1000, api)
        for code, count in codes.items():
            self._errors.series[api, code] += count

    def codes(self, request: Any, version: int, response: Any) -> Mapping[str, int]:
        """Return how often a response contains each error code."""
        places = self._places.get((request.api_key, version))
        if places is None:
            shape = self._schema.response(request.api_key, version)
            places = [] if shape is None else error_places(shape)
            self._places[request.api_key, version] = places
        found: Tally[int] = Tally()
        for place in places:
            structs = [response]
            for branch in place.branches:
                inner = [getattr(each, branch.name) for each in structs]
                structs = (
                    [one for many in inner for one in many or ()] if branch.is_array else inner
                )
            found.update(getattr(each, place.attribute) for each in structs)
        return {_ERRORS.get(code, str(code)): count for code, count in found.items()}

    def count_records(self, request: Any, response: Any) -> None:
        """Count the records of Produce and Fetch."""
        if isinstance(request, ProduceRequest):
            for number, topic in enumerate(request.topic_data):
                name = self._name(topic.name, topic.topic_id)
                for at, partition in enumerate(topic.partition_data):
                    records = partition.records
                    done = response and response.responses[number].partition_responses[at]
                    if name is None or not records or (done and done.error_code):
                        continue
                    header = header_at(records, 0, 0)
                    self._messages.series[name,] += header.records_count if header else 0
                    self._bytes_in.series[name,] += len(records)
        elif isinstance(response, FetchResponse):
            for answer in response.responses:
                size = sum(len(each.records or b"") for each in answer.partitions)
                name = self._name(answer.topic, answer.topic_id)
                if size and name is not None:
                    self._bytes_out.series[name,] += size

    def _name(self, name: str, topic_id: UUID) -> str | None:
        topic = self._cluster.topics_by_id.get(topic_id)
        return name or (None if topic is None else topic.name)


class _Call:
    """One request on its way through a handler: at once, in steps, or after a wait."""

    def __init__(self, metrics: Metrics, request: Any, version: int) -> None:
        self._metrics = metrics
        self._request = request
        self._version = version
        self._started = time.perf_counter()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            code = ErrorCode.UNKNOWN_SERVER_ERROR.name
            self._metrics.count(self._request, self._version, self._seconds, {code: 1})

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._started

    def follow(self, response: Any) -> Any:
        """Count a response as soon as it exists, and return it."""
        if inspect.isgenerator(response):
            return self._steps(cast("Steps[Any]", response))
        if inspect.isawaitable(response):
            return self._wait(response)
        metrics = self._metrics
        codes = {} if response is None else metrics.codes(self._request, self._version, response)
        metrics.count(self._request, self._version, self._seconds, codes)
        metrics.count_records(self._request, response)
        return response

    def _steps(self, steps: Steps[Any]) -> Steps[Any]:
        with self:
            response = yield from steps
        return self.follow(response)

    async def _wait(self, response: Awaitable[Any]) -> Any:
        with self:
            answer = await response
        return self.follow(answer)


def _api(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")
