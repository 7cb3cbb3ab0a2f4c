"""Merges the versions of each message to a ``MessageSchema``, and concludes what a text does not say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count

from krammar.compiler import ir
from krammar.compiler.guide.nodes import (
    Answers,
    GuideMessage,
    GuideNode,
    Modifiers,
    camel,
    given_headers,
)
from krammar.compiler.guide.reader import GuideReader
from krammar.compiler.names import singular, snake_case
from krammar.compiler.schemas import (
    ImportSchemaError,
    MessageSchema,
    Range,
    SchemaField,
    merge_order,
)
from krammar.util.diagnostics import Diagnostics, Position, did_you_mean

# Which tagged fields are arrays.
#
# The guides from Kafka 4.3 on write `nodes<tag: 0> => { id }` for a struct and for an array of structs.


def decide_arrays(
    messages: Iterable[GuideMessage], answers: Mapping[str, bool], diagnostics: Diagnostics
) -> set[str]:
    """Turn tagged fields into arrays where an answer, another version or a plural name says so.

    A name in the plural is only a guess, so it is reported.

    Args:
        answers: whether a field is an array, by its path.

    Returns:
        The paths of all fields that the texts leave open.
    """
    open_: set[str] = set()
    for message in messages:
        nodes: dict[str, list[GuideNode]] = {}
        for root in message.versions.values():
            for path, node in _tagged(root, message.name):
                nodes.setdefault(path, []).append(node)
        for path, forms in nodes.items():
            unsure = [node for node in forms if node.maybe_array]
            if unsure:
                open_.add(path)
                _decide(path, forms, answers.get(path), diagnostics)
    return open_


def _decide(
    path: str, forms: list[GuideNode], answer: bool | None, diagnostics: Diagnostics
) -> None:
    known = {node.brackets > 0 for node in forms if not node.maybe_array}
    unsure = [node for node in forms if node.maybe_array]
    if answer is None and len(known) == 1:
        (answer,) = known
    if answer is None:
        answer = singular(unsure[0].name) != unsure[0].name
        if answer:
            diagnostics.add(
                "W606",
                f"the text does not contain whether the tagged field {path} is an array; it becomes one, "
                "because its name is a plural",
                unsure[0].position,
                f"confirm it with --array {path}=yes, or give --array {path}=no",
            )
    for node in unsure:
        node.brackets, node.maybe_array = int(answer), False


def _tagged(node: GuideNode, path: str) -> Iterator[tuple[str, GuideNode]]:
    """The tagged fields below a node, with their paths."""
    for child in node.fields or []:
        inner = f"{path}.{child.name}"
        if child.tag is not None:
            yield inner, child
        yield from _tagged(child, inner)


# Which versions of a message are flexible, and the headers of the others.

# The first flexible versions of Kafka's headers (KIP-482).
_HEADERS = {"RequestHeader": 2, "ResponseHeader": 1}


class Flexibility:
    """Finds out which versions of the messages of some texts are flexible."""

    def __init__(self, messages: Collection[GuideMessage], diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        roots = [root for message in messages for root in message.versions.values()]
        # The texts with TAG_BUFFER. In others, its absence says nothing.
        self._marked = {root.position.path for root in roots if any(n.marked for n in root.walk())}
        self._any = any(message.header_flexible.values() for message in messages) or any(
            node.compact for root in roots for node in root.walk()
        )

    def first(self, messages: list[GuideMessage]) -> int | None:
        """The first flexible version of messages that share their versions."""
        evidence: dict[int, list[tuple[bool, GuideNode]]] = {}
        for message in messages:
            for version, root in message.versions.items():
                known = self._of(root, self._by_header(message, version))
                if known is not None:
                    evidence.setdefault(version or 0, []).append((known, root))
        first = min((v for v, facts in evidence.items() if any(f for f, _ in facts)), default=None)
        if first is None:
            return None
        for version, facts in sorted(evidence.items()):
            for flexible, root in facts:
                if version >= first and not flexible:
                    self._diagnostics.add(
                        "E605",
                        f"version {version} is not flexible, but version {first} is",
                        root.position,
                        "each struct of a flexible version ends with TAG_BUFFER",
                    )
        return first

    def _by_header(self, message: GuideMessage, version: int | None) -> bool | None:
        """Whether the text's words on headers say that a version is flexible. None if they do not."""
        flexible = _HEADERS.get(message.name)
        unmarked = message.versions[version].position.path not in self._marked
        if flexible is not None and unmarked and self._any and version is not None:
            return version >= flexible
        return message.header_flexible.get(version)

    def _of(self, root: GuideNode, by_header: bool | None) -> bool | None:
        """Whether a message-version is flexible. None if the text does not say it."""
        nodes = list(root.walk())
        if any(node.marked for node in nodes):
            for node in root.walk_flexible():
                if node.fields is not None and not node.marked:
                    self._diagnostics.add(
                        "E607",
                        f"{node.name or 'the message'} does not end with TAG_BUFFER, but other structs of "
                        "this version do",
                        node.position,
                        "add TAG_BUFFER at the end of the line",
                    )
            return True
        if any(node.compact or node.tag is not None for node in nodes) or by_header:
            return True
        marked = root.position.path in self._marked
        if marked or by_header is False or any(node.compact is False for node in nodes):
            return False
        return None


def lower_headers(schemas: Sequence[MessageSchema], diagnostics: Diagnostics) -> None:
    """Add the header version of requests that are not flexible, if the text contains only the flexible one."""
    classic = any(
        schema.kind == "request"
        and (schema.flexible_from is None or schema.flexible_from > schema.span[0])
        for schema in schemas
    )
    for schema in schemas:
        low, high = schema.span
        if schema.kind != "header" or schema.flexible_from != low or low == 0 or not classic:
            continue
        position = Position(schema.path, 1, 1)
        diagnostics.add(
            "W601",
            f"the text does not contain {schema.name} v{low - 1}, the header of versions that are not "
            f"flexible; it gets the fields of v{low}",
            position,
        )
        for item in schema.fields:
            if item.versions[0] == low and item.tag is None:
                item.versions = item.declared = (low - 1, item.versions[1])
                if item.nullable and item.nullable[0] == low:
                    item.nullable = (low - 1, item.nullable[1])
        schema.versions = (low - 1, high)


# Ranges of versions.


class Merger:
    """Merges the versions of each message."""

    def __init__(self, reader: GuideReader, answers: Answers, diagnostics: Diagnostics) -> None:
        self._messages = reader.messages
        self._keys = reader.keys
        self._modifiers = reader.modifiers
        self._pushes = reader.pushes
        self._answers = answers
        self._diagnostics = diagnostics
        self._flexibility = Flexibility(self._messages.values(), diagnostics)
        # Tagged fields of which the texts do not say whether they are arrays.
        self._unsure = decide_arrays(self._messages.values(), answers.arrays, diagnostics)
        self._paths: set[str] = set()
        # The structs of the current message that need a name.
        self._commons: dict[str, list[SchemaField]] = {}

    def merge(self) -> list[MessageSchema]:
        """Return the schemas of all messages. Problems are in the diagnostics.

        Raises:
            ImportSchemaError: an answer concerns no message or field.
        """
        schemas = []
        for name, message in self._messages.items():
            one_way = self._modifiers.get(message.title, Modifiers()).one_way
            is_pair = f"{message.title}Request" in self._messages and not one_way
            if name.endswith("Response") and is_pair:
                continue
            if name.endswith("Request") and name not in self._pushes:
                response = self._messages.get(f"{message.title}Response") if is_pair else None
                schemas += self._together([message, *([response] if response else [])])
            else:
                schemas += self._together([message])
        lower_headers(schemas, self._diagnostics)
        self._check_answers()
        return schemas

    def _together(self, messages: list[GuideMessage]) -> list[MessageSchema]:
        """Merge a message, or a request and its response, which have the same versions."""
        versions = sorted({v for each in messages for v in each.versions if v is not None})
        if not versions:
            versions = [0]
        elif any(None in each.versions for each in messages):
            lone = next(each for each in messages if None in each.versions)
            self._error("E605", f"{lone.name} appears without a version too", lone.versions[None])
            return []
        span = (versions[0], versions[-1])
        flexible_from = self._flexibility.first(messages)
        schemas = []
        for message in messages:
            known = {0 if v is None else v: root for v, root in message.versions.items()}
            self._report_gaps(message, sorted(known), span)
            schema = MessageSchema(
                path=message.position.path,
                kind=_kind(message.name, [each.name for each in messages]),
                name=message.name,
                key=None,
                versions=span,
                flexible_from=flexible_from,
                unstable=False,
                release="",
                file=_file(message),
                open_ended=message.open_ended,
                reads_newer=message.reads_newer,
            )
            if message.name in self._pushes:
                schema.kind = "push"
                schema.key, said = self._pushes[message.name]
                schema.headers = given_headers(said.headers, *span)
            elif schema.kind == "request":
                schema.key = self._key(message)
                said = self._modifiers.get(message.title, Modifiers())
                schema.routing, schema.one_way = said.routing, said.one_way
                schema.cluster_action, schema.response_key = said.cluster_action, said.response_key
                schema.headers = given_headers(said.headers, *span)
            elif schema.kind == "response":
                said = self._modifiers.get(message.title, Modifiers())
                schema.headers = given_headers(said.response_headers, *span)
            elif message.name.endswith("Response") and schema.kind == "data":
                self._diagnostics.add(
                    "W604",
                    f"{message.name} has no request in the text; it becomes a struct without API key",
                    message.position,
                    f"add a {message.title} Request",
                )
            self._commons = schema.commons
            schema.fields = self._fields(known, span, flexible_from, message.name)
            schemas.append(schema)
        return schemas

    def _report_gaps(self, message: GuideMessage, known: list[int], span: Range) -> None:
        missing = sorted({*range(span[0], span[1] + 1)} - {*known})
        if missing:
            self._diagnostics.add(
                "W601",
                f"the text does not contain {message.name} {ir.version_ranges(missing)}",
                message.position,
                "a missing version gets the fields of the version below it, or else of the lowest "
                "version in the text",
            )

    def _key(self, message: GuideMessage) -> int:
        title = message.title
        found = self._keys.get(title, set())
        if title in self._answers.keys:
            found = {self._answers.keys[title]}
        if len(found) == 1:
            return min(found)
        what = "does not contain the API key" if not found else "contains several API keys"
        numbers = f": {', '.join(map(str, sorted(found)))}" if found else ""
        self._diagnostics.add(
            "E603",
            f"the text {what} of {title}{numbers}",
            message.position,
            f"give it with --key {title}=NUMBER",
        )
        return 0

    def _fields(
        self, roots: Mapping[int, GuideNode], span: Range, flexible_from: int | None, path: str
    ) -> list[SchemaField]:
        """Merge the fields of a struct. ``roots`` are its versions in the text, ``span`` all of its versions."""
        known = sorted(roots)
        order: list[str] = []
        forms: dict[str, dict[int, GuideNode]] = {}
        for version in known:
            names = []
            for node in roots[version].fields or []:
                name = camel(node.name)
                names.append(name)
                forms.setdefault(name, {})[version] = node
            merged = merge_order(order, names)
            if merged is None:
                self._error(
                    "E605",
                    f"{path}: the fields have another order in version {version}",
                    roots[version],
                )
                return []
            order = merged
        return [self._field(name, forms[name], known, span, flexible_from, path) for name in order]

    def _field(
        self,
        name: str,
        forms: dict[int, GuideNode],
        known: list[int],
        span: Range,
        flexible_from: int | None,
        path: str,
    ) -> SchemaField:
        present = sorted(forms)
        node = forms[present[-1]]
        path = f"{path}.{node.name}"
        self._paths.add(path)
        begin, end = known.index(present[0]), known.index(present[-1])
        if known[begin : end + 1] != present:
            missing = min({*known[begin : end + 1]} - {*present})
            self._error("E605", f"{path} is missing in version {missing}, but not after it", node)
        versions = (
            span[0] if begin == 0 else present[0],
            span[1] if end == len(known) - 1 else known[end + 1] - 1,
        )
        if any(forms[version].length == "int32" for version in present):
            # It is only shown in flexible versions, because others have it anyway.
            for version in present:
                forms[version].length = forms[version].length or "int32"
        for version in present[:-1]:
            self._same_type(path, forms[version], version, node, present[-1])
        result = SchemaField(
            name=name,
            type=(
                f"{'[' * (node.brackets - 1)}{node.type}{']' * (node.brackets - 1)}"
                if node.fields is None
                else ""
            ),
            array=node.brackets > 0,
            versions=versions,
            declared=versions,
            nullable=self._nullable(path, forms, present, versions),
            tag=node.tag,
            default=self._default(path, node),
            flexible=self._is_flexible(path, forms, flexible_from),
            about="",
            line=node.position.line,
            struct="",
            length=node.length,
            presence_bool=node.presence_bool,
            # As in Kafka's schema. Header 0 of requests has no client id.
            ignorable=path == "RequestHeader.client_id",
            depth=node.brackets if node.fields is not None else 1,
            null_elements=self._null_elements(path, forms, present, versions),
            plain=node.plain,
        )
        # An array that cannot be null is empty by default.
        open_default = result.nullable is not None or not result.array
        if node.tag is not None and open_default and path not in self._answers.defaults:
            self._diagnostics.add(
                "W602",
                f"the text does not contain the default of the tagged field {path}",
                node.position,
                f"it is zero, empty or null; give another one with --default {path}=VALUE",
            )
        if node.fields is not None:
            inner = {version: forms[version] for version in present}
            result.fields = self._fields(inner, versions, flexible_from, path)
            if result.null_elements is not None:
                # Only a struct with a name can be null in an array.
                result.common = next(
                    each
                    for each in (f"{name}{n or ''}" for n in count())
                    if each not in self._commons
                )
                self._commons[result.common] = result.fields
                result.fields = None
        return result

    def _same_type(
        self, path: str, one: GuideNode, version: int, other: GuideNode, last: int
    ) -> None:
        facts = [
            (n.type, n.fields is None, n.brackets, n.length, n.tag, n.records) for n in (one, other)
        ]
        if facts[0] != facts[1]:
            what = "another tag" if facts[0][:4] == facts[1][:4] else "another type"
            self._error(
                "E605",
                f"{path} has {what} in version {version} than in version {last}",
                one,
                "rename the field in one of the versions",
            )

    def _nullable(
        self, path: str, forms: dict[int, GuideNode], present: list[int], versions: Range
    ) -> Range | None:
        null = [v for v in present if forms[v].nullable or path in self._answers.nullable]
        if not null:
            return None
        is_struct = forms[null[0]].fields is not None and not forms[null[0]].brackets
        plain = [v for v in present if v not in null]
        found = _null_range(null, present, versions)
        if is_struct and plain:
            # A presence byte precedes a nullable struct, so other bytes would result.
            self._error("E605", f"{path} is nullable in some of its versions only", forms[null[0]])
        elif found is not None:
            return found
        else:
            self._diagnostics.add(
                "W605",
                f"{path} is nullable in {ir.version_ranges(null)}, but not between them; the definition allows "
                "null in all versions",
                forms[null[0]].position,
            )
        return versions

    def _null_elements(
        self, path: str, forms: dict[int, GuideNode], present: list[int], versions: Range
    ) -> Range | None:
        """The versions in which the elements of an array can be null."""
        null = [version for version in present if forms[version].null_elements]
        if not null:
            return None
        found = _null_range(null, present, versions)
        is_struct = forms[null[0]].fields is not None
        if found is None or (is_struct and found != versions):
            self._error(
                "E605", f"the elements of {path} can be null in some versions only", forms[null[0]]
            )
            return versions
        return found

    def _default(self, path: str, node: GuideNode) -> str | None:
        if path in self._answers.defaults:
            return self._answers.defaults[path]
        nullable = node.nullable or path in self._answers.nullable
        is_struct = node.fields is not None and not node.brackets
        return "null" if nullable and (is_struct or node.records) else None

    def _is_flexible(
        self, path: str, forms: dict[int, GuideNode], flexible_from: int | None
    ) -> bool:
        """Whether a field has compact lengths in flexible versions."""
        flexible = {
            version: node.compact
            for version, node in forms.items()
            if node.compact is not None and flexible_from is not None and version >= flexible_from
        }
        if len({*flexible.values()}) > 1:
            version = next(v for v in sorted(flexible) if not flexible[v])
            self._error("E605", f"{path} is compact in some flexible versions only", forms[version])
        return all(flexible.values())

    def _check_answers(self) -> None:
        """Raise ImportSchemaError if an answer concerns no message or field."""
        titles = {each.title for each in self._messages.values() if each.name.endswith("Request")}
        for option, given, known in (
            ("--key", self._answers.keys, titles),
            ("--nullable", self._answers.nullable, self._paths),
            ("--default", self._answers.defaults, self._paths),
            ("--array", self._answers.arrays, self._unsure),
        ):
            for name in given:
                if name not in known:
                    what = "request" if option == "--key" else "field"
                    hint = did_you_mean(name, known) or f"the texts contain no such {what}"
                    if name in self._paths:
                        hint = "the texts say whether it is an array"
                    path = next(iter(self._messages.values())).position.path
                    raise ImportSchemaError(path, 0, f"{option} {name}: unknown {what} ({hint})")

    def _error(self, code: str, message: str, node: GuideNode, hint: str = "") -> None:
        self._diagnostics.add(code, message, node.position, hint)


def _null_range(null: list[int], present: list[int], versions: Range) -> Range | None:
    """The versions that allow null; None if others are between them. A missing version is like the one below it."""
    begin, end = present.index(null[0]), present.index(null[-1])
    if present[begin : end + 1] != null:
        return None
    low = versions[0] if begin == 0 else null[0]
    return (low, versions[1] if end == len(present) - 1 else present[end + 1] - 1)


def _kind(name: str, pair: list[str]) -> str:
    if name in ("RequestHeader", "ResponseHeader"):
        return "header"
    if name.endswith("Request"):
        return "request"
    return "response" if len(pair) == 2 else "data"


def _file(message: GuideMessage) -> str:
    if message.name in ("RequestHeader", "ResponseHeader"):
        return "headers"
    return snake_case(message.title)
