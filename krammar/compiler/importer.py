"""Converts Apache Kafka's JSON message schemas to definitions.

The stages, in the order of this file:

1. Read JSON with ``//`` comments into ``Schema``.
2. Merge the schemas of each message from several Kafka releases.
3. Add what the schemas lack.

``definition_writer`` writes the result.

Reading makes version ranges concrete: ``0+`` in a schema with versions 4 to 18 becomes 4 to 18, and in a
nested struct at most the versions of the outer field. So merging is a union of ranges. The schema with the
higher versions wins, and an older one adds the versions below.

The tables below contain facts that the schemas lack: where a request is sent, which schemas have a version
before them on the wire, and which integers are enums (``KAFKA_ENUMS``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from krammar.compiler.definition_writer import write_definitions
from krammar.compiler.names import snake_case
from krammar.compiler.schemas import (
    OPEN,
    ImportResult,
    Range,
    Schema,
    SchemaError,
    SchemaField,
    intersect,
    merge_order,
)

# Where a request must be sent, from the protocol guide and the KIPs that added the requests. Other requests
# go to any broker, or to the leader of a partition.
ROUTING = {
    name: routing
    for routing, names in {
        "admin": (
            "AllocateProducerIds AlterPartition AlterPartitionReassignments "
            "AlterUserScramCredentials AssignReplicasToDirs BrokerHeartbeat BrokerRegistration "
            "ControlledShutdown ControllerRegistration CreatePartitions CreateTopics DeleteTopics "
            "ElectLeaders Envelope ListPartitionReassignments UpdateFeatures"
        ),
        "group coordinator": (
            "AlterShareGroupOffsets ConsumerGroupDescribe ConsumerGroupHeartbeat DeleteGroups "
            "DeleteShareGroupOffsets DescribeGroups DescribeShareGroupOffsets Heartbeat JoinGroup "
            "LeaveGroup OffsetCommit OffsetDelete OffsetFetch ShareGroupDescribe "
            "ShareGroupHeartbeat StreamsGroupDescribe StreamsGroupHeartbeat "
            "StreamsGroupTopologyDescriptionUpdate SyncGroup TxnOffsetCommit"
        ),
        "txn coordinator": (
            "AddOffsetsToTxn AddPartitionsToTxn DescribeTransactions EndTxn InitProducerId"
        ),
        "share coordinator": (
            "DeleteShareGroupState InitializeShareGroupState ReadShareGroupState "
            "ReadShareGroupStateSummary WriteShareGroupState"
        ),
    }.items()
    for name in names.split()
}

# Schemas of type `data` that Kafka writes after an int16 version, which is not in their JSON. The last three
# accept any version: a reader ignores the bytes that it does not know.
VERSION_PREFIXED = frozenset(
    {
        "ConsumerProtocolAssignment",
        "ConsumerProtocolSubscription",
        "DefaultPrincipalData",
        "ProducerSnapshot",
        "AbortedTxn",
        "ControlRecordTypeSchema",
        "EndTxnMarker",
    }
)

# The files for related schemas of type `data`. Each other schema gets a separate file.
DATA_FILES = {
    name: file
    for file, names in {
        "consumer_protocol": "ConsumerProtocolAssignment ConsumerProtocolSubscription",
        "control_records": (
            "ControlRecordTypeSchema EndTxnMarker KRaftVersionRecord LeaderChangeMessage "
            "SnapshotFooterRecord SnapshotHeaderRecord VotersRecord"
        ),
    }.items()
    for name in names.split()
}

# The files for the records of Kafka's modules. The key is the end of a folder's name on the schema's path.
MODULE_FILES = {
    "group-coordinator": "consumer_offsets",
    "transaction-coordinator": "transaction_state",
    "share-coordinator": "share_group_state",
    "metadata": "cluster_metadata",
    "storage": "remote_log_metadata",
}

# Integers that are enums: from a pattern of `Message.Field.Field…` to the enum and its integer type. The first
# pattern that matches wins.
KAFKA_ENUMS = {
    "*ErrorCode": "ErrorCode int16",
    "*Acls*.ResourceType*": "AclResourceType int8",
    "*Acls*.*PatternType*": "AclPatternType int8",
    "*Acls*.Operation": "AclOperation int8",
    "*Acls*.PermissionType": "AclPermissionType int8",
    "AccessControlEntryRecord.ResourceType": "AclResourceType int8",
    "AccessControlEntryRecord.PatternType": "AclPatternType int8",
    "AccessControlEntryRecord.Operation": "AclOperation int8",
    "AccessControlEntryRecord.PermissionType": "AclPermissionType int8",
    "*Config*.ResourceType*": "ConfigResourceType int8",
    "*.ConfigSource": "ConfigSource int8",
    "DescribeConfigs*.Source": "ConfigSource int8",
    "*.ConfigType": "ConfigType int8",
    "*.ConfigOperation": "AlterConfigOp int8",
    "*.Mechanism": "ScramMechanism int8",
    "*.MatchType": "QuotaMatchType int8",
    "*.EndpointType": "EndpointType int8",
    "*.ElectionType": "ElectionType int8",
    "*.IsolationLevel": "IsolationLevel int8",
    "FindCoordinator*.KeyType": "CoordinatorType int8",
    "*.AcceptedCompressionTypes": "CompressionType int8",
    "*.CompressionType": "CompressionType int8",
    "*.DeliveryState": "ShareRecordState int8",
    "*.AcknowledgeTypes": "ShareAcknowledgeType int8",
    "*.ShareAcquireMode": "ShareAcquireMode int8",
    "*.UpgradeType": "FeatureUpdateType int8",
    "*.SecurityProtocol": "SecurityProtocol int16",
    "*.LeaderRecoveryState": "LeaderRecoveryState int8",
    "BrokerRegistrationChangeRecord.Fenced": "BrokerFencingChange int8",
    "BrokerRegistrationChangeRecord.InControlledShutdown": "BrokerControlledShutdownChange int8",
    "*.RemoteLogSegmentState": "RemoteLogSegmentState int8",
    "*.RemotePartitionDeleteState": "RemotePartitionDeleteState int8",
    "TransactionLogValue.TransactionStatus": "TransactionState int8",
    "ControlRecordTypeSchema.Type": "ControlRecordType int16",
    "*.ZkMigrationState": "ZkMigrationState int8",
    "LeaderAndIsrRequest.Type": "ControlRequestType int8",
    "UpdateMetadataRequest.Type": "ControlRequestType int8",
    "*.MemberType": "GroupMemberType int8",
    "Streams*AssignmentValue.State": "StreamsGroupMemberState int8",
    "*AssignmentValue.State": "GroupMemberState int8",
    "StreamsGroupHeartbeatResponse.Status.StatusCode": "StreamsGroupStatus int8",
    "*.TopologyDescriptionStatus": "StreamsTopologyDescriptionStatus int8",
    "*TopologyDescriptionNode.NodeType": "StreamsTopologyNodeType int8",
}

_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
_SCALARS = frozenset(_INTEGERS) | {"bool", "float64", "string", "bytes", "records", "uuid"}
_KINDS = frozenset(
    {"request", "response", "header", "data", "metadata", "coordinator-key", "coordinator-value"}
)
# Folders of a source tree or a jar that do not identify a module.
_IDLE_FOLDERS = frozenset({"common", "message", "resources", "main", "src"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# The maximum nesting of fields. Definitions allow fewer levels, see ``parser``.
_MAX_DEPTH = 64
_TOO_DEEP = "nested too deeply"


def import_schemas(
    folders: Sequence[Path],
    *,
    docs: bool = False,
    enums: Mapping[str, str] | None = None,
    releases: Sequence[str] = (),
) -> ImportResult:
    """Convert all ``*.json`` schemas below ``folders`` to definitions.

    If a message has several schemas, the one with the highest version wins, or else the one in the first
    folder. The others add versions below its lowest one.

    Args:
        docs: include the documentation of the schemas, as comments.
        enums: from patterns of ``Message.Field.Field…`` to an enum and its integer type, such as
            ``{"*.ErrorCode": "ErrorCode int16"}``.
        releases: the Kafka release of each folder, such as ``["4.4.0", "3.9.2"]``. A comment at the begin of
            each file names them.

    Raises:
        SchemaError: a folder does not exist, or schemas are invalid or contradict each other. It contains
            all problems.
    """
    problems: list[SchemaError] = []
    warnings: list[str] = []
    schemas: list[Schema] = []
    if releases and len(releases) != len(folders):
        raise ValueError("give one release for each folder")
    for folder, release in zip(folders, releases or [""] * len(folders), strict=True):
        if not folder.is_dir():
            problems.append(SchemaError(folder, 0, "is not a folder"))
            continue
        paths = sorted(folder.rglob("*.json"))
        if not paths:
            problems.append(SchemaError(folder, 0, "the folder contains no *.json files"))
        read = []
        for path in paths:
            try:
                read.append(_Reader(path, release).read())
            except SchemaError as error:
                problems += error.each()
        schemas += _pair_up_old_records(read)
    merged = []
    for group in _group(schemas):
        try:
            merged.append(_merge(group, warnings))
        except SchemaError as error:
            problems.append(error)
    known = [schema for schema in merged if schema is not None]
    problems += _unpaired(known)
    if not problems:
        try:
            for schema in known:
                _add_facts(schema)
            files = write_definitions(known, warnings, docs=docs, enums=enums)
        except SchemaError as error:
            problems.append(error)
    if problems:
        first = problems[0]
        raise SchemaError(first.path, first.line, first.message, others=problems[1:])
    names = tuple(sorted(schema.name for schema in known))
    return ImportResult(files, tuple(warnings), names)


# Reading


def _parse_range(text: str) -> Range | None:
    """Parse ``0+``, ``1-3``, ``2`` or ``none``."""
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text.strip())
    if not match:
        raise ValueError(f'"{text}" is not a range of versions')
    low = int(match[1])
    high = OPEN if match[2] == "+" else int(match[3] or low)
    if high < low:
        raise ValueError(f'"{text}" is not a range of versions: {high} is lower than {low}')
    return low, high


def _strip_comments(text: str) -> str:
    """Remove ``//`` comments from JSON. Lines keep their numbers."""
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*', lambda match: match[1] or "", text)


class _Reader:
    """Reads a schema, and collects all of its problems."""

    def __init__(self, path: Path, release: str) -> None:
        self.path = path
        self.release = release
        self.lines: list[str] = []
        self.problems: list[SchemaError] = []

    def read(self) -> Schema:
        try:
            text = _strip_comments(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(self.path, 0, f"cannot be read: {error}") from None
        self.lines = text.split("\n")
        lead = len(text) - len(text.lstrip())
        try:
            # Text after the object is ignored, as by Kafka's own generator.
            data, _ = json.JSONDecoder().raw_decode(text, lead)
        except json.JSONDecodeError as error:
            raise SchemaError(self.path, error.lineno, f"invalid JSON: {error.msg}") from None
        except RecursionError:
            raise SchemaError(self.path, 0, _TOO_DEEP) from None
        if not isinstance(data, dict):
            raise SchemaError(self.path, 1, "the schema is not a JSON object")
        self._check_nesting(data)
        schema = self._schema(data)
        if self.problems:
            first = self.problems[0]
            raise SchemaError(first.path, first.line, first.message, self.problems[1:])
        return schema

    def _check_nesting(self, data: dict[str, Any]) -> None:
        """Raise SchemaError if fields are nested too deeply for definitions."""
        level: list[Any] = [data]
        for _ in range(_MAX_DEPTH):
            inside = [item.get("fields") for item in level if isinstance(item, dict)]
            level = [item for fields in inside if isinstance(fields, list) for item in fields]
        if level:
            raise SchemaError(self.path, 0, _TOO_DEEP)

    def _name(self, data: dict[str, Any], line: int) -> str:
        """Read a name, which becomes part of a definition file and of its file name."""
        name = self._text(data, "name", line)
        if name and not _NAME.fullmatch(name):
            self._problem(
                line,
                f"the name {json.dumps(name)} contains characters other than letters, digits and `_`",
            )
        return name

    def _line(self, name: str, after: int = 0) -> int:
        pattern = re.compile(rf'"name"\s*:\s*"{re.escape(name)}"')
        numbers = [n for n, line in enumerate(self.lines, 1) if pattern.search(line)]
        return next((n for n in numbers if n >= after), numbers[0] if numbers else 0)

    def _problem(self, line: int, message: str) -> None:
        self.problems.append(SchemaError(self.path, line, message))

    def _text(self, data: dict[str, Any], key: str, line: int, default: str | None = None) -> str:
        value = data.get(key, default)
        if isinstance(value, str):
            return value
        what = "is missing" if value is None else f"is not a string: {json.dumps(value)}"
        self._problem(line, f'"{key}" {what}')
        return default or ""

    def _flag(self, data: dict[str, Any], key: str, line: int) -> bool:
        value = data.get(key, False)
        if not isinstance(value, bool):
            self._problem(line, f'"{key}" is neither true nor false: {json.dumps(value)}')
        return value is True

    def _number(self, data: dict[str, Any], key: str, line: int) -> int | None:
        value = data.get(key)
        # Some of Kafka's tags are strings.
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if number is None or (isinstance(number, int) and 0 <= number < OPEN):
            return number
        self._problem(line, f'"{key}" is not a number from 0 to {OPEN - 1}: {json.dumps(value)}')
        return None

    def _range(self, text: str, line: int) -> Range | None:
        try:
            return _parse_range(text)
        except ValueError as error:
            self._problem(line, str(error))
            return None

    def _schema(self, data: dict[str, Any]) -> Schema:
        name = self._name(data, 1)
        kind = self._text(data, "type", 1)
        line = self._line(name)
        if kind and kind not in _KINDS:
            self._problem(line, f'unknown schema type "{kind}"')
        versions = self._range(self._text(data, "validVersions", line, "none"), line)
        flexible = self._range(self._text(data, "flexibleVersions", line, "none"), line)
        key = self._number(data, "apiKey", line)
        if key is None and kind in {"request", "response", "coordinator-key"}:
            self._problem(line, f'a {kind} needs "apiKey"')
        schema = Schema(
            path=self.path,
            kind=kind,
            name=name,
            key=key,
            versions=versions,
            flexible_from=None,
            unstable=data.get("latestVersionUnstable") is True,
            release=self.release,
        )
        if versions is None:
            return schema
        if flexible and flexible[0] <= versions[1]:
            if flexible[1] < versions[1]:
                self._problem(line, "the flexible versions end before the last version")
            schema.flexible_from = max(flexible[0], versions[0])
        commons = {}
        for struct in self._objects(data, "commonStructs", line):
            struct_name = self._name(struct, line)
            at = self._line(struct_name, line)
            span = intersect(self._range(self._text(struct, "versions", at), at), versions)
            if span:
                commons[struct_name] = (struct, span, at)
        names = set(commons)
        for struct_name, (struct, span, at) in commons.items():
            schema.commons[struct_name] = self._fields(struct, span, names, at)
        schema.fields = self._fields(data, versions, names, line)
        for struct_name in commons:
            if struct_name in _reachable(schema, schema.commons[struct_name]):
                self._problem(self._line(struct_name), f'struct "{struct_name}" contains itself')
        return schema

    def _objects(self, data: dict[str, Any], key: str, line: int) -> list[dict[str, Any]]:
        value = data.get(key, [])
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value
        self._problem(line, f'"{key}" is not a list of objects')
        return []

    def _fields(
        self, data: dict[str, Any], span: Range, commons: set[str], line: int
    ) -> list[SchemaField]:
        result: list[SchemaField] = []
        for entry in self._objects(data, "fields", line):
            name = self._name(entry, line)
            line = self._line(name, line)
            read = self._field(entry, name, span, commons, line)
            if read:
                if any(other.name == read.name for other in result):
                    self._problem(line, f'two fields have the name "{name}"')
                result.append(read)
        return result

    def _field(
        self, data: dict[str, Any], name: str, span: Range, commons: set[str], line: int
    ) -> SchemaField | None:
        tagged = self._range(self._text(data, "taggedVersions", line, "none"), line)
        # A tagged field without "versions" has the versions of its tag.
        declared = (
            self._range(self._text(data, "versions", line), line) if "versions" in data else tagged
        )
        if declared is None and tagged is None and "versions" not in data:
            self._problem(line, f'field "{name}": "versions" is missing')
        versions = intersect(declared, span)
        if declared is None or versions is None:
            return None
        tag = self._number(data, "tag", line)
        if tagged and intersect(tagged, versions) != versions:
            self._problem(
                line,
                f'field "{name}" has a tag in some of its versions only, which definitions do not support',
            )
        if (tag is None) != (tagged is None):
            self._problem(line, f'field "{name}" needs both "tag" and "taggedVersions", or neither')
        flexible = self._text(data, "flexibleVersions", line, "0+")
        if flexible not in {"0+", "none"}:
            self._problem(line, f'field "{name}": "flexibleVersions" can only be "none"')
        nullable = self._range(self._text(data, "nullableVersions", line, "none"), line)
        spelled = self._text(data, "type", line)
        element = spelled.removeprefix("[]")
        if not _NAME.fullmatch(element):
            self._problem(line, f'field "{name}": {json.dumps(spelled)} is not a type')
        result = SchemaField(
            name=name[:1].upper() + name[1:],
            type=element if element in _SCALARS else "",
            array=spelled.startswith("[]"),
            versions=versions,
            declared=declared,
            nullable=intersect(nullable, versions),
            tag=tag,
            default=None,
            flexible=flexible != "none",
            about=self._text(data, "about", line, ""),
            line=line,
            struct="" if element in _SCALARS else element,
            ignorable=self._flag(data, "ignorable", line),
            entity=self._text(data, "entityType", line, ""),
        )
        if element not in _SCALARS:
            if "fields" in data:
                result.fields = self._fields(data, versions, commons, line)
            elif element in commons:
                result.common = element
            else:
                self._problem(line, f'field "{name}": unknown type "{spelled}"')
        result.default = self._default(data, result, line)
        return result

    def _default(self, data: dict[str, Any], spec: SchemaField, line: int) -> str | None:
        """The default in the language, or None for the default of the type."""
        value = data.get("default")
        if spec.type == "records":
            return "null" if spec.nullable else None
        # Kafka's generator reads a JSON null as "no default". Only the string "null" means null.
        if value is None:
            return None
        text = json.dumps(value) if isinstance(value, bool | int | float) else str(value)
        if text == "null":
            if not spec.nullable:
                self._problem(
                    line, f'field "{spec.name}" has the default null, but is never nullable'
                )
            return "null"
        if spec.array or not spec.type or spec.type in {"bytes", "uuid"}:
            if text:
                self._problem(line, f'field "{spec.name}": no such default: "{text}"')
            return None
        if spec.type == "bool" and text not in {"true", "false", ""}:
            self._problem(line, f'field "{spec.name}": no such default: "{text}"')
        if spec.type in _INTEGERS and text:
            low, high = _INTEGERS[spec.type]
            try:
                number = int(text, 0)
            except ValueError:
                number = high + 1
            if not low <= number <= high:
                self._problem(
                    line, f'field "{spec.name}": the default {text} is not a value of {spec.type}'
                )
            return text if number else None
        if spec.type == "float64" and text:
            try:
                return text if float(text) else None
            except ValueError:
                self._problem(
                    line, f'field "{spec.name}": the default {text} is not a value of float64'
                )
        if re.search(r"[()\n]", text):
            self._problem(line, f'field "{spec.name}": the default "{text}" contains parentheses')
        return None if text in {"", "false"} else text


def _reachable(schema: Schema, fields: list[SchemaField]) -> set[str]:
    """The shared structs that ``fields`` use, at any depth."""
    found: set[str] = set()
    todo = list(fields)
    while todo:
        item = todo.pop()
        todo += item.fields or []
        if item.common and item.common not in found:
            found.add(item.common)
            todo += schema.commons.get(item.common, [])
    return found


def _pair_up_old_records(schemas: list[Schema]) -> list[Schema]:
    """Convert coordinator records of Kafka before 4.0 to the form of Kafka 4.0.

    The old records have the type `data`, and pairs of names XKey and XValue in a folder. The version of the key
    is the number of the record type. In Kafka 4.0 this number is ``apiKey``, and the version is 0.
    """
    places = {(schema.path.parent, schema.name): schema for schema in schemas}
    for (folder, name), key in places.items():
        value = places.get((folder, f"{name.removesuffix('Key')}Value"))
        if not name.endswith("Key") or key.kind != "data" or not value or value.kind != "data":
            continue
        if key.versions and all(item.versions == key.versions for item in key.fields):
            key.kind, value.kind = "coordinator-key", "coordinator-value"
            key.key = value.key = key.versions[1]
            key.versions = (0, 0)
            for item in key.fields:
                item.versions = item.declared = (0, 0)
                item.nullable = (0, 0) if item.nullable else None
    return schemas


# Merging


def _group(schemas: list[Schema]) -> Iterator[list[Schema]]:
    """Group the schemas of each message, the winner first.

    Requests and responses are matched by key, because Kafka has renamed some. Other messages are matched by
    name.
    """
    groups: dict[tuple[str, object], list[Schema]] = {}
    for schema in schemas:
        by_key = schema.kind in {"request", "response"}
        identity = (schema.kind, schema.key) if by_key else ("", schema.name)
        groups.setdefault(identity, []).append(schema)
    for group in groups.values():
        # sorted() is stable: among equal versions, the schema of the first folder comes first.
        yield sorted(group, key=lambda schema: -schema.versions[1] if schema.versions else 1)


def _merge(group: list[Schema], warnings: list[str]) -> Schema | None:
    result = group[0]
    if result.versions is None:
        warnings.append(f"{result.name}: skipped, because no schema contains a version of it")
        return None
    if result.unstable:
        warnings.append(f"{result.name}: the last version, {result.span[1]}, is unstable")
    for name in sorted({schema.name for schema in group} - {result.name}):
        warnings.append(f"{result.name} has the name {name} in other schemas")
    for older in group[1:]:
        if older.versions is not None and older.versions[0] < result.span[0]:
            _Merger(result, older, warnings).merge()
    return result


class _Merger:
    """Adds the versions of ``old`` that are lower than those of ``new`` to ``new``, in place."""

    def __init__(self, new: Schema, old: Schema, warnings: list[str]) -> None:
        self.new = new
        self.old = old
        self.warnings = warnings
        self.low = new.span[0]
        self.done: dict[str, list[SchemaField]] = {}

    def _fail(self, message: str) -> SchemaError:
        return SchemaError(self.new.path, 0, f"{message} (merging with {self.old.path})")

    def merge(self) -> None:
        new, old = self.new, self.old
        if old.span[1] < self.low - 1:
            raise self._fail(f"no schema of {new.name} has version {self.low - 1}")
        if new.kind != old.kind:
            raise self._fail(f"{new.name} has type {new.kind} here and type {old.kind} there")
        below = (old.span[0], self.low - 1)
        old_flexible = old.flexible_from is not None and old.flexible_from < self.low
        if old_flexible and new.flexible_from != self.low:
            raise self._fail(f"{new.name} is no longer flexible from version {self.low} on")
        old.fields = self._clip(old.fields, below)
        old.commons = {name: self._clip(fields, below) for name, fields in old.commons.items()}
        for name, fields in old.commons.items():
            if name in new.commons:
                self._merge_common(name, fields)
            else:
                new.commons[name] = fields
        new.fields = self._merge_fields(new.fields, old.fields, new.name)
        new.versions = (below[0], new.span[1])
        new.older.append((below, old.release))
        if old_flexible:
            new.flexible_from = old.flexible_from

    def _clip(self, fields: list[SchemaField], span: Range) -> list[SchemaField]:
        kept = []
        for item in fields:
            versions = intersect(item.versions, span)
            if versions:
                item.versions = versions
                item.nullable = intersect(item.nullable, span)
                item.fields = None if item.fields is None else self._clip(item.fields, span)
                kept.append(item)
        return kept

    def _merge_common(self, name: str, old: list[SchemaField]) -> None:
        if name in self.done:
            if not _same_layout(self.done[name], old):
                raise self._fail(f'{self.new.name}: the struct "{name}" has two older forms')
            return
        self.done[name] = old
        self.new.commons[name] = self._merge_fields(self.new.commons[name], old, name)

    def _merge_fields(
        self, new: list[SchemaField], old: list[SchemaField], path: str
    ) -> list[SchemaField]:
        by_name = {item.name: item for item in new}
        shared = [item.name for item in old if item.name in by_name]
        order = merge_order([item.name for item in old], list(by_name))
        if order is None:
            raise self._fail(f"{path}: the order of the fields {', '.join(shared)} differs")
        for older in old:
            if older.name in by_name:
                self._merge_field(by_name[older.name], older, f"{path}.{older.name}")
        for newer in new:
            if newer.name not in shared and newer.declared[0] < newer.versions[0] == self.low:
                self.warnings.append(
                    f"{path}.{newer.name}: the schema contains it below version {self.low}, but "
                    f"{self.old.path} does not"
                )
        merged = {item.name: item for item in old} | by_name
        return [merged[name] for name in order]

    def _merge_field(self, new: SchemaField, old: SchemaField, path: str) -> None:
        alias = {"records": "bytes"}
        if (alias.get(new.type, new.type), new.array) != (alias.get(old.type, old.type), old.array):
            raise self._fail(f"{path} has another type")
        if new.tag != old.tag:
            raise self._fail(f"{path} has tag {new.tag} here and tag {old.tag} there")
        if new.flexible != old.flexible:
            raise self._fail(f'{path} differs in "flexibleVersions"')
        if old.versions[1] + 1 != new.versions[0]:
            raise self._fail(
                f"{path} is missing between versions {old.versions[1]} and {new.versions[0]}"
            )
        if new.default != old.default:
            self.warnings.append(
                f"{path}: the default is {new.default or 'none'}, not {old.default or 'none'} as in the "
                "older schema"
            )
        old_null, new_null = old.nullable, new.nullable
        if old_null and new_null and old_null[1] + 1 != new_null[0]:
            raise self._fail(
                f"{path} is nullable up to version {old_null[1]} and again from {new_null[0]}"
            )
        nulls = [span for span in (old_null, new_null) if span]
        new.nullable = (nulls[0][0], nulls[-1][1]) if nulls else None
        new.versions = (old.versions[0], new.versions[1])
        old_fields = self.old.commons[old.common] if old.common else old.fields
        if old_fields is not None:
            if new.common:
                if new.common != old.common:
                    self._merge_common(new.common, old_fields)
            else:
                new.fields = self._merge_fields(new.fields or [], old_fields, path)


def _same_layout(one: list[SchemaField], other: list[SchemaField]) -> bool:
    def key(item: SchemaField) -> tuple[object, ...]:
        inner = [key(child) for child in item.fields or []]
        null = item.nullable
        return (item.name, item.type, item.array, item.versions, null, item.tag, item.common, inner)

    return [key(item) for item in one] == [key(item) for item in other]


def _unpaired(schemas: list[Schema]) -> Iterator[SchemaError]:
    """Report responses without a request, or with other versions than their request."""
    requests = {schema.name: schema for schema in schemas if schema.kind == "request"}
    for schema in schemas:
        if schema.kind != "response":
            continue
        request = requests.get(f"{schema.base}Request")
        if request is None or request.key != schema.key:
            yield SchemaError(schema.path, 0, f"{schema.name} has no request")
        elif request.versions != schema.versions:
            yield SchemaError(
                schema.path, 0, f"{schema.name} and its request have different versions"
            )
        elif request.flexible_from != schema.flexible_from:
            yield SchemaError(
                schema.path, 0, f"{schema.name} and its request have different flexible versions"
            )


# Adding what the schemas lack


def _add_facts(schema: Schema) -> None:
    schema.file = _file_name(schema)
    schema.version_prefixed = schema.name in VERSION_PREFIXED or schema.kind.startswith(
        "coordinator-"
    )
    # The version of a record key is the type of the record. A single version is not written.
    lone = schema.name in VERSION_PREFIXED and schema.versions == (0, 0)
    schema.open_ended = schema.flexible_from is None and (lone or schema.kind == "coordinator-key")
    if schema.kind == "request":
        schema.routing = ROUTING.get(schema.base, "")


def _module(path: Path) -> str:
    """Kafka's module of a schema: the nearest folder that identifies one."""
    folders = [
        re.sub(r"^kafka-|-[0-9].*$", "", part) for part in path.parent.parts if part not in "/"
    ]
    for folder in reversed(folders):
        if folder in MODULE_FILES:
            return MODULE_FILES[folder]
    telling = [folder for folder in folders if folder not in _IDLE_FOLDERS]
    return re.sub(r"\W+", "_", telling[-1], flags=re.ASCII).lower() if telling else "records"


def _file_name(schema: Schema) -> str:
    if schema.kind in {"request", "response"}:
        return snake_case(schema.base)
    if schema.kind == "header":
        return "headers"
    if schema.kind == "data":
        return DATA_FILES.get(schema.name) or snake_case(schema.name.removesuffix("Data"))
    return _module(schema.path)
