"""GetTelemetrySubscriptions and PushTelemetry: clients ask which metrics to push, and push them.

GetTelemetrySubscriptions, v0, and PushTelemetry, v0 (KIP-714).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import kafka_wire as kw

from krammar.broker.client_metrics import Instances
from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError, errors_in, invalid_request
from krammar.broker.meta_properties import random_uuid
from krammar.broker.session import Session
from krammar.broker.timers import Timers
from krammar.wire.batches import Compression
from krammar.wire.batches.compression import decompress
from krammar.wire.errors import DecodeError
from krammar.wire.primitives import NULL_UUID

# Clients use the first one that they have.
_CODECS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
# No client has these.
_RESERVED = frozenset({NULL_UUID, UUID(int=1)})

# Gets the client, its request, and the metrics without compression.
Receiver = Callable[[Session, kw.PushTelemetryRequest, bytes], None]


@dataclass(eq=False)
class TelemetryHandlers:
    """Answers about clients' metrics.

    Attributes:
        receivers: get every push; without one, pushes are accepted and dropped, as in Kafka
    """

    config: BrokerConfig
    timers: Timers
    cluster: ClusterMetadata
    instances: Instances = field(init=False, default_factory=Instances)
    receivers: list[Receiver] = field(init=False, default_factory=list)

    def get_telemetry_subscriptions(
        self, session: Session, request: kw.GetTelemetrySubscriptionsRequest, version: int
    ) -> kw.GetTelemetrySubscriptionsResponse:
        instance_id = request.client_instance_id
        if instance_id == NULL_UUID:
            instance_id = random_uuid()
        now = self.timers.now_ms()
        instance = self.instances.get(instance_id, session, self.cluster, now)
        response = kw.GetTelemetrySubscriptionsResponse()
        with errors_in(response):
            instance.get(now)
            response.client_instance_id = instance_id
            response.subscription_id = instance.subscription_id
            response.accepted_compression_types = list(_CODECS)
            response.push_interval_ms = instance.interval_ms
            response.telemetry_max_bytes = self.config.telemetry_max_bytes
            response.delta_temporality = True
            response.requested_metrics = instance.metrics
        return response

    def push_telemetry(
        self, session: Session, request: kw.PushTelemetryRequest, version: int
    ) -> kw.PushTelemetryResponse:
        response = kw.PushTelemetryResponse()
        with errors_in(response):
            if request.client_instance_id in _RESERVED:
                raise invalid_request("the client instance id is reserved")
            now = self.timers.now_ms()
            instance = self.instances.get(request.client_instance_id, session, self.cluster, now)
            instance.last_error = kw.ErrorCode.NONE
            try:
                instance.push(now, request.subscription_id, request.terminating)
                self._receive(session, request)
            except ApiError as error:
                instance.last_error = error.code
                raise
            finally:
                instance.terminating = request.terminating
        return response

    def _receive(self, session: Session, request: kw.PushTelemetryRequest) -> None:
        """Pass the metrics of a push on. Raises ApiError."""
        codec, data = request.compression_type, request.metrics
        if codec not in set(Compression):
            raise ApiError(kw.ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(data) > self.config.telemetry_max_bytes:
            raise ApiError(kw.ErrorCode.TELEMETRY_TOO_LARGE)
        if not data:
            return
        try:
            # As in Kafka, the limit is for the data without compression too.
            plain = decompress(data, codec, max_uncompressed=self.config.telemetry_max_bytes)
        except DecodeError:
            raise ApiError(kw.ErrorCode.INVALID_RECORD) from None
        for receive in self.receivers:
            receive(session, request, plain)
