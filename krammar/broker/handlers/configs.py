"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafka_wire import (
    AlterConfigOp,
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResponse,
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseResultConfig,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsRequestResourceConfig,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseConfigResource,
)

from krammar.broker.config import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigError,
)
from krammar.broker.config.definitions import LIST
from krammar.broker.config.describe import (
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
)
from krammar.broker.errors import ApiError
from krammar.broker.slices import Steps
from krammar.broker.topic_names import check_topic_name

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.session import Session
    from krammar.broker.topics import Topics

TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER
BROKER_LOGGER = ConfigResourceType.BROKER_LOGGER
CLIENT_METRICS = ConfigResourceType.CLIENT_METRICS
GROUP = ConfigResourceType.GROUP
LISTABLE = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)

_INTEGER = re.compile(r"[+-]?[0-9]+")
# Messages contain names and values of requests, which may exceed the length of strings in responses.
LONGEST_MESSAGE = 2000

# The maximum number of settings in a response: each takes some kilobytes with documentation and synonyms.
MAX_SETTINGS = 50_000

# New values by key; None removes a setting.
Changes = dict[str, str | None]


class ConfigHandlers:
    """Handles DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

    def __init__(self, config: BrokerConfig, cluster: ClusterMetadata, topics: Topics) -> None:
        self._config = config
        self._cluster = cluster
        self._topics = topics

    def describe_configs(
        self, session: Session, request: DescribeConfigsRequest, version: int
    ) -> Steps[DescribeConfigsResponse]:
        repeated = _repeated(request.resources)
        results = []
        left = MAX_SETTINGS
        for resource in request.resources:
            results.append(self._describe(request, resource, repeated, left))
            left -= len(results[-1].configs)
            yield None
        return DescribeConfigsResponse(results=results)

    def alter_configs(
        self, session: Session, request: AlterConfigsRequest, version: int
    ) -> Steps[AlterConfigsResponse]:
        """Replace all settings of each resource; settings that the request omits return to their defaults."""
        results = yield from self._alter(request, _replaced)
        return AlterConfigsResponse(
            responses=[AlterConfigsResponseResponse(**each) for each in results]
        )

    def incremental_alter_configs(
        self, session: Session, request: IncrementalAlterConfigsRequest, version: int
    ) -> Steps[IncrementalAlterConfigsResponse]:
        """Change only the settings that the request names (KIP-339)."""
        results = yield from self._alter(request, _incremental)
        return IncrementalAlterConfigsResponse(
            responses=[IncrementalAlterConfigsResponseResponse(**each) for each in results]
        )

    def _alter(
        self,
        request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
        read_changes: Callable[[Any, Mapping[str, str]], Changes],
    ) -> Steps[list[dict[str, Any]]]:
        """Change each resource, in steps. Returns the fields of the responses."""
        repeated = _repeated(request.resources)
        results = []
        for resource in request.resources:
            result: dict[str, Any] = {
                "error_message": None,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
            try:
                _check_once(resource, repeated)
                _check_keys(resource.configs)
                current = self._current(resource)
                self._change(
                    resource, current, read_changes(resource, current), request.validate_only
                )
            except ApiError as error:
                result["error_code"] = error.code
                result["error_message"] = _shortened(error.message)
            results.append(result)
            yield None
        return results

    def list_config_resources(
        self, session: Session, request: ListConfigResourcesRequest, version: int
    ) -> ListConfigResourcesResponse:
        """List resources with settings. Version 0 asks for client metrics, which this broker does not have."""
        wanted: Sequence[int] = request.resource_types or LISTABLE
        if version == 0:
            wanted = (CLIENT_METRICS,)
        if any(kind not in LISTABLE for kind in wanted):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        names: dict[int, Iterable[str]] = {
            TOPIC: sorted(self._cluster.topics),
            BROKER: [str(self._config.node_id)],
            BROKER_LOGGER: [str(self._config.node_id)],
            GROUP: sorted(name for kind, name in self._cluster.configs if kind == GROUP),
        }
        return ListConfigResourcesResponse(
            config_resources=[
                ListConfigResourcesResponseConfigResource(resource_name=name, resource_type=kind)
                for kind in LISTABLE
                if kind in wanted
                for name in names.get(kind, ())
            ]
        )

    def _describe(
        self,
        request: DescribeConfigsRequest,
        resource: DescribeConfigsRequestResource,
        repeated: set[tuple[int, str]],
        left: int,
    ) -> DescribeConfigsResponseResult:
        """Describe one resource; the response may have ``left`` more settings."""
        result = DescribeConfigsResponseResult(
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            _check_once(resource, repeated)
            found = self._descriptions(resource)
            if len(found) > left:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"The response would have more than {MAX_SETTINGS} settings: request fewer "
                    "resources at once, or name the settings that you need.",
                )
        except ApiError as error:
            result.error_code, result.error_message = error.code, _shortened(error.message)
            return result
        result.configs = [
            _entry(each, request.include_synonyms, request.include_documentation) for each in found
        ]
        return result

    def _descriptions(
        self, resource: DescribeConfigsRequestResource
    ) -> list[DescribeConfigsResponseResultConfig]:
        kind, name = resource.resource_type, resource.resource_name
        names = resource.configuration_keys or None
        if kind == TOPIC:
            check_topic_name(name)
            if name not in self._cluster.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            overrides = self._cluster.configs.get((TOPIC, name), {})
            return describe_topic(self._config, overrides, names)
        if kind == BROKER:
            if not name:
                return describe_all_brokers(self._config, names)
            self._check_node(name, "Broker", " or empty string,")
            return describe_broker(self._config, names)
        if kind == BROKER_LOGGER:
            if not name:
                raise _invalid("Broker id must not be empty")
            self._check_node(name, "Broker", "")
            raise _invalid("This broker has no loggers that can be described")
        if kind == CLIENT_METRICS and not name:
            raise _invalid("Client metrics subscription name must not be empty")
        if kind == GROUP:
            if not name:
                raise _invalid("Group name must not be empty")
            return describe_group(self._config, self._cluster.configs.get((GROUP, name), {}), names)
        _check_served(kind)
        raise _invalid(f"Unexpected resource type {kind} for resource {name}")

    def _current(self, resource: _Resource) -> Mapping[str, str]:
        """Return the current settings of a resource. Raises ApiError if they cannot be changed."""
        kind, name = resource.resource_type, resource.resource_name
        if kind == BROKER and name:
            self._check_node(name, "Node")
        elif kind == BROKER_LOGGER:
            raise _invalid("This broker has no loggers that can be altered")
        elif kind not in (TOPIC, BROKER, GROUP):
            _check_served(kind)
            raise _invalid(f"Unknown resource type {kind}")
        return self._cluster.configs.get((kind, name), {})

    def _change(
        self,
        resource: _Resource,
        current: Mapping[str, str],
        changes: Changes,
        validate_only: bool,
    ) -> None:
        """Check changes, and apply them unless ``validate_only``. Raises ApiError."""
        result = {**current, **changes}
        values = {name: value for name, value in result.items() if value is not None}
        # Only differences are written to the metadata log.
        changes = {name: value for name, value in changes.items() if current.get(name) != value}
        if resource.resource_type == TOPIC:
            self._check_topic(resource.resource_name, values)
            if changes and not validate_only:
                self._topics.set_configs(self._cluster.topics[resource.resource_name], changes)
            return
        if resource.resource_type == GROUP:
            self._check_group(resource.resource_name, values)
            if changes and not validate_only:
                self._cluster.set_configs(GROUP, resource.resource_name, changes)
            return
        new = {name: value for name, value in changes.items() if value is not None}
        try:
            self._config.check_dynamic(new, own=bool(resource.resource_name))
        except ConfigError as error:
            # Kafka reports invalid broker settings as invalid requests (KAFKA-13609).
            raise _invalid(error.api) from None
        if changes and not validate_only:
            self._topics.set_broker_configs(resource.resource_name, changes)

    def _check_topic(self, name: str, values: Mapping[str, str]) -> None:
        if not name:
            raise _invalid("Default topic resources are not allowed.")
        check_topic_name(name)
        try:
            self._config.check_topic_config(values)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, error.api) from None
        if name not in self._cluster.topics:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )

    def _check_group(self, name: str, values: Mapping[str, str]) -> None:
        if not name:
            raise _invalid("Default group resources are not allowed.")
        try:
            self._config.check_group_config(values)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, error.api) from None

    def _check_node(self, name: str, kind: str, otherwise: str = ",") -> None:
        if not _INTEGER.fullmatch(name):
            raise _invalid(f"{kind} id must be an integer, but it is: {name}")
        expected = str(self._config.node_id)
        if name != expected:
            raise _invalid(
                f"Unexpected broker id, expected {expected}{otherwise} but received {name}"
            )


def _entry(
    found: DescribeConfigsResponseResultConfig, synonyms: bool, documentation: bool
) -> DescribeConfigsResponseResultConfig:
    """Remove what the client did not ask for."""
    if not synonyms:
        found.synonyms = []
    if not documentation:
        found.documentation = None
    return found


class _Resource(Protocol):
    resource_type: int
    resource_name: str


class _Config(Protocol):
    name: str
    value: str | None


def _repeated(resources: Iterable[_Resource]) -> set[tuple[int, str]]:
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    return {key for key, count in counts.items() if count > 1}


def _check_once(resource: _Resource, repeated: set[tuple[int, str]]) -> None:
    if (resource.resource_type, resource.resource_name) in repeated:
        raise _invalid("Each resource must appear at most once.")


def _check_keys(configs: Sequence[_Config]) -> None:
    if len({config.name for config in configs}) != len(configs):
        raise _invalid("Error due to duplicate config keys")
    nulls = [
        config.name
        for config in configs
        if config.value is None
        and getattr(config, "config_operation", AlterConfigOp.SET) != AlterConfigOp.DELETE
    ]
    if nulls:
        raise _invalid(f"Null value not supported for : {', '.join(nulls)}")


def _replaced(resource: AlterConfigsRequestResource, current: Mapping[str, str]) -> Changes:
    changes: Changes = dict.fromkeys(current)
    return changes | {config.name: config.value for config in resource.configs}


def _incremental(
    resource: IncrementalAlterConfigsRequestResource, current: Mapping[str, str]
) -> Changes:
    tables: dict[int, dict[str, ConfigDef]] = {TOPIC: TOPIC_CONFIGS, GROUP: GROUP_CONFIGS}
    definitions = tables.get(resource.resource_type, BROKER_CONFIGS)
    changes: Changes = {}
    for config in resource.configs:
        if config.config_operation == AlterConfigOp.SET:
            changes[config.name] = config.value
        elif config.config_operation == AlterConfigOp.DELETE:
            changes[config.name] = None
        elif config.config_operation in (AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
            definition = definitions.get(config.name)
            changes[config.name] = _listed(resource, config, definition, current)
        else:
            raise _invalid(f"Unknown operations type {config.config_operation}")
    return changes


def _listed(
    resource: IncrementalAlterConfigsRequestResource,
    config: IncrementalAlterConfigsRequestResourceConfig,
    definition: ConfigDef | None,
    current: Mapping[str, str],
) -> str:
    """Append values to a list or remove them; the list is the default if the resource has no value."""
    operation = AlterConfigOp(config.config_operation)
    if definition is None and resource.resource_type == BROKER:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {config.name}")
    if definition is None or definition.type is not LIST:
        if resource.resource_type == BROKER:
            verb = operation.name.lower()
            message = f"Config value {verb} is not allowed for config key: {config.name}"
        else:
            message = f"Can't {operation.name} to key {config.name} because its type is not LIST."
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    text = current.get(config.name, definition.default or "")
    values = dict.fromkeys(value for value in text.split(",") if value)
    for value in (config.value or "").split(","):
        if operation is AlterConfigOp.APPEND:
            values[value] = None
        else:
            values.pop(value, None)
    return ",".join(values)


def _check_served(kind: int) -> None:
    """Raise ApiError for resources whose settings would have no effect."""
    if kind == CLIENT_METRICS:
        raise _invalid("Client metrics (KIP-714) are not served by this broker")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _shortened(message: str | None) -> str | None:
    return None if message is None else message[:LONGEST_MESSAGE]
