"""The model of a protocol: what a definition says, and its text.

It knows the language as docs/definitions.md describes it, and nothing of krammar's own classes. The generator
builds it, the reference codec encodes with it, and ``Package.files`` writes it as definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

INDENT = "  "


@dataclass(frozen=True)
class Versions:
    """Versions ``first`` to ``last``; without ``last``, the range has no end."""

    first: int = 0
    last: int | None = None

    def __contains__(self, version: int) -> bool:
        # Without a first version there is no end below either: a version field can have any value.
        first = self.first == 0 or version >= self.first
        return first and (self.last is None or version <= self.last)

    def __str__(self) -> str:
        return f"v{self.first}+" if self.last is None else f"v{self.first}-v{self.last}"


ALL = Versions()


@dataclass(frozen=True)
class Number:
    """A fixed-width type or a varint, by its name in the language."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class EnumOf:
    """The integer type of an enum."""

    enum: Enum

    def __str__(self) -> str:
        return f"enum-{self.enum.name}"


@dataclass(frozen=True)
class Text:
    """A string or bytes. ``prefix`` is the type of its length, or empty for that of Kafka."""

    kind: str
    nullable: Versions | None = None
    prefix: str = ""

    def __str__(self) -> str:
        # The length of a `varint-string` can always be negative, which is null.
        nullable = None if self.prefix == "varint" else self.nullable
        return _prefixed(nullable, self.prefix, self.kind)


@dataclass(frozen=True)
class Array:
    """An array. ``prefix`` is the type of its count, or empty for that of Kafka."""

    element: Type
    nullable: Versions | None = None
    prefix: str = ""

    def __str__(self) -> str:
        before = _prefixed(self.nullable, self.prefix, "")
        return f"{before}[{_element(self.element)}]{_hint(self.element)}"


@dataclass(frozen=True)
class Inline:
    """An anonymous struct. Its fields follow on deeper lines. ``flag``: a bool says whether it is null."""

    struct: Struct
    nullable: bool = False
    hint: str = ""
    flag: bool = False

    def __str__(self) -> str:
        before = f"nullable{'-bool' if self.flag else ''}" if self.nullable else ""
        return f"{before}=>{self.hint}"


@dataclass(frozen=True)
class Named:
    """A struct with a name. ``flag``: a bool says whether it is null."""

    struct: Struct
    nullable: bool = False
    flag: bool = False

    def __str__(self) -> str:
        before = f"nullable-{'bool-' if self.flag else ''}" if self.nullable else ""
        return before + self.struct.name


@dataclass(frozen=True)
class Counted:
    """Bytes whose number is the value of the field ``length`` minus ``minus``."""

    length: str
    minus: int

    def __str__(self) -> str:
        return f"length-field-minus => {self.length} - {self.minus}"


Type = Number | EnumOf | Text | Array | Inline | Named | Counted


@dataclass(frozen=True)
class Field:
    """A field. ``default`` is a value, and ``written`` its text with parentheses, or empty."""

    name: str
    type: Type
    default: Any
    written: str = ""
    versions: Versions = ALL
    tag: int | None = None
    classic: bool = False
    ignorable: bool = False
    entity: str = ""
    doc: str = ""
    # The whole line before the annotations, for `ThrottleMillis(2)`.
    shorthand: str = ""
    # Whether it counts the bytes of a later field. Encoding ignores its value.
    is_length: bool = False

    @property
    def is_dropped(self) -> bool:
        """Whether versions without the field drop its value."""
        return self.ignorable or self.is_length

    def lines(self, depth: int) -> Iterator[str]:
        """The lines of the definition."""
        yield from _doc(self.doc, depth)
        notes = [str(self.versions)] if self.versions != ALL else []
        notes += [f"tag {self.tag}"] if self.tag is not None else []
        notes += ["not flexible"] if self.classic else []
        notes += ["ignorable"] if self.ignorable else []
        notes += [f"entity {self.entity}"] if self.entity else []
        text = self.shorthand or f"{self.name}: {self.type}{self.written}"
        yield INDENT * depth + text + (f" // {', '.join(notes)}" if notes else "")
        inner = innermost(self.type)
        if isinstance(inner, Inline):
            yield from inner.struct.body(depth + 1)


@dataclass(frozen=True)
class Struct:
    """A message, a named struct, or an anonymous one without ``name``.

    ``highest`` is the last version, or None if the definition has none; ``implied``: the header does not say it.
    ``role`` is "request", "response", "push", "header", "plain", "versioned" (with version field), "part" (no
    encoding) or "anonymous".
    """

    role: str
    fields: tuple[Field, ...]
    name: str = ""
    lowest: int = 0
    highest: int | None = None
    flexible_from: int | None = None
    key: int = 0
    reserved: tuple[int, ...] = ()
    one_way: bool = False
    # The key in the header of the response, if it is not the request's.
    response_key: int | None = None
    # Pairs of a first version of the message, and the version of its header from it on.
    headers: tuple[tuple[int, int], ...] = ()
    response_headers: tuple[tuple[int, int], ...] = ()
    # Whether versions above the last one are decoded like it.
    reads_newer: bool = False
    # Modifiers that change no bytes: where a request is sent.
    words: tuple[str, ...] = ()
    implied: bool = False
    doc: str = ""

    def flexible(self, version: int) -> bool:
        """Whether the struct itself is flexible at a version."""
        return self.flexible_from is not None and version >= self.flexible_from

    @property
    def encodes(self) -> bool:
        """Whether the struct can be encoded alone."""
        return self.role not in ("part", "anonymous")

    def lines(self) -> Iterator[str]:
        """The lines of the definition."""
        yield from _doc(self.doc, 0)
        yield f"{self.name} =>{self._modifiers()}"
        yield from self.body(1)

    def _modifiers(self) -> str:
        if self.role == "response":
            return ""
        last = [] if self.highest is None or self.implied else [f"max version {self.highest}"]
        first = [f"min version {self.lowest}"] if self.lowest else []
        flexible = [] if self.flexible_from is None else [f"flexible v{self.flexible_from}+"]
        kinds = {
            "request": [f"key {_key(self.key)}"],
            "push": [f"key {_key(self.key)}"],
            "versioned": ["not top level", "with version field"],
            "part": ["not top level", "no encoding"],
        }
        more = ["push"] if self.role == "push" else []
        more += ["one way"] if self.one_way else []
        more += [] if self.response_key is None else [f"response key {_key(self.response_key)}"]
        more += [f"header {_header(*pair)}" for pair in self.headers]
        more += [f"response header {_header(*pair)}" for pair in self.response_headers]
        more += ["newer versions read as the newest"] if self.reads_newer else []
        return " " + ", ".join(
            [*kinds.get(self.role, ["not top level"]), *last, *first, *flexible, *more, *self.words]
        )

    def body(self, depth: int) -> Iterator[str]:
        """The lines of the fields."""
        for item in self.fields:
            yield from item.lines(depth)
        if self.reserved:
            yield f"{INDENT * depth}reserved tag {', '.join(map(str, self.reserved))}"


@dataclass(frozen=True)
class Enum:
    """An enum: its integer type, and its members by value."""

    name: str
    type: str
    members: tuple[tuple[int, str, tuple[str, ...]], ...]
    camelcase: bool = False
    doc: str = ""

    def lines(self) -> Iterator[str]:
        """The lines of the definition."""
        yield from _doc(self.doc, 0)
        yield f"{self.name} {self.type}{' camelcase' if self.camelcase else ''} ("
        for value, name, words in self.members:
            yield f"{INDENT}{value}: {name}" + (f" // {', '.join(words)}" if words else "")
        yield ")"


@dataclass(frozen=True)
class File:
    """A definition file."""

    name: str
    definitions: tuple[Struct | Enum, ...]


@dataclass(frozen=True)
class Use:
    """Definitions of another package."""

    package: Package
    names: tuple[str, ...]


@dataclass(frozen=True)
class Headers:
    """The headers that precede the messages of a package."""

    request: Struct
    response: Struct


@dataclass(frozen=True)
class Package:
    """A folder of definition files."""

    name: str
    contents: tuple[File, ...]
    uses: tuple[Use, ...] = ()
    headers: Headers | None = None

    @property
    def structs(self) -> Iterator[Struct]:
        """Its own structs, in order."""
        for file in self.contents:
            for each in file.definitions:
                if isinstance(each, Struct):
                    yield each

    @property
    def messages(self) -> Iterator[tuple[Struct, Struct | None]]:
        """Its requests, with their responses, and its pushes. Requests that it uses belong to it too."""
        others = [
            each
            for use in self.uses
            for each in use.package.structs
            if each.name in use.names or each.role == "response"
        ]
        structs = [*self.structs, *others]
        responses = {each.key: each for each in structs if each.role == "response"}
        for each in structs:
            if each.role == "request":
                yield each, responses.get(each.key)
            elif each.role == "push":
                yield each, None

    @property
    def files(self) -> dict[str, str]:
        """The texts of the files, by name. The first file has the uses."""
        texts = {}
        for number, file in enumerate(self.contents):
            blocks = []
            if number == 0:
                blocks += [f"use {use.package.name}: {', '.join(use.names)}" for use in self.uses]
            blocks += ["\n".join(each.lines()) for each in file.definitions]
            texts[file.name] = "\n\n".join(blocks) + "\n"
        return texts


@dataclass(frozen=True)
class Protocol:
    """Packages of which later ones can use earlier ones."""

    packages: tuple[Package, ...]
    forms: frozenset[str] = field(default=frozenset(), compare=False)

    def __repr__(self) -> str:
        return self.text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text)  # for hypothesis

    @property
    def text(self) -> str:
        """All definitions, for people."""
        return "\n".join(
            f"---- {package.name}/{name}\n{text}"
            for package in self.packages
            for name, text in package.files.items()
        )


def innermost(type_: Type) -> Type:
    """The type of the innermost elements of an array, or the type itself."""
    while isinstance(type_, Array):
        type_ = type_.element
    return type_


def struct_in(type_: Type) -> Struct | None:
    """The struct that a type contains, at any depth of arrays."""
    inner = innermost(type_)
    return inner.struct if isinstance(inner, (Inline, Named)) else None


NULL_UUID = UUID(int=0)


def zero(type_: Type) -> Any:
    """The default of a field without one in its definition."""
    if isinstance(type_, Number):
        return {
            "bool": False,
            "float32": 0.0,
            "float64": 0.0,
            "uuid": NULL_UUID,
        }.get(type_.name, 0)
    if isinstance(type_, EnumOf):
        return 0
    if isinstance(type_, Text):
        return "" if type_.kind == "string" else b""
    if isinstance(type_, Counted):
        return b""
    if isinstance(type_, Array):
        return []
    if type_.nullable:
        return None
    return defaults(type_.struct)


def defaults(struct: Struct) -> dict[str, Any]:
    """The value of a struct whose fields all have their defaults."""
    return {item.name: item.default for item in struct.fields}


def _key(key: int) -> str:
    return hex(key) if key > 32767 else str(key)


def _header(first: int, version: int) -> str:
    """A header version, and the first version of the message that has it."""
    return f"{version} v{first}+" if first else str(version)


def _prefixed(nullable: Versions | None, prefix: str, kind: str) -> str:
    """A type after the form of its length, and the versions in which it can be null."""
    versions = str(nullable) if nullable not in (None, ALL) else ""
    words = ["nullable" if nullable is not None else "", prefix, kind, versions]
    return "-".join(word for word in words if word)


def _element(type_: Type) -> str:
    if isinstance(type_, Inline):
        return "=>"
    if isinstance(type_, Array):
        return f"[{_element(type_.element)}]"
    return str(type_)


def _hint(type_: Type) -> str:
    inner = innermost(type_)
    return inner.hint if isinstance(inner, Inline) else ""


def _doc(text: str, depth: int) -> Iterator[str]:
    for line in text.split("\n") if text else ():
        yield f"{INDENT * depth}//{' ' if line else ''}{line}".rstrip(" ")
