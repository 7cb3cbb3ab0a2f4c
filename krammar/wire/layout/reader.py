"""Reads values of a layout, and stores where each one was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from krammar.wire.errors import DecodeError
from krammar.wire.layout.writer import joined, too_many_empty
from krammar.wire.limits import MAX_ZERO_WIDTH
from krammar.wire.primitives import LENGTH_SIZES


@dataclass(slots=True)
class Node:
    """A value and its bytes, from ``offset`` up to but not including ``end``."""

    name: str
    type: str
    offset: int
    end: int
    value: Any = None
    enum: str = ""
    children: list[Node] = field(default_factory=list)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Node]]:
        """Yield this node and all nodes below it, with their depths."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


class Reader:
    """The position in the bytes, and the path of the current field."""

    def __init__(self, title: str, data: bytes, offset: int, copy: bool = True) -> None:
        self.title = title
        self.data = data
        self.view = data if copy else cast(bytes, memoryview(data))
        self.pos = offset
        self.path: list[str] = []
        self.keep = True
        self.nodes: list[Node] | None = None
        self._empty = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.pos

    def at(self, step: str, type_: Any) -> _Step:
        return _Step(self, step, type_)

    def note(self, value: Any) -> None:
        """Store the value that was just read in the tree, if there is one."""
        if self.nodes is not None:
            self.nodes[-1].value = value

    def error(self, message: str, offset: int | None = None) -> DecodeError:
        path = joined(self.path)
        place = f"{path}: " if path else ""
        return DecodeError(
            f"{self.title}: {place}{message}",
            path=path,
            offset=self.pos if offset is None else offset,
        )

    def count_empty(self, number: int, offset: int) -> None:
        """Count elements without bytes. Raises DecodeError if the message has too many of them."""
        self._empty += number
        if self._empty > MAX_ZERO_WIDTH:
            raise self.error(too_many_empty(number, self._empty), offset)

    def need(self, size: int) -> None:
        if size > self.left:
            unit = "byte" if size == 1 else "bytes"
            raise self.error(f"needs {size} {unit} at offset {self.pos}, {max(0, self.left)} left")

    def peek(self, size: int) -> bytes:
        self.need(size)
        return self.data[self.pos : self.pos + size]

    def take(self, size: int) -> bytes:
        data = self.peek(size)
        self.pos += size
        return data

    def slice(self, size: int) -> bytes:
        """Read a field of bytes, as bytes or as a memoryview."""
        self.need(size)
        self.pos += size
        return self.view[self.pos - size : self.pos]

    def unsigned(self, bits: int = 32) -> int:
        begin = self.pos
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift >= (35 if bits == 32 else 70):
                break
        if byte > 127 or value >= 1 << bits:
            raise self.error(f"the varint at offset {begin} does not fit into {bits} bits", begin)
        return value

    def zigzag(self, bits: int) -> int:
        value = self.unsigned(bits)
        return (value >> 1) ^ -(value & 1)

    def length(self, prefix: str, nullable: bool) -> int | None:
        """Read a length or count. None for null."""
        begin = self.pos
        if prefix == "uvarint":
            length = self.unsigned() - 1
        elif prefix == "unsigned":
            length = self.unsigned()
        elif prefix == "varint":
            length = self.zigzag(32)
        else:
            length = int.from_bytes(self.take(LENGTH_SIZES[prefix]), "big", signed=True)
        if length >= 0:
            return length
        if nullable:
            return None
        if length == -1:
            raise self.error(f"null at offset {begin}, which this version does not allow", begin)
        raise self.error(f"a negative length of {length} at offset {begin}", begin)

    def tag_heads(self) -> Iterator[tuple[int, int]]:
        """Read the number of tagged fields, then yield the tag and the size in bytes of each.

        The caller reads the bytes before it asks for the next tag.
        """
        with self.at(".unknown_tags", None):
            number = self.unsigned()
            if number > len(self.data):
                raise self.error(
                    f"{number} tagged fields need at least {number * 2} bytes at offset {self.pos}, "
                    f"{self.left} left"
                )
            self.note(number)
        before = -1
        for _ in range(number):
            begin = self.pos
            with self.at(".unknown_tags", None):
                tag = self.unsigned()
                size = self.unsigned()
                if tag <= before:
                    raise self.error(
                        f"tag {tag} at offset {begin} does not ascend: {before} stood before it",
                        begin,
                    )
                if size > self.left:
                    raise self.error(
                        f"tag {tag} needs {size} bytes at offset {self.pos}, {self.left} left"
                    )
                self.note(f"tag {tag}, {size} bytes")
            before = tag
            yield tag, size


class _Step:
    """A step of a reader's path. It is a class because a generator would be twice as slow."""

    __slots__ = ("node", "reader", "step", "type")

    def __init__(self, reader: Reader, step: str, type_: Any) -> None:
        self.reader = reader
        self.step = step
        self.type = type_

    def __enter__(self) -> None:
        reader = self.reader
        reader.path.append(self.step)
        if reader.nodes is not None:
            name = self.step.lstrip(".")
            type_ = self.type
            self.node = Node(
                name,
                "" if type_ is None else str(type_),
                reader.pos,
                reader.pos,
                None,
                getattr(type_, "enum", ""),
            )
            reader.nodes[-1].children.append(self.node)
            reader.nodes.append(self.node)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        reader = self.reader
        reader.path.pop()
        if reader.nodes is not None:
            reader.nodes.pop()
            self.node.end = reader.pos
