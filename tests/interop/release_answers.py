"""What a broker of a release says about itself and its settings: names, defaults, and which values it accepts."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka_wire import (
    AlterConfigOp,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConfigResourceType,
    ConfigType,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from tests.broker.support import RawClient
from tests.interop.node_cases import at_version

# The releases that krammar can serve as, and the versions of Apache Kafka beside it.
RELEASES = {
    "2.8": "2.8.2",
    "3.9": "3.9.2",
    "4.0": "4.0.1",
    "4.1": "4.1.2",
    "4.2": "4.2.1",
    "4.3": "4.3.1",
}

TOPIC, BROKER, GROUP = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.GROUP,
)
# Values at the limits of settings, by type.
_NUMBERS = ("-2", "-1", "0", "1", "2", "13", "14", "100", "1023", "1024", "1048575", "1048576", "x")
_VALUES: dict[int, tuple[str, ...]] = {
    ConfigType.INT: _NUMBERS,
    ConfigType.LONG: _NUMBERS,
    ConfigType.SHORT: _NUMBERS,
    ConfigType.DOUBLE: ("-1", "0", "0.5", "1", "1.5", "x"),
    ConfigType.BOOLEAN: ("true", "TRUE", "", "x"),
    ConfigType.STRING: ("", "x", "producer", "zstd", "none", "uncompressed"),
    ConfigType.LIST: (
        "",
        "x",
        "compact",
        "delete",
        "compact,delete",
        "delete,delete",
        "delete,,",
        "none",
        "*",
        "0:1",
    ),
}


class NotOffered(Exception):
    """The release does not have an API."""


def api_versions(client: RawClient) -> ApiVersionsResponse:
    """Return the APIs and features of a broker."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response: ApiVersionsResponse = client.call(request, 3)
    assert response.error_code == 0
    return response


class ReleaseClient(RawClient):
    """A client that sends the nearest version that its broker offers."""

    def __init__(self, port: int, *args: Any, **options: Any) -> None:
        super().__init__(port, *args, **options)
        self._offered = {ApiVersionsRequest.api_key: (3, 3)}
        self._offered = {
            each.api_key: (each.min_version, each.max_version)
            for each in api_versions(self).api_keys
        }

    def send(self, request: Any, version: int | None = None, **options: Any) -> None:
        if request.api_key not in self._offered:
            raise NotOffered(type(request).__name__)
        low, high = self._offered[request.api_key]
        version = max(low, high if version is None else min(version, high))
        super().send(at_version(request, version), version, **options)


class Setting(NamedTuple):
    """What DescribeConfigs says about a setting."""

    value: str | None
    type: int
    source: int
    read_only: bool


def described(client: RawClient, kind: int, name: str) -> dict[str, Setting]:
    """Return the settings of a resource by name."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0, result.error_message
    return {
        each.name: Setting(each.value, each.config_type, each.config_source, each.read_only)
        for each in result.configs
    }


def accepted(
    client: RawClient, kind: int, name: str, settings: dict[str, Setting]
) -> dict[str, int]:
    """Return the error code of each value that a setting could be changed to, by ``name=value``."""
    return {
        f"{key}={value}": validated(client, kind, name, key, value)
        for key, setting in sorted(settings.items())
        if not setting.read_only
        for value in _VALUES.get(setting.type, ())
    }


def validated(client: RawClient, kind: int, name: str, key: str, value: str) -> int:
    """Return the error code of a change that is only validated."""
    request = IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=key, config_operation=AlterConfigOp.SET, value=value)
    resource = request.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    (result,) = client.call(request(resources=[resource], validate_only=True), 1).responses
    code: int = result.error_code
    return code
