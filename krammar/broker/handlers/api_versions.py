"""ApiVersions: what this broker serves, and the features that are switched on in the cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
    ErrorCode,
)

from krammar.broker.apis import RANGES
from krammar.broker.cluster import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.session import Session

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


def api_versions(
    broker: Broker, session: Session, request: ApiVersionsRequest, version: int
) -> ApiVersionsResponse:
    """KIP-35; software names as KIP-511 wants them, features of KIP-584, misrouted clients of KIP-1242."""
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if (request.cluster_id is not None and request.cluster_id != broker.cluster.cluster_id) or (
        request.node_id not in (-1, broker.config.node_id)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponseApiKey(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in RANGES.items()
        ],
        supported_features=[
            ApiVersionsResponseSupportedFeature(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            # Clients before v4 cannot read a range that begins at 0.
            if version >= 4 or low > 0
        ],
        finalized_features_epoch=broker.cluster.last_offset,
        finalized_features=[
            ApiVersionsResponseFinalizedFeature(
                name=name, max_version_level=level, min_version_level=level
            )
            for name, level in broker.cluster.features.items()
            if level > 0 and name != "kraft.version"
        ],
    )
