"""Which of our messages franz-go's kmsg knows, and where kmsg differs from Kafka."""

from __future__ import annotations

import re
from pathlib import Path

from tests.generated.catalogue import Message, by_name

FOLDER = Path(__file__).parent / "kmsg"

# Structs that are neither requests nor responses, with their names in kmsg.
OTHERS = {
    "ConsumerProtocolAssignment": "ConsumerMemberAssignment",
    "ConsumerProtocolSubscription": "ConsumerMemberMetadata",
    "ControlRecordTypeSchema": "ControlRecordKey",
    "DefaultPrincipalData": "DefaultPrincipalData",
    "EndTxnMarker": "EndTxnMarker",
    "GroupMetadataKey": "GroupMetadataKey",
    "GroupMetadataValue": "GroupMetadataValue",
    "Header": "Header",
    "LeaderChangeMessage": "LeaderChangeMessage",
    "LegacyOffsetCommitKey": "OffsetCommitKey",
    "LegacyOffsetCommitValue": "OffsetCommitValue",
    "MessageV0": "MessageV0",
    "MessageV1": "MessageV1",
    "OffsetCommitKey": "OffsetCommitKey",
    "OffsetCommitValue": "OffsetCommitValue",
    "Record": "Record",
    "RecordBatch": "RecordBatch",
    "StickyAssignorUserData": "StickyMemberMetadata",
    "TransactionLogKey": "TxnMetadataKey",
    "TransactionLogValue": "TxnMetadataValue",
}

# Kafka Connect's group protocol is not part of Kafka's message schemas.
ONLY_IN_KMSG = {"ConnectMemberAssignment", "ConnectMemberMetadata"}

# Kafka marks version 6 as unstable, and kmsg ends at 5.
UNKNOWN = {("InitProducerIdRequest", 6), ("InitProducerIdResponse", 6)}

# Kafka 3.9, the last release with these versions, has IsKRaftController before ControllerEpoch (KIP-866).
# kmsg has it after ControllerEpoch.
WRONG = {("StopReplicaRequest", 4)}

# kmsg writes neither size nor body of this frame, because its header has no client id.
WRONG_FRAMES = {("ControlledShutdownRequest", 0)}

# Top-level fields with another default than in Kafka's schemas: 0 for integers, true for topic creation.
DEFAULTS: dict[str, dict[str, int]] = {
    "AddRaftVoterRequest": {"timeout_ms": 15000},
    "CreatePartitionsRequest": {"timeout_ms": 15000},
    "DeleteRecordsRequest": {"timeout_ms": 15000},
    "DeleteTopicsRequest": {"timeout_ms": 15000},
    "ListOffsetsRequest": {"replica_id": -1, "timeout_ms": 30000},
    "MetadataRequest": {"allow_auto_topic_creation": False},
    "ProduceRequest": {"timeout_ms": 15000},
}


def kmsg_version() -> str:
    """Return the version of kmsg that go.mod names."""
    found = re.search(r"franz-go/pkg/kmsg v(\S+)", (FOLDER / "go.mod").read_text())
    assert found
    return found[1]


def known() -> list[tuple[Message, int]]:
    """Return the messages that kmsg knows, with each version that it reads and writes as Kafka does."""
    return [
        (message, version)
        for message in by_name().values()
        if message.key is not None or message.name in OTHERS
        for version in message.versions
        if (message.name, version) not in UNKNOWN | WRONG
    ]


def address(message: Message, version: int) -> str:
    """Return the first words of a line for the program in Go: what to read, and its version."""
    if message.key is None:
        return f"other {OTHERS[message.name]} {version}"
    kind = "request" if message.name.endswith("Request") else "response"
    return f"{kind} {message.key} {version}"
