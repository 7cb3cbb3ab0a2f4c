"""Users with one right each, and requests of all APIs, for a broker that asks an authorizer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import kafka_wire
from kafka_wire import (
    AclOperation,
    AclResourceType,
    CreateAclsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.authorization.table import CONFIGS
from krammar.broker.protection import STANDARD_AUTHORIZER
from krammar.wire.primitives import NULL_UUID
from krammar.wire.representation import kinds_of
from tests.broker.requests import batch
from tests.broker.support import RawClient
from tests.broker.test_every_version import filled

TOPIC_NAME, GROUP_NAME, TRANSACTION = "orders", "billing", "id"
NAMES = {
    AclResourceType.TOPIC: TOPIC_NAME,
    AclResourceType.GROUP: GROUP_NAME,
    AclResourceType.TRANSACTIONAL_ID: TRANSACTION,
    AclResourceType.CLUSTER: "kafka-cluster",
}
_CONFIGS = ("DESCRIBE_CONFIGS", "ALTER_CONFIGS")
_OPERATIONS = {
    "TOPIC": ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", *_CONFIGS),
    "GROUP": ("READ", "DELETE", "DESCRIBE", *_CONFIGS),
    "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"),
    "CLUSTER": ("CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "IDEMPOTENT_WRITE", *_CONFIGS),
}
Right = tuple[AclResourceType, AclOperation]


def _right(text: str) -> Right:
    resource, operation = text.split(":")
    return AclResourceType[resource], AclOperation[operation]


# By user: what they may do.
USERS: dict[str, list[Right]] = {
    "nobody": [],
    **{
        f"{kind}-{operation}".lower().replace("_", "-"): [_right(f"{kind}:{operation}")]
        for kind, operations in _OPERATIONS.items()
        for operation in operations
    },
    "consumer": [_right("TOPIC:READ"), _right("GROUP:READ")],
    "describer": [_right("TOPIC:DESCRIBE"), _right("GROUP:DESCRIBE")],
    "producer": [_right("TOPIC:WRITE"), _right("TRANSACTIONAL_ID:WRITE")],
    "processor": [
        *(_right("TOPIC:READ"), _right("TOPIC:WRITE")),
        *(_right("GROUP:READ"), _right("TRANSACTIONAL_ID:WRITE")),
    ],
}

# A filter that selects all ACLs.
ALL_ACLS: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def acls() -> list[CreateAclsRequest.AclCreation]:
    """The ACLs of all users."""
    return [
        CreateAclsRequest.AclCreation(
            resource_type=resource,
            resource_name=NAMES[resource],
            resource_pattern_type=3,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=3,
        )
        for user, rights in USERS.items()
        for resource, operation in rights
    ]


def settings(listener: str) -> dict[str, str]:
    """The settings of a broker with these users, whose password is their name; ``admin`` may do everything.

    The controller of Apache Kafka is anonymous on its listener.
    """
    users = " ".join(f'user_{user}="{user}"' for user in (*USERS, "admin"))
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    return {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{listener}.plain.sasl.jaas.config": login,
    }


def log_in(port: int, user: str) -> RawClient:
    """A connection of a user."""
    client = RawClient(port)
    assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    login = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode())
    assert client.call(login, 2).error_code == 0
    return client


def requests_of(api: str, version: int, topic_id: UUID) -> list[Any]:
    """Requests of an API: one about the topic, the group and the transactional id, and others that rights matter for."""
    key = next(info.key for info in kafka_wire.requests() if info.api_name == api)

    def new() -> Any:
        return with_names(kafka_wire.request_class(key)(), version, topic_id)

    found = [new()]
    (first,) = found
    if api == "Produce":
        for transactional in (False, True):
            request = new() if transactional else first
            for topic in request.topic_data:
                if version < 13:
                    topic.topic_id = NULL_UUID
                for partition in topic.partition_data:
                    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
                    partition.records = batch(
                        b"x", is_transactional=transactional, **(producer if transactional else {})
                    )
        found.append(request)
    elif api in ("Metadata", "DescribeTopicPartitions"):
        everything = new()
        everything.topics = None if api == "Metadata" and version else []
        found.append(everything)
        if api == "Metadata" and version >= 12:
            first.topics[0].topic_id = NULL_UUID
            by_id = new()
            by_id.topics[0].name = None
            found.append(by_id)
    elif api == "DeleteTopics" and version >= 6:
        first.topics[0].topic_id = NULL_UUID
        by_id = new()
        by_id.topics[0].name = None
        found.append(by_id)
    elif api == "FindCoordinator" and version:
        transaction = new()
        transaction.key_type = 1
        found.append(transaction)
    elif api == "ShareFetch":  # the first request of a session acknowledges nothing
        for topic in first.topics:
            for partition in topic.partitions:
                partition.acknowledgement_batches = []
    elif api == "InitProducerId":
        idempotent = new()
        idempotent.transactional_id = None
        found.append(idempotent)
    elif api == "OffsetFetch" and version >= 2:
        everything = new()
        for each in everything.groups or [everything]:
            each.topics = None
        found.append(everything)
    elif api in CONFIGS:
        kind = type(first.resources[0])
        first.resources = [
            kind(resource_type=number, resource_name=name)
            for number, name in ((2, TOPIC_NAME), (4, "1"), (32, GROUP_NAME), (16, "metrics"))
        ]
    elif api == "CreateAcls":
        first.creations = acls()[:1]
    elif api in ("DescribeAcls", "DeleteAcls"):
        for struct in (first, *getattr(first, "filters", ())):
            for name, value in {**ALL_ACLS, "principal_filter": "User:x"}.items():
                if hasattr(struct, name):
                    setattr(struct, name, value)
    return found


def with_names(request: Any, version: int, topic_id: UUID) -> Any:
    """A request about the topic, the group and the transactional id."""
    layout = kafka_wire.layout(type(request), version)
    request = filled(type(request), layout, TOPIC_NAME, topic_id, GROUP_NAME)
    for name, value in {"acks": -1, "timeout_ms": 10_000}.items():
        if hasattr(request, name):
            setattr(request, name, value)
    return request


def errors(response: Any) -> list[tuple[str, int]]:
    """The error codes of a response: where, and which; those of other reasons than rights are -1."""
    found: list[tuple[str, int]] = []

    def visit(value: Any, path: str) -> None:
        if isinstance(value, list):
            for each in value:
                visit(each, path)
        elif hasattr(value, "_fields"):
            kinds = kinds_of(type(value))
            for name in value._fields:
                if kinds.get(name) == "ErrorCode":
                    code = getattr(value, name)
                    refused = "AUTHORIZATION" in kafka_wire.ErrorCode(code).name
                    kept = code if refused or code == 0 else -1
                    found.append((f"{path}.{name}", kept))
                else:
                    visit(getattr(value, name), f"{path}.{name}")

    visit(response, "")
    return sorted(set(found))
