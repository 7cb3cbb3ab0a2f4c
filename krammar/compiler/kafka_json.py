"""Writes protocols as Apache Kafka's JSON message schemas. ``importer`` reads them again.

Kafka's schemas have no enums, varints, nested arrays, counted bytes, elements that can be null, and some numbers. Enums
become integers. Structs with the others cannot be written.
"""

from __future__ import annotations

import json
import textwrap
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import copysign
from typing import Any
from uuid import UUID

from krammar.compiler import ir, layout
from krammar.compiler.front.source import HEADERS
from krammar.compiler.header_versions import by_version, header_versions, runs, usual_headers
from krammar.compiler.kafka_facts import CLUSTER_ACTIONS, READS_NEWER, ROUTING, VERSION_PREFIXED
from krammar.compiler.layout_table import layout_table

# Keys are of the type int16.
_MAX_KEY = 0x7FFF
# Types that Kafka's schemas do not have.
_UNKNOWN = frozenset({"uint8", "uint64", "float32"})
# Kafka's generator refuses schemas with others.
_ENTITIES = frozenset({"transactionalId", "producerId", "groupId", "topicName", "brokerId"})


class _Unsupported(Exception):
    """Kafka's schemas cannot express a field."""


@dataclass(slots=True)
class Exported:
    """Schemas by file name (``FetchRequest.json``), and what they do not contain.

    ``refused`` has the reason for each struct that a schema cannot express. ``warnings`` name what is missing in the
    schemas of others.
    """

    files: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def export(protocol: ir.Protocol) -> Exported:
    """Return the schemas of all structs that can be encoded alone."""
    return _Exporter(protocol).export()


class _Exporter:
    def __init__(self, protocol: ir.Protocol) -> None:
        self.structs = {
            struct.name: struct
            for file in protocol.files
            for struct in file.structs
            if struct.encoding and file.path != HEADERS
        }
        self.requests = {}
        self.pushes = {push.struct.name for push in protocol.pushes}
        for request in protocol.requests:
            self.requests[request.struct.name] = request
            if request.response is not None:
                self.requests[request.response.name] = request

    def export(self) -> Exported:
        result = Exported()
        for name, struct in sorted(self.structs.items()):
            try:
                schema, warnings = self._schema(struct)
            except _Unsupported as problem:
                result.refused[name] = str(problem)
                continue
            result.warnings += [f"{name}: {warning}" for warning in warnings]
            lines = textwrap.wrap(" ".join(struct.doc.split()), 97, break_on_hyphens=False)
            doc = "".join(f"// {line}\n" for line in lines)
            result.files[f"{name}.json"] = doc + _dump(schema) + "\n"
        for request in self.requests.values():
            # A request and its response are a pair, also for Kafka's generator.
            names = [each.name for each in (request.struct, request.response) if each is not None]
            for name in names:
                if any(each in result.refused for each in names):
                    result.files.pop(f"{name}.json", None)
                    other = next(each for each in names if each in result.refused)
                    result.refused.setdefault(name, f"{other} cannot be expressed")
        result.warnings = [w for w in result.warnings if w.partition(":")[0] not in result.refused]
        return result

    def _schema(self, struct: ir.Struct) -> tuple[dict[str, Any], list[str]]:
        """The schema of a struct, and warnings."""
        warnings = []
        if struct.name in self.pushes:
            raise _Unsupported("it is a push, and Kafka's servers send only responses")
        kind, key = self._kind(struct)
        request = self.requests.get(struct.name)
        if request is not None and request.response is None:
            raise _Unsupported("it is `one way`, and each of Kafka's requests has a response")
        if key is not None and not 0 <= key <= _MAX_KEY:
            raise _Unsupported(f"its key is {key}, and those of Kafka are from 0 to {_MAX_KEY}")
        if struct.reads_newer and struct.name not in READS_NEWER:
            raise _Unsupported("a schema cannot say that newer versions are read as the newest")
        if struct.name in READS_NEWER and not struct.reads_newer:
            raise _Unsupported(f"Kafka reads newer versions of {struct.name} as the newest")
        if request is not None and request.response_key is not None:
            raise _Unsupported("it has a response key, and Kafka's responses have none")
        fields = list(struct.fields)
        high = layout_table(struct).max_version
        if kind.startswith("coordinator-") or struct.name in VERSION_PREFIXED:
            fields = fields[1:]  # Kafka writes the version before these messages
            if kind != "coordinator-key" and struct.fields[0].default != struct.min_version:
                raise _Unsupported("its Version is not in the schema, and so is its default")
        open_ended = struct.flexible_from is None and (
            kind == "coordinator-key"
            or (struct.name in VERSION_PREFIXED and (struct.min_version, high) == (0, 0))
        )
        if open_ended and (struct.max_version is not None or struct.min_version):
            raise _Unsupported("it has a first or last version, and Kafka's accepts every version")
        if struct.max_version is None and not open_ended:
            warnings.append(
                f"the definition has no last version; the schema ends with version {high}"
            )
        if any(item.throttle_from is not None for item in struct.fields):
            warnings.append("the schema does not say from which version on the broker throttles")
        span = ir.VersionRange(struct.min_version, high)
        flexible = struct.flexible_from
        commons = _Commons(struct, ir.VersionRange(flexible) if flexible is not None else None)
        schema: dict[str, Any] = {} if key is None else {"apiKey": key}
        schema |= {
            "type": kind,
            "name": struct.name,
            "validVersions": _range(span, None),
            "flexibleVersions": "none" if flexible is None else f"{flexible}+",
            "fields": _fields(fields, struct, span, commons),
        }
        if request is not None and (headers := self._header_versions(request, struct)):
            schema["headerVersions"] = headers
        shared = list(commons.schemas(span))
        if commons.reserved:
            tags = ", ".join(map(str, sorted(commons.reserved)))
            warnings.append(f"the schema does not reserve tags: {tags}")
        if request is not None and kind == "request":
            api = struct.name.removesuffix("Request")
            routing = request.routing
            if routing != ROUTING.get(api, ""):
                warnings.append(
                    f"the schema does not say where to send the request: {routing or 'any'}"
                )
            if request.cluster_action != (api in CLUSTER_ACTIONS):
                warnings.append(
                    "the schema does not say that the request is "
                    f"{'a' if request.cluster_action else 'no'} cluster action"
                )
        return schema | ({"commonStructs": shared} if shared else {}), warnings

    def _header_versions(self, request: ir.Request, struct: ir.Struct) -> dict[str, str]:
        """The versions of headers (KIP-1313) in all versions of a message, from 0 on.

        Empty if they are the usual ones.
        """
        tops = (self.structs.get(name) for name in ("RequestHeader", "ResponseHeader"))
        maxima = [2 if top is None else layout_table(top).max_version for top in tops]
        found = header_versions(request, *maxima)
        first = request.struct
        usual = usual_headers(first.name, first.min_version, first.flexible_from)
        pairs, expected = found.request, usual.request
        if first is not struct:
            pairs, expected = found.response, usual.response
        span = (first.min_version, layout_table(first).max_version)
        headers = by_version(pairs, *span)
        if headers == by_version(expected, *span):
            return {}
        found_runs = runs(headers)
        firsts = [0, *(low for low, _ in found_runs[1:])]
        lasts = [*(low - 1 for low in firsts[1:]), None]
        return {
            f"{low}+" if high is None else f"{low}-{high}" if high > low else f"{low}": str(header)
            for low, high, (_, header) in zip(firsts, lasts, found_runs, strict=True)
        }

    def _kind(self, struct: ir.Struct) -> tuple[str, int | None]:
        """The type of a schema and its ``apiKey``."""
        name = struct.name
        if name in self.requests:
            request = self.requests[name]
            return "request" if request.struct is struct else "response", request.key
        if name in ("RequestHeader", "ResponseHeader"):
            return "header", None
        # The records of coordinators are pairs XKey and XValue. The version of the key is the type of the record.
        for end, other in (("Key", "Value"), ("Value", "Key")):
            partner = self.structs.get(f"{name.removesuffix(end)}{other}")
            if name.endswith(end) and partner and struct.version_field and partner.version_field:
                number = (struct if end == "Key" else partner).fields[0].default
                return f"coordinator-{end.lower()}", int(str(number))
            if name.endswith(end) and partner:
                raise _Unsupported(
                    f"the names {name} and {partner.name} stand for records of a coordinator, which begin with "
                    "a version"
                )
        self._check_version(struct)
        return "data", None

    @staticmethod
    def _check_version(struct: ir.Struct) -> None:
        """Raise _Unsupported if a schema would give a plain struct a version field, or take one from it."""
        if struct.version_field is not None:
            return
        first = struct.fields[0] if struct.fields else None
        versions = ir.VersionRange(struct.min_version, struct.max_version)
        if (
            first is not None
            and (first.name, first.type) == ("Version", ir.PRIMITIVES["int16"])
            and first.versions.covers(versions)
        ):
            raise _Unsupported("a schema cannot say that its Version does not select its version")
        if struct.name in VERSION_PREFIXED:
            raise _Unsupported(f"Kafka writes a version before {struct.name}")


class _Commons:
    """Names the structs of a message, and collects those that several fields can share.

    ``flexible`` are the flexible versions of the message, or None. ``reserved`` are all reserved tags.
    """

    def __init__(self, struct: ir.Struct, flexible: ir.VersionRange | None) -> None:
        self.flexible = flexible
        self._message = struct.name
        self.reserved: set[int] = set()
        self._found: dict[str, ir.Struct] = {}

    def name(self, struct: ir.Struct) -> str:
        if not struct.anonymous:
            self._found.setdefault(struct.class_name, struct)
        # Imports remove the name of the message, which many of Kafka's structs begin with.
        short = struct.class_name.removeprefix(self._message)
        twice = short != struct.class_name and short[:1].isupper()
        return f"{self._message}{struct.class_name}" if twice else struct.class_name

    def schemas(self, span: ir.VersionRange) -> Iterator[dict[str, Any]]:
        done = 0
        while done < len(self._found):  # structs contain further ones
            struct = list(self._found.values())[done]
            fields = _fields(struct.fields, struct, span, self)
            yield {"name": self.name(struct), "versions": _range(span, span), "fields": fields}
            done += 1


def _fields(
    items: Sequence[ir.Field], struct: ir.Struct, span: ir.VersionRange, commons: _Commons
) -> list[dict[str, Any]]:
    """Those fields of a struct that are ``items``. In versions that are not flexible, tagged fields do not exist."""
    found = []
    commons.reserved |= {each.tag for each in struct.reserved_tags}
    # Kafka's generator, too, treats fields that no version has as absent.
    present = [(item, v) for item in items if (v := item.versions.intersect(span)) is not None]
    tags = {item.tag for item, _ in present if item.tag is not None}
    for each in struct.reserved_tags:
        if any(tag > each.tag for tag in tags):
            raise _Unsupported(
                f"tag {each.tag} of {struct.name} is reserved, and schemas have no gaps"
            )
    for item in items:
        if item.tag is not None and item.tag not in tags and any(tag > item.tag for tag in tags):
            raise _Unsupported(
                f"no version has {item.name}, whose tag is {item.tag}, and schemas have no gaps"
            )
    for item, versions in present:
        if item.tag is None:
            found.append(_field(item, versions, span, commons))
        elif commons.flexible is not None and (tagged := versions.intersect(commons.flexible)):
            found.append(_field(item, tagged, span, commons))
    return found


def _field(
    item: ir.Field, versions: ir.VersionRange, span: ir.VersionRange, commons: _Commons
) -> dict[str, Any]:
    spelled, nullable, inner = _type(item, commons)
    result: dict[str, Any] = {
        "name": item.name,
        "type": spelled,
        "versions": _range(versions, span),
    }
    if nullable is not None and (null := nullable.intersect(versions)) is not None:
        result["nullableVersions"] = _range(null, span)
    if item.tag is not None:
        result |= {"tag": item.tag, "taggedVersions": _range(versions, span)}
        # Kafka's generator accepts nothing else.
        if not str(result["taggedVersions"]).endswith("+"):
            raise _Unsupported(f"the tag of {item.name} ends with version {versions.max}")
        if nullable is not None and nullable.intersect(versions) != versions:
            raise _Unsupported(f"{item.name} has a tag and is nullable in some versions only")
    default = _default(item)
    if default is not None:
        result["default"] = default
    if not item.flexible and isinstance(item.type, ir.Text):
        result["flexibleVersions"] = "none"
    elif (
        not item.flexible
        and isinstance(item.type, ir.Array | ir.StructType)
        and commons.flexible is not None
    ):
        what = "an array" if isinstance(item.type, ir.Array) else "a struct"
        raise _Unsupported(f"{item.name} is {what} that is `not flexible`")
    if item.ignorable:
        result["ignorable"] = True
    if item.entity in _ENTITIES:
        result["entityType"] = item.entity
    if item.doc:
        result["about"] = " ".join(item.doc.split())
    if inner is not None and inner.anonymous:
        result["fields"] = _fields(inner.fields, inner, span, commons)
    return result


def _type(
    item: ir.Field, commons: _Commons
) -> tuple[str, ir.VersionRange | None, ir.Struct | None]:
    """The type of a field in JSON, the versions in which it is nullable, and its struct."""
    type_, prefix, nullable = item.type, "", None
    if isinstance(type_, ir.Array):
        if type_.length:
            raise _Unsupported(f"the count of {item.name} is {_article(type_.length)}")
        nullable, prefix, type_ = type_.nullable, "[]", type_.element
        if getattr(type_, "nullable", None):
            raise _Unsupported(f"the elements of {item.name} can be null")
    match type_:
        case ir.Primitive(name) | ir.EnumType(ir.Enum(type=ir.Primitive(name))):
            if name in _UNKNOWN:
                raise _Unsupported(f"the type of {item.name} is {name}")
            return prefix + name, nullable, None
        case ir.Varint(name):
            raise _Unsupported(f"the type of {item.name} is {name}")
        case ir.Text(kind, null, length=""):
            records = kind == "bytes" and item.default is None and item.name in layout.RECORDS
            records = records and not prefix
            return prefix + ("records" if records else kind), nullable or null, None
        case ir.StructType(struct, null) if struct.version_field is None:
            if null and prefix:
                raise _Unsupported(f"elements of {item.name} can be null")
            if type_.presence_bool:
                raise _Unsupported(f"a bool precedes {item.name}: nullable-bool")
            if null:
                nullable = ir.ALL_VERSIONS
            return prefix + commons.name(struct), nullable, struct
        case ir.Array():
            raise _Unsupported(f"{item.name} is an array of arrays")
        case ir.LengthFieldMinus():
            raise _Unsupported(f"{item.name} is counted by another field")
        case ir.StructType():
            raise _Unsupported(f"{item.name} has a version of its own")
        case ir.Text(kind, length=length):
            raise _Unsupported(f"the type of {item.name} is {length}-{kind}")


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'iu' else 'a'} {word}"


def _default(item: ir.Field) -> str | None:
    """The default in JSON, or None for the default of the type."""
    if isinstance(item.type, ir.StructType) and not item.type.nullable:
        return None
    match item.default:
        case None:
            return "null"
        case bool(value):
            return "true" if value else None
        case UUID(bytes=data):
            # As Kafka writes them: base64 for URLs, without padding.
            return urlsafe_b64encode(data).decode().rstrip("=") if any(data) else None
        case float(value):
            return str(value) if value or copysign(1, value) < 0 else None
        case int() | str():
            return str(item.default) if item.default else None
        case _:
            return None


def _range(versions: ir.VersionRange, span: ir.VersionRange | None) -> str:
    """``3+`` up to the end of ``span``, or else ``3-5`` or ``3``."""
    if span is not None and versions.max in (None, span.max):
        return f"{versions.min}+"
    return str(versions.min) if versions.min == versions.max else f"{versions.min}-{versions.max}"


def _dump(value: Any, depth: int = 0) -> str:
    """Format JSON with one line per field, as in Kafka's schemas."""
    inside = "  " * (depth + 1)
    if isinstance(value, list) and value:
        items = ",\n".join(inside + _dump(each, depth + 1) for each in value)
        return f"[\n{items}\n{'  ' * depth}]"
    if isinstance(value, dict) and (depth == 0 or "fields" in value):
        if depth == 0:
            pairs = ",\n".join(f"{inside}{json.dumps(k)}: {_dump(v, 1)}" for k, v in value.items())
            return f"{{\n{pairs}\n}}"
        pairs = ", ".join(f"{json.dumps(k)}: {_dump(v, depth)}" for k, v in value.items())
        return f"{{ {pairs} }}"
    if isinstance(value, dict):
        return f"{{ {json.dumps(value, ensure_ascii=False)[1:-1]} }}"
    return json.dumps(value, ensure_ascii=False)
