"""Metrics of clients (KIP-714): the subscriptions to them, and the clients that push what these ask for.

A subscription is a resource with settings, as a topic is one. Each node knows the clients that it has seen.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from kafka_wire import ConfigResourceType, ErrorCode

from krammar.broker.config.definitions import CLIENT_METRICS_CONFIGS, ConfigError
from krammar.broker.errors import ApiError, invalid_request
from krammar.broker.patterns import whole_match
from krammar.logfiles.uuids import format_uuid
from krammar.util.extras import MissingExtra
from krammar.wire.batches import crc32c

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.session import Session

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
CLIENT_METRICS = ConfigResourceType.CLIENT_METRICS
# The name that stands for all metrics.
ALL = "*"
_LEAST_MS, _MOST_MS = 100, 3_600_000
# What patterns can name.
_PARAMETERS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
# Patterns that match only themselves. RE2, which matches all others, is not everywhere.
_PLAIN = re.compile(r"[\w@:/ -]*")


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which metrics some clients push, and how often.

    Attributes:
        match: by parameter, whether its value is that of such a client
    """

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Callable[[str], bool]]

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Subscription:
        """Read the settings of a resource. Raises ApiError in Kafka's words."""
        for name in settings:
            if name not in CLIENT_METRICS_CONFIGS:
                raise invalid_request(f"Unknown client metrics configuration: {name}")
        try:
            values = {
                name: each.parse(settings[name]) if name in settings else each.default
                for name, each in CLIENT_METRICS_CONFIGS.items()
            }
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, error.api) from None
        interval_ms = values[INTERVAL_MS]
        if not _LEAST_MS <= interval_ms <= _MOST_MS:
            raise invalid_request(
                f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between "
                f"{_LEAST_MS} and {_MOST_MS} (1 hour)"
            )
        return cls(tuple(values[METRICS]), interval_ms, dict(map(_pattern, values[MATCH])))

    def matches(self, client: Mapping[str, str | None]) -> bool:
        """Return whether a client pushes these metrics."""
        values = ((client[name], matches) for name, matches in self.match.items())
        return all(value is not None and matches(value) for value, matches in values)


def _pattern(text: str) -> tuple[str, Callable[[str], bool]]:
    """Return the parameter and the pattern of ``client_id=billing-.*``. Raises ApiError."""
    name, _, pattern = (each.strip() for each in text.partition("="))
    # As in Kafka, equals signs at the end are ignored.
    pattern = pattern.rstrip("=").rstrip()
    illegal = f"Illegal client matching pattern: {text}"
    if name not in _PARAMETERS or not pattern or "=" in pattern:
        raise ApiError(ErrorCode.INVALID_CONFIG, illegal)
    if _PLAIN.fullmatch(pattern):
        return name, pattern.__eq__
    try:
        return name, whole_match(pattern)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_CONFIG, illegal) from None
    except MissingExtra as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{illegal}: {error}") from None


@dataclass(slots=True, eq=False)
class Instance:
    """One run of a client, and what it pushes.

    Attributes:
        subscription_id: other metrics, or another interval, have another one
        version: of the subscriptions that this results from
        last_get_ms, last_push_ms: when requests were accepted, by the broker's clock
        seen_ms: the time of the last request
        terminating: whether the client has sent its last push
        last_error: of the last request
    """

    client: Mapping[str, str | None]
    metrics: list[str]
    interval_ms: int
    subscription_id: int
    version: int
    last_get_ms: int = 0
    last_push_ms: int = 0
    seen_ms: int = 0
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    # A client whose push was refused for one of them asks for its subscription at once.
    _ASKS_AGAIN: ClassVar = (
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    )

    def get(self, now_ms: int) -> None:
        """Note that the client asks for its subscription. Raises ApiError if it asks too soon."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.interval_ms:
            self.last_get_ms = now_ms
        elif self.last_error not in self._ASKS_AGAIN:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.last_error = ErrorCode.NONE

    def push(self, now_ms: int, subscription_id: int, is_last: bool) -> None:
        """Note that the client pushes. Raises ApiError if it must not push, or if it pushes too soon."""
        if self.terminating:
            raise invalid_request("the client has sent its last push before")
        is_due = (
            self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.interval_ms
        )
        if is_due:
            self.last_push_ms = now_ms
        elif not is_last:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != self.subscription_id:
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)


class Instances:
    """The clients that a node knows, until they close the connection on which they came.

    Attributes:
        most: how many clients a node knows; it forgets those without requests for longest
        forgotten_ms: how long it knows clients without requests, at least
    """

    most = 16_384
    forgotten_ms = 60_000

    def __init__(self) -> None:
        self._by_id: OrderedDict[UUID, Instance] = OrderedDict()
        # The client that came last on each open connection.
        self._by_session: dict[Session, UUID] = {}
        self._settings: dict[str, dict[str, str]] = {}
        self._subscriptions: list[Subscription] = []
        self._version = 0
        self._read_at = -2  # the offset of the metadata log

    def __contains__(self, instance_id: UUID) -> bool:
        return instance_id in self._by_id

    def get(
        self, instance_id: UUID, session: Session, cluster: ClusterMetadata, now_ms: int
    ) -> Instance:
        """Return a client with its current subscription, as a new one if the node does not know it."""
        self._read(cluster)
        known = self._by_id.get(instance_id)
        if known is not None:
            self._by_id.move_to_end(instance_id)
            if now_ms - known.seen_ms >= max(self.forgotten_ms, 3 * known.interval_ms):
                known = None
        if known is None or known.version < self._version:
            client = _describe(instance_id, session) if known is None else known.client
            known = self._by_id[instance_id] = self._new(instance_id, client)
            if session not in self._by_session:
                session.on_close.append(partial(self._forget, session))
            self._by_session[session] = instance_id
            if len(self._by_id) > self.most:
                self._by_id.popitem(last=False)
        known.seen_ms = now_ms
        return known

    def _forget(self, session: Session) -> None:
        self._by_id.pop(self._by_session.pop(session), None)

    def _read(self, cluster: ClusterMetadata) -> None:
        """Read the subscriptions, if the metadata have changed."""
        if self._read_at == cluster.last_offset:
            return
        self._read_at = cluster.last_offset
        settings = {
            name: dict(each)
            for (kind, name), each in cluster.configs.items()
            if kind == CLIENT_METRICS
        }
        if settings == self._settings:
            return
        self._settings = settings
        self._version += 1
        self._subscriptions = []
        for each in settings.values():
            try:
                self._subscriptions.append(Subscription.of(each))
            except ApiError:
                # Another version has written them: the start of the broker warns.
                continue

    def _new(self, instance_id: UUID, client: Mapping[str, str | None]) -> Instance:
        interval_ms = int(CLIENT_METRICS_CONFIGS[INTERVAL_MS].default)
        metrics: set[str] = set()
        for each in self._subscriptions:
            if each.matches(client):
                metrics.update(each.metrics)
                interval_ms = min(interval_ms, each.interval_ms)
        wanted = [ALL] if ALL in metrics else sorted(metrics)
        number = crc32c(f"{wanted}{interval_ms}".encode()) ^ (instance_id.int & 0xFFFFFFFF)
        signed = number - (1 << 32) if number & 0x80000000 else number
        return Instance(client, wanted, interval_ms, signed, self._version)


def _describe(instance_id: UUID, session: Session) -> dict[str, str | None]:
    """Return the values of the parameters of patterns."""
    return {
        "client_instance_id": format_uuid(instance_id),
        "client_id": session.client_id,
        "client_software_name": session.software[0],
        "client_software_version": session.software[1],
        "client_source_address": session.host,
        "client_source_port": str(session.port),
    }
