"""ApiVersions: the APIs that this broker serves, and the cluster's features.

ApiVersions, v0 to v5 (KIP-35):

- v3 names the client's software (KIP-511), and returns features (KIP-584). Before v4, their ranges
  cannot begin at 0.
- v5 names the cluster and the node that the client expects (KIP-1242).

A request of a newer version gets the response of v0 with UNSUPPORTED_VERSION; ``Connection`` sends
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_wire import ApiVersionsRequest, ApiVersionsResponse, ErrorCode

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.metadata_records import features_of
from krammar.broker.session import UNKNOWN, Session

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


@dataclass(eq=False)
class ApiVersionsHandlers:
    """``ranges``: the lowest and the highest version of each served API."""

    ranges: Mapping[int, tuple[int, int]]
    config: BrokerConfig
    cluster: ClusterMetadata

    def api_versions(
        self, session: Session, request: ApiVersionsRequest, version: int
    ) -> ApiVersionsResponse:
        """Handle ApiVersions (KIP-35).

        Includes software names (KIP-511), features (KIP-584) and misrouted clients (KIP-1242).
        """
        if version >= 3 and not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        session.software = (
            request.client_software_name or UNKNOWN,
            request.client_software_version or UNKNOWN,
        )
        if (request.cluster_id is not None and request.cluster_id != self.cluster.cluster_id) or (
            request.node_id not in (-1, self.config.node_id)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        supported = features_of(self.config.kafka_version)[0]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.ranges.items()
            ],
            supported_features=[
                ApiVersionsResponse.SupportedFeatureKey(
                    name=name, min_version=low, max_version=high
                )
                for name, (low, high) in supported.items()
                # Before v4, clients cannot decode ranges that begin at 0.
                if version >= 4 or low > 0
            ],
            finalized_features_epoch=self.cluster.last_offset,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(
                    name=name, max_version_level=level, min_version_level=level
                )
                for name, level in self.cluster.features.items()
                if level > 0 and name in supported
            ],
        )
