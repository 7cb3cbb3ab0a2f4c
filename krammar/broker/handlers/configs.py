"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

DescribeConfigs, v1 to v4 (KIP-133): v1 has origins and synonyms (KIP-226), v3 types and
documentation (KIP-569).

AlterConfigs, v0 to v2 (KIP-133): replaces all settings of a resource in all versions.

IncrementalAlterConfigs, v0 to v1 (KIP-339): changes single settings in both versions.

ListConfigResources, v0 to v1 (KIP-1142): v0 only lists client metrics (KIP-714), and v1 any kind of
resource.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import kafka_wire as kw

from krammar.broker.client_metrics import CLIENT_METRICS, Subscription
from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import (
    BrokerConfig,
    ConfigDef,
    ConfigError,
)
from krammar.broker.config.definitions import LIST
from krammar.broker.config.describe import (
    describe_all_brokers,
    describe_broker,
    describe_overrides,
)
from krammar.broker.config.overrides import check_topic
from krammar.broker.errors import ApiError, errors_in, invalid_request
from krammar.broker.session import Session
from krammar.broker.topic_checks import check_topic_name
from krammar.broker.topics import BROKER, TOPIC, Topics
from krammar.util.turns import Steps

BROKER_LOGGER = kw.ConfigResourceType.BROKER_LOGGER
GROUP = kw.ConfigResourceType.GROUP
LISTABLE = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)

_INTEGER = re.compile(r"[+-]?[0-9]+")

# The maximum number of settings in a response: each takes some kilobytes with documentation and
# synonyms.
MAX_SETTINGS = 50_000

# New values by key; None removes a setting.
Changes = dict[str, str | None]

R = TypeVar("R", bound=Any)
T = TypeVar("T", bound=Any)


@dataclass(eq=False)
class ConfigHandlers:
    config: BrokerConfig
    cluster: ClusterMetadata
    topics: Topics

    def describe_configs(
        self, session: Session, request: kw.DescribeConfigsRequest, version: int
    ) -> Steps[kw.DescribeConfigsResponse]:
        left = MAX_SETTINGS

        def describe(
            resource: kw.DescribeConfigsRequest.DescribeConfigsResource,
            result: kw.DescribeConfigsResponse.DescribeConfigsResult,
        ) -> None:
            nonlocal left
            found = self._descriptions(resource)
            if len(found) > left:
                raise ApiError(
                    kw.ErrorCode.POLICY_VIOLATION,
                    f"The response would have more than {MAX_SETTINGS} settings: request fewer "
                    "resources at once, or name the settings that you need.",
                )
            left -= len(found)
            result.configs = [
                _entry(each, request.include_synonyms, request.include_documentation)
                for each in found
            ]

        results = yield from _each(
            request.resources, kw.DescribeConfigsResponse.DescribeConfigsResult, describe
        )
        return kw.DescribeConfigsResponse(results=results)

    def alter_configs(
        self, session: Session, request: kw.AlterConfigsRequest, version: int
    ) -> Steps[kw.AlterConfigsResponse]:
        """Replace all settings of each resource; settings that the request omits return to their defaults."""
        alter = partial(self._alter, request.validate_only, _replaced)
        responses = yield from _each(
            request.resources, kw.AlterConfigsResponse.AlterConfigsResourceResponse, alter
        )
        return kw.AlterConfigsResponse(responses=responses)

    def incremental_alter_configs(
        self, session: Session, request: kw.IncrementalAlterConfigsRequest, version: int
    ) -> Steps[kw.IncrementalAlterConfigsResponse]:
        """Change only the settings that the request names (KIP-339)."""
        incremental = partial(_incremental, self._definitions)
        alter = partial(self._alter, request.validate_only, incremental)
        responses = yield from _each(
            request.resources,
            kw.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
            alter,
        )
        return kw.IncrementalAlterConfigsResponse(responses=responses)

    def list_config_resources(
        self, session: Session, request: kw.ListConfigResourcesRequest, version: int
    ) -> kw.ListConfigResourcesResponse:
        """List resources with settings. Version 0 asks for subscriptions to clients' metrics."""
        wanted: Sequence[int] = request.resource_types or LISTABLE
        if version == 0:
            wanted = (CLIENT_METRICS,)
        if any(kind not in LISTABLE for kind in wanted):
            return kw.ListConfigResourcesResponse(error_code=kw.ErrorCode.UNSUPPORTED_VERSION)
        names: dict[int, Iterable[str]] = {
            TOPIC: sorted(self.cluster.topics),
            BROKER: [str(self.config.node_id)],
            BROKER_LOGGER: [str(self.config.node_id)],
            CLIENT_METRICS: self._configured(CLIENT_METRICS),
            GROUP: self._configured(GROUP),
        }
        return kw.ListConfigResourcesResponse(
            config_resources=[
                kw.ListConfigResourcesResponse.ConfigResource(
                    resource_name=name, resource_type=kind
                )
                for kind in LISTABLE
                if kind in wanted
                for name in names.get(kind, ())
            ]
        )

    @property
    def _definitions(self) -> dict[int, Mapping[str, ConfigDef]]:
        """The settings of the resources that can be altered, by kind."""
        tables = self.config.tables
        found: dict[int, Mapping[str, ConfigDef]] = {
            TOPIC: tables.topics,
            BROKER: tables.broker,
            # As in Kafka, nothing is appended to their lists.
            CLIENT_METRICS: {},
        }
        if not all(each.absent for each in tables.groups.values()):
            found[GROUP] = tables.groups  # Kafka 3.9 has none
        return found

    def _configured(self, wanted: int) -> list[str]:
        """Return the names of the resources of a kind that have settings."""
        return sorted(name for kind, name in self.cluster.configs if kind == wanted)

    def _descriptions(
        self, resource: kw.DescribeConfigsRequest.DescribeConfigsResource
    ) -> list[kw.DescribeConfigsResponse.DescribeConfigsResourceResult]:
        kind, name = resource.resource_type, resource.resource_name
        names = resource.configuration_keys or None
        overrides = self.cluster.configs.get((kind, name), {})
        if kind == TOPIC:
            check_topic_name(name)
            if name not in self.cluster.topics:
                # As in Kafka, without a text.
                raise ApiError(kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            return describe_overrides(self.config, kw.ConfigSource.TOPIC_CONFIG, overrides, names)
        if kind == BROKER:
            if not name:
                return describe_all_brokers(self.config, names)
            self._check_node(name, "Broker", " or empty string,")
            return describe_broker(self.config, names)
        if kind == BROKER_LOGGER:
            if not name:
                raise invalid_request("Broker id must not be empty")
            self._check_node(name, "Broker", "")
            raise invalid_request("This broker has no loggers that can be described")
        if kind == CLIENT_METRICS:
            if not name:
                raise invalid_request("Client metrics subscription name must not be empty")
            source = kw.ConfigSource.CLIENT_METRICS_CONFIG
            return describe_overrides(self.config, source, overrides, names)
        if kind == GROUP and GROUP in self._definitions:
            if not name:
                raise invalid_request("Group name must not be empty")
            return describe_overrides(self.config, kw.ConfigSource.GROUP_CONFIG, overrides, names)
        raise invalid_request(f"Unexpected resource type {kind} for resource {name}")

    def _current(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the current settings of a resource. Raises ApiError if they cannot be changed."""
        if kind == BROKER and name:
            self._check_node(name, "Node")
        elif kind == BROKER_LOGGER:
            raise invalid_request("This broker has no loggers that can be altered")
        elif kind not in self._definitions:
            raise invalid_request(f"Unknown resource type {kind}")
        return self.cluster.configs.get((kind, name), {})

    def _alter(
        self,
        validate_only: bool,
        read_changes: Callable[[Any, Mapping[str, str]], Changes],
        resource: (
            kw.AlterConfigsRequest.AlterConfigsResource
            | kw.IncrementalAlterConfigsRequest.AlterConfigsResource
        ),
        result: (
            kw.AlterConfigsResponse.AlterConfigsResourceResponse
            | kw.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        ),
    ) -> None:
        """Check the changes of a resource, and apply them unless ``validate_only``. Raises ApiError."""
        result.error_message = None
        _check_keys(resource.configs)
        kind, name = resource.resource_type, resource.resource_name
        current = self._current(kind, name)
        changes = read_changes(resource, current)
        values = {key: value for key, value in {**current, **changes}.items() if value is not None}
        # Only differences are written to the metadata log.
        changes = {key: value for key, value in changes.items() if current.get(key) != value}
        self._check(kind, name, values, changes)
        if changes and not validate_only:
            self.topics.set_configs(kind, name, changes)

    def _check(self, kind: int, name: str, values: Mapping[str, str], changes: Changes) -> None:
        """Raise ApiError if a resource cannot have these values after the changes."""
        if kind == TOPIC:
            if not name:
                raise invalid_request("Default topic resources are not allowed.")
            check_topic_name(name)
        elif kind == GROUP and not name:
            raise invalid_request("Default group resources are not allowed.")
        elif kind == CLIENT_METRICS:
            if not name:
                raise invalid_request("Subscription name can't be empty")
            Subscription.of(values)
            return
        code = kw.ErrorCode.INVALID_CONFIG
        if kind == TOPIC and all(map(self.config.topics.knows, values)):
            code = self.config.tables.invalid_value
        try:
            if kind == TOPIC:
                check_topic(self.config.topics, values)
            elif kind == GROUP:
                self.config.check_group_config(values)
            else:
                # Kafka reports invalid broker settings as invalid requests (KAFKA-13609).
                code = kw.ErrorCode.INVALID_REQUEST
                new = {name: value for name, value in changes.items() if value is not None}
                self.config.check_dynamic(new, own=bool(name))
        except ConfigError as error:
            raise ApiError(code, error.api) from None
        if kind == TOPIC and name not in self.cluster.topics:
            raise ApiError(
                kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )

    def _check_node(self, name: str, kind: str, otherwise: str = ",") -> None:
        if not _INTEGER.fullmatch(name):
            raise invalid_request(f"{kind} id must be an integer, but it is: {name}")
        expected = str(self.config.node_id)
        if name != expected:
            raise invalid_request(
                f"Unexpected broker id, expected {expected}{otherwise} but received {name}"
            )


def _entry(
    found: kw.DescribeConfigsResponse.DescribeConfigsResourceResult,
    synonyms: bool,
    documentation: bool,
) -> kw.DescribeConfigsResponse.DescribeConfigsResourceResult:
    """Remove what the client did not ask for."""
    if not synonyms:
        found.synonyms = []
    if not documentation:
        found.documentation = None
    return found


def _each(
    resources: Iterable[R], kind: Callable[..., T], answer: Callable[[R, T], None]
) -> Steps[list[T]]:
    """Build a result for each resource of a request, in steps; ``answer`` fills it or raises ApiError."""
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    results = []
    for resource in resources:
        where = (resource.resource_type, resource.resource_name)
        result = kind(resource_type=where[0], resource_name=where[1])
        with errors_in(result):
            if counts[where] > 1:
                raise invalid_request("Each resource must appear at most once.")
            answer(resource, result)
        results.append(result)
        yield None
    return results


def _check_keys(configs: Sequence[Any]) -> None:
    if len({config.name for config in configs}) != len(configs):
        raise invalid_request("Error due to duplicate config keys")
    nulls = [
        config.name
        for config in configs
        if config.value is None
        and getattr(config, "config_operation", kw.AlterConfigOp.SET) != kw.AlterConfigOp.DELETE
    ]
    if nulls:
        raise invalid_request(f"Null value not supported for : {', '.join(nulls)}")


def _replaced(
    resource: kw.AlterConfigsRequest.AlterConfigsResource, current: Mapping[str, str]
) -> Changes:
    changes: Changes = dict.fromkeys(current)
    return changes | {config.name: config.value for config in resource.configs}


def _incremental(
    definitions: Mapping[int, Mapping[str, ConfigDef]],
    resource: kw.IncrementalAlterConfigsRequest.AlterConfigsResource,
    current: Mapping[str, str],
) -> Changes:
    changes: Changes = {}
    kind = resource.resource_type
    for config in resource.configs:
        if config.config_operation == kw.AlterConfigOp.SET:
            changes[config.name] = config.value
        elif config.config_operation == kw.AlterConfigOp.DELETE:
            changes[config.name] = None
        elif config.config_operation in (kw.AlterConfigOp.APPEND, kw.AlterConfigOp.SUBTRACT):
            definition = definitions[kind].get(config.name)
            changes[config.name] = _listed(kind, definition, config, current)
        else:
            raise invalid_request(f"Unknown operations type {config.config_operation}")
    return changes


def _listed(
    kind: int,
    definition: ConfigDef | None,
    config: kw.IncrementalAlterConfigsRequest.AlterableConfig,
    current: Mapping[str, str],
) -> str:
    """Append values to a list or remove them; the list is the default if the resource has no value."""
    operation = kw.AlterConfigOp(config.config_operation)
    if definition is None or definition.type is not LIST:
        message = f"Can't {operation.name} to key {config.name} because its type is not LIST."
        if kind == BROKER and definition is None:
            message = f"Unknown config name: {config.name}"
        elif kind == BROKER:
            verb = operation.name.lower()
            message = f"Config value {verb} is not allowed for config key: {config.name}"
        raise ApiError(kw.ErrorCode.INVALID_CONFIG, message)
    text = current.get(config.name, definition.default_text or "")
    values = dict.fromkeys(value for value in text.split(",") if value)
    for value in (config.value or "").split(","):
        if operation is kw.AlterConfigOp.APPEND:
            values[value] = None
        else:
            values.pop(value, None)
    return ",".join(values)
