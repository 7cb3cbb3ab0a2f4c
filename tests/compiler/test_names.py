"""How names in definitions become names in Python."""

from __future__ import annotations

import pytest

from krammar.compiler import names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Topic", "topic"),
        ("TopicID", "topic_id"),
        ("TopicIDs", "topic_ids"),
        ("ISRNodes", "isr_nodes"),
        ("ISRs", "isrs"),
        ("ISR", "isr"),
        ("ApiKeys", "api_keys"),
        ("ACLs", "acls"),
        ("MatchingACLs", "matching_acls"),
        ("GroupIDs", "group_ids"),
        ("ProducerIDFilters", "producer_id_filters"),
        ("ZKVersion", "zk_version"),
        ("ZkMigrationReady", "zk_migration_ready"),
        ("KRaftVersionFeature", "k_raft_version_feature"),
        ("SASLAuthBytes", "sasl_auth_bytes"),
        ("LastKnownELR", "last_known_elr"),
        ("CRC", "crc"),
        ("Field1", "field1"),
        ("InnerField4s", "inner_field4s"),
        ("SHA256Sum", "sha256_sum"),
        ("snake_case", "snake_case"),
        ("lowerCamel", "lower_camel"),
        ("X", "x"),
    ],
)
def test_snake_case(name: str, expected: str) -> None:
    assert names.snake_case(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Class", "class_"),
        ("From", "from_"),
        ("None", "none"),
        ("Self", "self_"),
        ("ToDict", "to_dict_"),
        ("FromDict", "from_dict_"),
        ("UnknownTags", "unknown_tags_"),
        ("Match", "match"),
        ("Type", "type"),
    ],
)
def test_python_name(name: str, expected: str) -> None:
    assert names.python_name(name, names.STRUCT_NAMES) == expected


@pytest.mark.parametrize(
    ("plural", "single"),
    [
        ("Batches", "Batch"),
        ("AcknowledgementBatches", "AcknowledgementBatch"),
        ("Statuses", "Status"),
        ("Status", "Status"),
        ("Topologies", "Topology"),
        ("Directories", "Directory"),
        ("Entries", "Entry"),
        ("ISRs", "ISR"),
        ("ISR", "ISR"),
        ("ACLs", "ACL"),
        ("ApiKeys", "ApiKey"),
        ("Topics", "Topic"),
        ("TopicData", "TopicData"),
        ("Responses", "Response"),
        ("Resources", "Resource"),
        ("Nodes", "Node"),
        ("Values", "Value"),
        ("TopicStates", "TopicState"),
        ("PreferredCandidates", "PreferredCandidate"),
        ("FeatureUpdates", "FeatureUpdate"),
        ("Addresses", "Address"),
        ("Boxes", "Box"),
        ("Hashes", "Hash"),
        ("Caches", "Cache"),
        ("Houses", "House"),
        ("Buses", "Bus"),
        ("Indices", "Index"),
        ("Series", "Series"),
        ("Children", "Child"),
        ("Keys", "Key"),
        ("Analysis", "Analysis"),
        ("Entity", "Entity"),
    ],
)
def test_singular(plural: str, single: str) -> None:
    assert names.singular(plural) == single


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("00_produce", "produce"),
        ("produce.krm", "produce"),
        ("00_produce.krm", "produce"),
        ("DEFINITIONS", "definitions"),
        ("list-offsets.krm", "list_offsets"),
        ("a.b.krm", "a_b"),
        ("class.krm", "class_"),
        ("layout.krm", "layout_"),
        ("layouts", "layouts_"),
        ("parse_request.krm", "parse_request_"),
        ("parse_response.krm", "parse_response_"),
        ("42", "_42"),
        ("enums", "enums"),
    ],
)
def test_module_name(file: str, module: str) -> None:
    assert names.module_name(file) == module


@pytest.mark.parametrize(
    ("name", "constant"),
    [("Empty", "EMPTY"), ("PrepareCommit", "PREPARE_COMMIT"), ("ANY", "ANY"), ("NOT_A", "NOT_A")],
)
def test_constant_name(name: str, constant: str) -> None:
    assert names.constant_name(name) == constant
