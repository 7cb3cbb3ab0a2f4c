"""Authorization: our broker refuses what Apache Kafka refuses, for every API, operation and resource.

Both brokers have the same users, each with one right or a few, and get the same requests, made from the definitions
about one topic, group and transactional id. What the responses say about rights is compared: each error code of
authorization and its place. Other errors count as one, because such requests are mostly invalid in other ways.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import kafka_wire as kw
import pytest

from krammar.authorization.table import CONFIGS, TABLE
from tests.authorization.support import (
    ALL_ACLS,
    GROUP_NAME,
    TOPIC_NAME,
    TRANSACTION,
    USERS,
    acls,
    errors,
    log_in,
    requests_of,
    settings,
)
from tests.broker.support import RawClient
from tests.interop.apache import ApacheKafka, tool
from tests.interop.processes import Krammar, Server
from tests.support.waiting import PATIENCE

_LEFT_OUT = {"AlterClientQuotas"}
# The versions below it have formats that both refuse, each in its way.
_FIRST = {"Produce": 3}
APIS = sorted({*TABLE, *CONFIGS, "DescribeCluster"})


def _started(server: Server) -> Server:
    """Start a broker if it does not run, and give it the ACLs, a topic and a group."""
    if server.process is None:
        server.start()
    with log_in(server.port, "admin") as admin:
        assert not any(
            each.error_code for each in admin.call(kw.CreateAclsRequest(creations=acls())).results
        )
        wanted = sum(map(len, USERS.values()))
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = admin.call(kw.DescribeAclsRequest(**ALL_ACLS)).resources
            if sum(len(each.acls) for each in found) == wanted:
                break
            time.sleep(0.05)
        topic_id = _topic(admin)
        for key, kind in ((GROUP_NAME, 0), (TRANSACTION, 1)):
            asked = kw.FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
            while admin.call(asked).coordinators[0].error_code:
                time.sleep(0.05)
        # A group that exists, without members.
        part = kw.OffsetCommitRequest.Partition(partition_index=0, committed_offset=1)
        topic = kw.OffsetCommitRequest.Topic(name=TOPIC_NAME, topic_id=topic_id, partitions=[part])
        commit = kw.OffsetCommitRequest(group_id=GROUP_NAME, topics=[topic])
        while admin.call(commit, 9).topics[0].partitions[0].error_code:
            time.sleep(0.05)
    return server


def _topic(admin: RawClient) -> UUID:
    """Create the topic if it is missing, and return its id."""
    topic = kw.CreateTopicsRequest.CreatableTopic(
        name=TOPIC_NAME, num_partitions=1, replication_factor=1
    )
    admin.call(kw.CreateTopicsRequest(topics=[topic]))
    named = kw.MetadataRequest(topics=[kw.MetadataRequest.Topic(name=TOPIC_NAME)])
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        (found,) = admin.call(named).topics
        if not found.error_code:
            break
        time.sleep(0.05)
    topic_id: UUID = found.topic_id
    return topic_id


def _servers(folder: Path) -> tuple[Krammar, ApacheKafka]:
    """Our broker and Apache Kafka, which are not started yet."""
    ours = Krammar(folder / "ours" / "data", properties={})
    theirs = ApacheKafka(folder / "theirs" / "data", properties={})
    for server in (ours, theirs):
        server.folder.parent.mkdir(parents=True)
        server.properties.update(settings("sasl_plaintext"))
        server.properties["listeners"] = f"SASL_PLAINTEXT://127.0.0.1:{server.port}"
    login = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    properties = theirs.properties
    properties["listeners"] += f",CONTROLLER://127.0.0.1:{theirs.controller_port}"
    properties["inter.broker.listener.name"] = "SASL_PLAINTEXT"
    properties["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
    properties["listener.security.protocol.map"] = (
        "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    )
    properties[login] = properties[login].replace(
        "required ", 'required username="admin" password="admin" '
    )
    return ours, theirs


@pytest.fixture(scope="module")
def brokers(
    kafka_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """Our broker and Apache Kafka, with the same users and ACLs."""
    ours, theirs = _servers(tmp_path_factory.mktemp("authorization"))
    try:
        yield _started(ours), _started(theirs)
    finally:
        ours.stop()
        theirs.stop()


def _say(server: Server, api: str) -> dict[str, Any]:
    """What each user hears, by user, version and request."""
    key = next(info.key for info in kw.requests() if info.api_name == api)
    found: dict[str, Any] = {}
    with log_in(server.port, "admin") as admin:
        served = {e.api_key: e for e in admin.call(kw.ApiVersionsRequest(), 2).api_keys}
        oldest = max(served[key].min_version, _FIRST.get(api, 0))
        for user in USERS:
            for version in sorted({oldest, served[key].max_version}):
                for number in range(9):
                    requests = requests_of(api, version, _topic(admin))
                    if number >= len(requests):
                        break
                    with log_in(server.port, user) as client:
                        try:
                            said = _rights_in(client.call(requests[number], version))
                        except ConnectionError:
                            said = "closed"
                    found[f"{user} v{version} {number}"] = said
    return found


def _rights_in(response: Any) -> Any:
    """The errors of authorization, by place; None if rights are not the reason of any error."""
    refused = [each for each in errors(response) if each[1] > 0]
    bits = {
        name: getattr(struct, name)
        for struct in (response, *getattr(response, "topics", ()), *getattr(response, "groups", ()))
        for name in getattr(struct, "_fields", ())
        if name.endswith("authorized_operations")
    }
    # Names of topics that a request gave by their ids.
    names = [each.name for each in getattr(response, "responses", ()) if hasattr(each, "name")]
    return refused, bits, names


@pytest.mark.parametrize("api", APIS)
def test_rights_are_those_of_kafka(brokers: tuple[Server, Server], api: str) -> None:
    ours, theirs = (_say(server, api) for server in brokers)
    assert ours == theirs


def test_both_refuse_and_describe_acls_alike(
    brokers: tuple[Server, Server], tmp_path: Path
) -> None:
    """Invalid ACLs, filters of all kinds, and deletions."""

    def heard(server: Server) -> list[Any]:
        valid = acls()[0]
        invalid = []
        for name, value in (
            ("resource_type", 4),
            ("resource_type", 1),
            ("resource_name", ""),
            ("resource_pattern_type", 1),
            ("resource_pattern_type", 2),
            ("operation", 1),
            ("permission_type", 1),
            ("principal", "alice"),
            ("principal", ""),
        ):
            creation = kw.CreateAclsRequest.AclCreation(
                **{each: getattr(valid, each) for each in valid._fields}
            )
            setattr(creation, name, value)
            invalid.append(creation)
        found: list[Any] = []
        with log_in(server.port, "admin") as admin:
            for creation in invalid:
                try:
                    (result,) = admin.call(kw.CreateAclsRequest(creations=[creation])).results
                    # Kafka has no words for a value that is for filters only: an unknown error.
                    own_words = creation.principal == valid.principal and creation.resource_name
                    found.append(
                        bool(result.error_code)
                        if own_words and creation.resource_type != 4
                        else (result.error_code, result.error_message)
                    )
                except ConnectionError:
                    found.append("closed")
                    return found
            for changes in (
                {},
                {"resource_type_filter": 2},
                {"resource_name_filter": TOPIC_NAME, "pattern_type_filter": 2},
                {"principal_filter": "User:consumer"},
                {"operation": 3},
                {"host_filter": "*"},
                {"host_filter": "10.0.0.1"},
            ):
                described = admin.call(kw.DescribeAclsRequest(**{**ALL_ACLS, **changes}))
                found.append(
                    sorted(
                        (r.resource_name, r.pattern_type, a.principal, a.operation)
                        for r in described.resources
                        for a in r.acls
                    )
                )
            filters = [
                kw.DeleteAclsRequest.DeleteAclsFilter(
                    **{**ALL_ACLS, "principal_filter": "User:nobody-at-all"}
                )
            ]
            (result,) = admin.call(kw.DeleteAclsRequest(filters=filters)).filter_results
            found.append((result.error_code, result.error_message, result.matching_acls))
        return found

    ours, theirs = (heard(server) for server in brokers)
    assert ours == theirs


def _described(server: Server) -> list[Any]:
    with log_in(server.port, "admin") as admin:
        found = admin.call(kw.DescribeAclsRequest(**ALL_ACLS)).resources
    return sorted(
        (
            *(each.resource_type, each.resource_name, each.pattern_type),
            *(acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        for each in found
        for acl in each.acls
    )


def _tool(server: Server, *arguments: str) -> str:
    config = server.folder.with_name("admin.properties")
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="admin" password="admin";\n'
    )
    address = f"127.0.0.1:{server.port}"
    return tool(
        *("org.apache.kafka.tools.AclCommand", "--bootstrap-server", address),
        *("--command-config", str(config), *arguments),
    ).stdout


def test_a_folder_moves_with_its_acls_and_kafkas_tool_changes_them(
    kafka_jars: str, tmp_path: Path
) -> None:
    """Kafka, then our broker, then Kafka, on one folder."""
    ours, theirs = _servers(tmp_path)
    ours.folder = theirs.folder
    with theirs:
        _started(theirs)
        before = _described(theirs)
        assert len(before) == sum(map(len, USERS.values()))
    with ours:
        assert _described(ours) == before
        with log_in(ours.port, "nobody") as client:
            named = kw.MetadataRequest(topics=[kw.MetadataRequest.Topic(name=TOPIC_NAME)])
            assert errors(client.call(named)) == [(".error_code", 0), (".topics.error_code", 29)]
        prefix = ("--resource-pattern-type", "prefixed", "--topic", "billing-")
        _tool(ours, "--add", "--allow-principal", "User:eve", "--operation", "Read", *prefix)
        assert "User:eve" in _tool(ours, "--list", *prefix)
        remove = ("--allow-principal", "User:consumer", "--operation", "Read")
        _tool(ours, "--remove", "--force", *remove, "--topic", TOPIC_NAME)
        changed = _described(ours)
        assert len(changed) == len(before)
        assert changed != before
    with theirs:
        until = time.monotonic() + PATIENCE
        while (found := _described(theirs)) != changed and time.monotonic() < until:
            time.sleep(0.1)
        assert found == changed
