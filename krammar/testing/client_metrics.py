"""What clients have pushed of their metrics (KIP-714), as plain Python.

A push is OpenTelemetry's ``MetricsData`` in protobuf. The clients of Kafka send gauges and sums.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from uuid import UUID


@dataclass(frozen=True, slots=True)
class ClientMetric:
    """The value of one metric of a client.

    Attributes:
        name: such as ``org.apache.kafka.producer.connection.creation.total``
        kind: ``gauge`` or ``sum``; sums of clients are increases since the last push
        labels: such as ``{"topic": "orders"}``
        time_ns: when the client has measured it, in nanoseconds since 1970
    """

    name: str
    kind: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)
    time_ns: int = 0


@dataclass(frozen=True, slots=True)
class ClientMetricsPush:
    """A push of a client.

    Attributes:
        client_instance_id: of this run of the client
        software_name, software_version: from the client's ApiVersions request, or ``unknown``
        time_ms: when the broker got it, in milliseconds since 1970
        is_last: whether the client pushed it when it closed
        data: ``MetricsData`` in protobuf, without compression
    """

    client_id: str | None
    client_instance_id: UUID
    software_name: str
    software_version: str
    time_ms: int
    is_last: bool
    data: bytes

    @property
    def metrics(self) -> list[ClientMetric]:
        """The gauges and sums of the push. Raises ValueError if it is no valid ``MetricsData``."""
        try:
            return [
                metric
                for resource in _messages(memoryview(self.data), 1)
                for scope in _messages(resource, 2)
                for each in _messages(scope, 2)
                for metric in _metrics(each)
            ]
        except UnicodeDecodeError:
            raise ValueError("the push is no MetricsData: a name is not UTF-8") from None

    @property
    def labels(self) -> dict[str, str]:
        """What the client says about all its metrics, such as its group. Raises ValueError as ``metrics``."""
        resources = _messages(memoryview(self.data), 1)
        return {
            key: value
            for resource in resources
            for attributes in _messages(resource, 1)
            for key, value in _labels(attributes, 1)
        }


class Pushes:
    """The last pushes of clients, as many as fit into ``most_bytes``."""

    most_bytes = 16 << 20

    def __init__(self) -> None:
        self._pushes: deque[ClientMetricsPush] = deque()
        self._bytes = 0

    def add(self, push: ClientMetricsPush) -> None:
        self._pushes.append(push)
        self._bytes += len(push.data)
        while self._bytes > self.most_bytes:
            self._bytes -= len(self._pushes.popleft().data)

    def all(self) -> list[ClientMetricsPush]:
        """Return them, the oldest first."""
        return list(self._pushes)


# Protobuf.

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _INT64, _UINT64 = Struct("<d"), Struct("<q"), Struct("<Q")
# The field of a metric with its data points, and the name of its kind.
_KINDS = {5: "gauge", 7: "sum"}


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError(f"the push is no MetricsData: a number is cut off at byte {at}")


def _fields(data: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """Yield the fields of a message: its number, its form, and its value as a number or as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, form = tag >> 3, tag & 7
        value, size = 0, 0
        if form == _VARINT:
            value, at = _varint(data, at)
        elif form == _BYTES:
            size, at = _varint(data, at)
        elif form in (_FIXED64, _FIXED32):
            size = 8 if form == _FIXED64 else 4
        else:
            raise ValueError(f"the push is no MetricsData: field {number} has the form {form}")
        if at + size > len(data):
            raise ValueError(f"the push is no MetricsData: field {number} is cut off")
        yield number, form, value, data[at : at + size]
        at += size


def _messages(data: memoryview, number: int) -> Iterator[memoryview]:
    """Yield the messages in a field."""
    for found, form, _, value in _fields(data):
        if found == number and form == _BYTES:
            yield value


def _metrics(data: memoryview) -> Iterator[ClientMetric]:
    """Yield a metric for each data point of a message ``Metric``."""
    name = "".join(str(each, "utf-8") for each in _messages(data, 1))
    for number, form, _, points in _fields(data):
        if form != _BYTES or number not in _KINDS:
            continue
        for point in _messages(points, 1):
            value, time_ns = 0.0, 0
            for found, wire, _, content in _fields(point):
                if wire != _FIXED64:
                    continue
                if found == 3:
                    (time_ns,) = _UINT64.unpack(content)
                elif found == 4:
                    (value,) = _DOUBLE.unpack(content)
                elif found == 6:
                    (value,) = _INT64.unpack(content)
            yield ClientMetric(name, _KINDS[number], value, dict(_labels(point, 7)), time_ns)


def _labels(data: memoryview, number: int) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the attributes in a field. All values are text."""
    for attribute in _messages(data, number):
        key = "".join(str(each, "utf-8") for each in _messages(attribute, 1))
        for value in _messages(attribute, 2):
            for found, form, whole, content in _fields(value):
                yield key, _text(found, form, whole, content)


def _text(number: int, form: int, whole: int, content: memoryview) -> str:
    """Return an attribute's value: text, a boolean, an integer or a double."""
    if form == _VARINT:
        if number == 2:
            return "true" if whole else "false"
        return str(whole - (1 << 64) if whole >> 63 else whole)
    if form == _FIXED64:
        return str(_DOUBLE.unpack(content)[0])
    return str(content, "utf-8", "replace")
