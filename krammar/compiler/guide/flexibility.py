"""Which versions of a message are flexible, and the headers of the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from krammar.compiler.guide.nodes import GuideMessage, GuideNode
from krammar.compiler.schemas import MessageSchema
from krammar.util.diagnostics import Diagnostics, Position

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
