"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafka_wire import (
    AlterConfigOp,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseResponse,
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseResultConfig,
    DescribeConfigsResponseResultConfigSynonym,
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

from krammar.broker.config import BROKER_CONFIGS, TOPIC_CONFIGS, ConfigDef, ConfigError
from krammar.broker.config.definitions import LIST
from krammar.broker.config.describe import (
    Description,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from krammar.broker.errors import ApiError
from krammar.broker.topic_names import check_topic_name

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.session import Session

TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER
BROKER_LOGGER = ConfigResourceType.BROKER_LOGGER
CLIENT_METRICS = ConfigResourceType.CLIENT_METRICS
GROUP = ConfigResourceType.GROUP
LISTABLE = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)

_INTEGER = re.compile(r"[+-]?[0-9]+")
# Messages hold names and values of requests, which may be longer than a string of a response can be.
LONGEST_MESSAGE = 2000

# New values of keys; None takes one away.
Changes = dict[str, str | None]


def describe_configs(
    broker: Broker, session: Session, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(broker, request, resource) for resource in request.resources]
    )


def alter_configs(
    broker: Broker, session: Session, request: AlterConfigsRequest, version: int
) -> AlterConfigsResponse:
    """Each resource's settings become those of the request: the others go back to their defaults."""
    repeated = _repeated(request.resources)
    responses = []
    for resource in request.resources:
        error = ApiError(ErrorCode.NONE)
        try:
            _check_once(resource, repeated)
            names = [config.name for config in resource.configs]
            _check_keys(names, [each.name for each in resource.configs if each.value is None])
            current = _current(broker, resource)
            changes: Changes = {name: None for name in current if name not in names}
            changes |= {config.name: config.value for config in resource.configs}
            _change(broker, resource, current, changes, request.validate_only)
        except ApiError as refusal:
            error = refusal
        responses.append(
            AlterConfigsResponseResponse(
                error_code=error.code,
                error_message=_shortened(error.message),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


def incremental_alter_configs(
    broker: Broker, session: Session, request: IncrementalAlterConfigsRequest, version: int
) -> IncrementalAlterConfigsResponse:
    """Each resource's named settings change, the others stay (KIP-339)."""
    repeated = _repeated(request.resources)
    responses = []
    for resource in request.resources:
        error = ApiError(ErrorCode.NONE)
        try:
            _check_once(resource, repeated)
            _check_keys(
                [config.name for config in resource.configs],
                [
                    config.name
                    for config in resource.configs
                    if config.value is None and config.config_operation != AlterConfigOp.DELETE
                ],
            )
            current = _current(broker, resource)
            changes = _incremental(resource, current)
            _change(broker, resource, current, changes, request.validate_only)
        except ApiError as refusal:
            error = refusal
        responses.append(
            IncrementalAlterConfigsResponseResponse(
                error_code=error.code,
                error_message=_shortened(error.message),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


def list_config_resources(
    broker: Broker, session: Session, request: ListConfigResourcesRequest, version: int
) -> ListConfigResourcesResponse:
    """Version 0 asks for subscriptions to client metrics, which there are none of here."""
    wanted: Sequence[int] = request.resource_types or LISTABLE
    if version == 0:
        wanted = (CLIENT_METRICS,)
    if any(kind not in LISTABLE for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names: dict[int, Iterable[str]] = {
        TOPIC: sorted(broker.cluster.topics),
        BROKER: [str(broker.config.node_id)],
        BROKER_LOGGER: [str(broker.config.node_id)],
        GROUP: sorted(name for kind, name in broker.cluster.configs if kind == GROUP),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponseConfigResource(resource_name=name, resource_type=kind)
            for kind in LISTABLE
            if kind in wanted
            for name in names.get(kind, ())
        ]
    )


# Describing.


def _describe(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsRequestResource
) -> DescribeConfigsResponseResult:
    result = DescribeConfigsResponseResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        found = _descriptions(broker, resource)
    except ApiError as error:
        result.error_code, result.error_message = error.code, _shortened(error.message)
        return result
    result.configs = [
        _entry(each, request.include_synonyms, request.include_documentation) for each in found
    ]
    return result


def _descriptions(broker: Broker, resource: DescribeConfigsRequestResource) -> list[Description]:
    kind, name = resource.resource_type, resource.resource_name
    names = resource.configuration_keys or None
    if kind == TOPIC:
        check_topic_name(name)
        if name not in broker.cluster.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        overrides = broker.cluster.configs.get((TOPIC, name), {})
        return describe_topic(broker.config, overrides, names)
    if kind == BROKER:
        if not name:
            return describe_all_brokers(broker.config, names)
        _check_node(broker, name, "Broker", " or empty string,")
        return describe_broker(broker.config, names)
    if kind == BROKER_LOGGER:
        if not name:
            raise _invalid("Broker id must not be empty")
        _check_node(broker, name, "Broker", "")
        raise _invalid("This broker has no loggers that can be described")
    if kind == CLIENT_METRICS and not name:
        raise _invalid("Client metrics subscription name must not be empty")
    if kind == GROUP and not name:
        raise _invalid("Group name must not be empty")
    if kind in (CLIENT_METRICS, GROUP):
        return []
    raise _invalid(f"Unexpected resource type {kind} for resource {name}")


def _entry(
    found: Description, synonyms: bool, documentation: bool
) -> DescribeConfigsResponseResultConfig:
    return DescribeConfigsResponseResultConfig(
        name=found.name,
        value=found.value,
        read_only=found.read_only,
        config_source=found.source,
        is_sensitive=found.sensitive,
        synonyms=[
            DescribeConfigsResponseResultConfigSynonym(
                name=each.name, value=each.value, source=each.source
            )
            for each in (found.synonyms if synonyms else ())
        ],
        config_type=found.type,
        documentation=found.doc if documentation else None,
    )


# Altering.


class _Resource(Protocol):
    resource_type: int
    resource_name: str


def _repeated(resources: Iterable[_Resource]) -> set[tuple[int, str]]:
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    return {key for key, count in counts.items() if count > 1}


def _check_once(resource: _Resource, repeated: set[tuple[int, str]]) -> None:
    if (resource.resource_type, resource.resource_name) in repeated:
        raise _invalid("Each resource must appear at most once.")


def _check_keys(names: Sequence[str], nulls: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise _invalid("Error due to duplicate config keys")
    if nulls:
        raise _invalid(f"Null value not supported for : {', '.join(nulls)}")


def _current(broker: Broker, resource: _Resource) -> Mapping[str, str]:
    """What is set for a resource now. Raises ApiError for those that cannot be changed."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == BROKER and name:
        _check_node(broker, name, "Node")
    elif kind == BROKER_LOGGER:
        raise _invalid("This broker has no loggers that can be altered")
    elif kind not in (TOPIC, BROKER):
        raise _invalid(f"Unknown resource type {kind}")
    return broker.cluster.configs.get((kind, name), {})


def _incremental(
    resource: IncrementalAlterConfigsRequestResource, current: Mapping[str, str]
) -> Changes:
    definitions = TOPIC_CONFIGS if resource.resource_type == TOPIC else BROKER_CONFIGS
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
    """A list with the values of a request added or taken out; without one of its own it is the default's."""
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


def _change(
    broker: Broker,
    resource: _Resource,
    current: Mapping[str, str],
    changes: Changes,
    validate_only: bool,
) -> None:
    """Check changes, and unless that is all that is asked for, make them. Raises ApiError."""
    result = {**current, **changes}
    values = {name: value for name, value in result.items() if value is not None}
    # Only what differs is written.
    changes = {name: value for name, value in changes.items() if current.get(name) != value}
    if resource.resource_type == TOPIC:
        _check_topic(broker, resource.resource_name, values)
        if changes and not validate_only:
            broker.set_topic_configs(broker.cluster.topics[resource.resource_name], changes)
        return
    new = {name: value for name, value in changes.items() if value is not None}
    try:
        broker.config.check_dynamic(new, own=bool(resource.resource_name))
    except ConfigError as error:
        # Kafka calls a bad value of a broker a bad request (KAFKA-13609).
        raise _invalid(error.api) from None
    if changes and not validate_only:
        broker.cluster.set_configs(BROKER, resource.resource_name, changes)
        apply_dynamic(broker)


def apply_dynamic(broker: Broker) -> None:
    """Make the broker's settings those of the cluster's metadata, and the topics' logs follow."""
    configs = broker.cluster.configs
    own = configs.get((BROKER, str(broker.config.node_id)), {})
    broker.config.set_dynamic(configs.get((BROKER, ""), {}), own)
    broker.logs.environment.producer_expiry_ms = broker.config.producer_id_expiration_ms
    for name in broker.cluster.topics:
        overrides = configs.get((TOPIC, name), {})
        broker.logs.update_config(name, broker.config.topic_config(overrides, check=False))


def _check_topic(broker: Broker, name: str, values: Mapping[str, str]) -> None:
    if not name:
        raise _invalid("Default topic resources are not allowed.")
    check_topic_name(name)
    try:
        broker.config.check_topic_config(values)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, error.api) from None
    if name not in broker.cluster.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_node(broker: Broker, name: str, kind: str, otherwise: str = ",") -> None:
    if not _INTEGER.fullmatch(name):
        raise _invalid(f"{kind} id must be an integer, but it is: {name}")
    expected = str(broker.config.node_id)
    if name != expected:
        raise _invalid(f"Unexpected broker id, expected {expected}{otherwise} but received {name}")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _shortened(message: str | None) -> str | None:
    return None if message is None else message[:LONGEST_MESSAGE]
