"""Hypothesis strategies of valid protocols.

A draw of zero is always the simplest choice, so that hypothesis shrinks a failure to the smallest definition. ``FORMS``
names the forms that a protocol can use; a test can leave some out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import strategies as st

from tests.random_definitions import names
from tests.random_definitions.model import (
    ALL,
    Array,
    Counted,
    Enum,
    EnumOf,
    Field,
    Inline,
    Named,
    Number,
    Struct,
    Text,
    Type,
    Versions,
    defaults,
    innermost,
    zero,
)
from tests.random_definitions.reference import bounds

T = TypeVar("T")

FORMS = (
    "packages",  # several packages, with `use`
    "files",  # several files
    "parts",  # named structs without encoding
    "plain",  # named structs at the version of their holder
    "versioned",  # structs with a version field
    "own parts",  # structs of a message: `PingRequest.Part`
    "enums",
    "headers",  # own headers
    "moved headers",  # whose fields are at any place
    "header versions",
    "one way",
    "pushes",
    "response keys",
    "newer versions",  # read as the newest
    "collisions",  # of the names of classes
    "min version",
    "absent",  # fields in no version of their message
    "flexible",
    "tags",
    "reserved",
    "nested",  # anonymous structs
    "nullable structs",
    "arrays",
    "nested arrays",
    "varint arrays",
    "null",
    "null from",
    "null until",
    "nullable names",
    "flags",  # a bool before a struct that can be null
    "prefixes",  # lengths and counts of other types
    "unsigned",  # uint8, uint64, uvarint and uvarlong
    "float32",
    "not flexible",
    "ignorable",
    "entity",
    "defaults",
    "lengths",
    "millis",
    "varints",
    "words",  # where a request is sent
    "docs",
    "hostile names",
    "empty structs",
)

FIXED = ("int8", "bool", "int16", "int32", "int64", "uint16", "uint32", "float64", "uuid")
INTEGERS = ("int8", "int16", "int32", "int64", "uint16", "uint32")
UNSIGNED = ("uint8", "uint64", "uvarint", "uvarlong")
TOP = 6


@dataclass
class Context:
    """Where a field is: the header of its message or named struct, and what is around it."""

    owner: str
    lowest: int
    highest: int | None
    flexible_from: int | None
    # Whether the struct can have tags.
    tags: bool
    holders: tuple[Versions, ...] = ()
    depth: int = 0
    # The stems of the names of classes inside the owner, and the names that are known exactly.
    classes: set[str] = field(default_factory=set)
    known: list[str] = field(default_factory=list)
    # Structs of the owner.
    own: list[Struct] = field(default_factory=list)
    shared: bool = False

    @property
    def top(self) -> int:
        return TOP if self.highest is None else self.highest

    def inside(self, versions: Versions) -> Context:
        return replace(self, holders=(*self.holders, versions), depth=self.depth + 1)


class Maker:
    """Draws the parts of a protocol."""

    def __init__(self, draw: Callable[[Any], Any], forms: frozenset[str]) -> None:
        self._draw = draw
        self.forms = forms
        self.budget = 60
        self.taken: set[str] = set()
        self.keys: set[int] = set()

    # ---- choices ---------------------------------------------------------------------------

    def number(self, low: int, high: int) -> int:
        return int(self._draw(_integers(low, high)))

    def chance(self, form: str, percent: int) -> bool:
        return (not form or form in self.forms) and self.number(0, 99) >= 100 - percent

    def pick(self, items: Sequence[T]) -> T:
        return items[self.number(0, len(items) - 1)]

    def order(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        return [items[index] for index in self._draw(_permutations(len(items)))]

    # ---- names -----------------------------------------------------------------------------

    def name(
        self,
        taken: set[str],
        words: Sequence[str],
        hostile: Sequence[str],
        good: Callable[[str], bool] = bool,
        key: Callable[[str], str] = names.normal,
    ) -> str:
        """A name that is not taken yet."""
        name = self.pick(hostile or words) if self.chance("hostile names", 25) else self.pick(words)
        if not good(name):
            name = words[0]
        start, number = name, 1
        while key(name) in taken:
            number += 1
            name = f"{start}{number}"
        taken.add(key(name))
        return name

    def definition_name(self) -> str:
        return self.name(
            self.taken, names.DEFINITIONS, names.HOSTILE_DEFINITIONS, names.is_class_name
        )

    def doc(self) -> str:
        return self.pick(names.DOCS) if self.chance("docs", 15) else ""

    # ---- definitions -----------------------------------------------------------------------

    def enum(self) -> Enum:
        type_ = self.pick(INTEGERS)
        low, high = bounds(type_)
        values: list[int] = []
        members = []
        taken: set[str] = set()
        for _ in range(self.number(1, 4)):
            value = self.pick((len(values), low, high, 100, max(low, -1)))
            if value in values:
                continue
            values.append(value)
            name = self.name(taken, names.MEMBERS, names.HOSTILE_MEMBERS)
            words = ("retriable",) if self.chance("words", 20) else ()
            members.append((value, name, words))
        return Enum(
            self.definition_name(),
            type_,
            tuple(members),
            self.chance("words", 20),
            self.doc(),
        )

    # ---- fields ----------------------------------------------------------------------------

    def versions(self, context: Context) -> Versions:
        """The versions of a field."""
        if context.shared and "absent" not in self.forms:
            return ALL
        kind = self.number(0, 9)
        if kind < 5:
            return ALL
        first = self.number(0, context.top)
        found = Versions(first, self.number(first, context.top) if kind > 7 else None)
        lowest = 0 if "absent" in self.forms else context.lowest
        around = [Versions(lowest, context.highest), *context.holders]
        if "absent" in self.forms:
            good = all(_meet(found, each) for each in around)
        else:
            good = any(all(v in each for each in (*around, found)) for v in range(context.top + 1))
        return found if good else ALL

    def fields(
        self, context: Context, parts: Sequence[Struct], enums: Sequence[Enum], least: int
    ) -> list[Field]:
        """The fields of a struct, in order, without tag numbers."""
        found: list[Field] = []
        taken: set[str] = set()
        most = self.pick((2, 1, 3, 4, 6)) if context.depth else self.pick((3, 1, 2, 5, 8, 12))
        for _ in range(max(least, self.number(0, most))):
            if self.budget <= 0 and len(found) >= least:
                break
            self.budget -= 1
            found += self.field(context, parts, enums, taken)
        return found

    def field(
        self,
        context: Context,
        parts: Sequence[Struct],
        enums: Sequence[Enum],
        taken: set[str],
    ) -> Iterator[Field]:
        """A field, or two: a length and the bytes that it counts."""
        versions = self.versions(context)
        if self.chance("millis", 4):
            yield from self.millis(context, versions, taken)
            return
        name = self.name(taken, names.FIELDS, names.HOSTILE_FIELDS)
        if self.chance("lengths", 5):
            type_ = self.pick(("int32", "int8", "int16", "int64", "uint16", "uint32"))
            minus = self.pick((0, 1, 4, 49) if type_.startswith("u") else (0, 1, 4, 49, -1, -5))
            # Its default is the length of no bytes.
            yield Field(name, Number(type_), minus, versions=versions, is_length=True)
            counted = self.name(taken, names.FIELDS, names.HOSTILE_FIELDS)
            yield Field(counted, Counted(name, minus), b"", versions=versions)
            return
        tagged = (
            context.tags
            and _meet(versions, Versions(context.flexible_from or 0))
            and all(_meet(each, Versions(context.flexible_from or 0)) for each in context.holders)
            and self.chance("tags", 35)
        )
        kind = self.type(context.inside(versions), parts, enums, name, versions, context)
        default, written = self.default(kind)
        inner = innermost(kind)
        nameable = (
            isinstance(inner, Number) and inner.name not in ("bool", "float64", "float32", "uuid")
        ) or (isinstance(inner, Text) and inner.kind == "string")
        yield Field(
            name,
            kind,
            default,
            written,
            versions,
            0 if tagged else None,
            not tagged and self.chance("not flexible", 8),
            self.chance("ignorable", 10),
            self.pick(names.ENTITIES) if nameable and self.chance("entity", 20) else "",
            self.doc(),
        )

    def millis(self, context: Context, versions: Versions, taken: set[str]) -> Iterator[Field]:
        name = self.pick(("ThrottleMillis", "TimeoutMillis"))
        if names.normal(name) in taken:
            return
        taken.add(names.normal(name))
        written = self.chance("", 50)
        value = (
            self.number(0, context.top) if name == "ThrottleMillis" else self.pick((60000, 0, 1))
        )
        default = 0 if name == "ThrottleMillis" else (value if written else 15000)
        text = f"{name}({value})" if written else name
        yield Field(name, Number("int32"), default, versions=versions, shorthand=text)

    def type(
        self,
        inside: Context,
        parts: Sequence[Struct],
        enums: Sequence[Enum],
        name: str,
        versions: Versions,
        context: Context,
    ) -> Type:
        """The type of a field."""
        kind = self.number(0, 19)
        if kind >= 14 and "arrays" in self.forms:
            element = self.element(inside, parts, enums, name)
            while self.chance("nested arrays", 12):
                element = Array(element)
            if self.chance("varint arrays", 12):
                return Array(element, prefix="varint")
            return self.prefixed(Array(element, self.nulls(versions, context)))
        if kind >= 11 and "nested" in self.forms and inside.depth < 4:
            inline = self.inline(inside, parts, enums, name)
            nullable = self.chance("nullable structs", 40)
            flag = nullable and self.chance("flags", 30)
            return replace(inline, nullable=nullable, flag=flag)
        if kind in (9, 10):
            named = self.named(inside, parts)
            if named is not None:
                nullable = self.chance("nullable names", 25)
                return Named(named, nullable, nullable and self.chance("flags", 30))
        return self.simple(enums, self.nulls(versions, context))

    def element(
        self, inside: Context, parts: Sequence[Struct], enums: Sequence[Enum], name: str
    ) -> Type:
        kind = self.number(0, 9)
        if kind >= 7 and "nested" in self.forms and inside.depth < 4:
            return self.inline(inside, parts, enums, name)
        if kind >= 5:
            named = self.named(inside, parts)
            if named is not None:
                return Named(named)
        nulls = None
        if self.chance("null", 30):
            nulls = Versions(self.number(0, inside.top)) if self.chance("null from", 30) else ALL
        return self.simple(enums, nulls)

    def named(self, context: Context, parts: Sequence[Struct]) -> Struct | None:
        """A named struct that a field can have."""
        known = [*context.own, *parts]
        return self.pick(known) if known else None

    def inline(
        self, inside: Context, parts: Sequence[Struct], enums: Sequence[Enum], name: str
    ) -> Inline:
        hint = ""
        if inside.known and self.chance("collisions", 25):
            hint = self.pick(inside.known)
        elif self.chance("", 20) or names.stem(name) in inside.classes:
            hint = self.name(
                inside.classes,
                names.DEFINITIONS,
                names.HOSTILE_DEFINITIONS,
                names.is_class_name,
                names.stem,
            )
            inside.known.append(hint)
        else:
            inside.classes.add(names.stem(name))
            inside.known += [names.SINGULARS[name]] if name in names.SINGULARS else []
        fields = self.fields(inside, parts, enums, 1)
        return Inline(self.finished(Struct("anonymous", tuple(fields)), inside), hint=hint)

    def nulls(self, versions: Versions, context: Context) -> Versions | None:
        """The versions in which the value of a field can be null."""
        if not self.chance("null", 35):
            return None
        if not self.chance("null from", 35):
            return ALL
        first = self.number(0, context.top)
        found = Versions(first)
        if self.chance("null until", 40):
            found = Versions(first, self.number(first, context.top))
        last = versions.last if versions.last is not None else context.highest
        return found if _meet(found, Versions(versions.first, last)) else ALL

    def simple(self, enums: Sequence[Enum], nulls: Versions | None) -> Type:
        kind = self.number(0, 9)
        if kind == 9 and enums:
            return EnumOf(self.pick(enums))
        if kind >= 8 and "varints" in self.forms:
            name = self.pick(("varint", "varlong", "varint-string", "varint-bytes"))
            _, _, kind_of_text = name.partition("-")
            return Text(kind_of_text, ALL, "varint") if kind_of_text else Number(name)
        if kind >= 4:
            text = Text(self.pick(("string", "bytes")), nulls)
            return self.prefixed(text)
        if self.chance("unsigned", 15):
            return Number(self.pick(UNSIGNED))
        if self.chance("float32", 5):
            return Number("float32")
        return Number(self.pick(FIXED))

    def prefixed(self, type_: Text | Array) -> Text | Array:
        """The type with another length or count."""
        if not self.chance("prefixes", 15):
            return type_
        prefix = self.pick(("int16", "int32", "uvarint"))
        return replace(
            type_, prefix=prefix, nullable=None if prefix == "uvarint" else type_.nullable
        )

    def default(self, type_: Type) -> tuple[Any, str]:
        """The default of a field, and how it is written."""
        usual = zero(type_)
        if not self.chance("defaults", 35):
            return usual, ""
        nullable = getattr(type_, "nullable", None)
        if nullable not in (None, False) and self.chance("", 50):
            return None, "(null)"
        match type_:
            case Inline(struct, nullable=True) | Named(struct, nullable=True):
                return defaults(struct), "()"
            case Array():
                return [], "()"
            case Text(kind="bytes"):
                return b"", "()"
            case Text():
                text = self.pick(
                    ("abc", "", "a b", 'x"y', "it's", "\\n", "é{{ x }}", "%s", "a//b", "-1", "None")
                )
                return text, f"({text})"
            case Number("bool"):
                return True, "(true)"
            case Number("uuid"):
                number = self.pick((1, (1 << 128) - 1, 0x8AC2BF8FA1E54F0A8139944F377B0919))
                return UUID(int=number), f"({UUID(int=number)})"
            case Number("float64" | "float32"):
                real = self.pick(
                    (
                        0.5,
                        3.25,
                        -0.0,
                        1e300 if type_.name == "float64" else 1.5,
                        -1e-5 if type_.name == "float64" else 2.0,
                    )
                )
                return real, f"({real})"
            case Number(name):
                return self.integer(name)
            case EnumOf(enum):
                return self.integer(enum.type)
        return usual, ""

    def integer(self, name: str) -> tuple[int, str]:
        low, high = bounds(name)
        value = self.pick((1, max(low, -1), low, high, 100))
        return value, f"({hex(value) if value >= 0 and self.chance('', 20) else value})"

    def finished(self, struct: Struct, context: Context) -> Struct:
        """Number the tags, and reserve some."""
        tagged = [item for item in struct.fields if item.tag is not None]
        count = 0
        if context.tags and self.chance("reserved", 10):
            count = self.number(1, 2)
        tags = (
            self.order(range(len(tagged) + count))
            if len(tagged) + count > 1
            else [*range(len(tagged) + count)]
        )
        rest = iter(tags)
        fields = tuple(
            item if item.tag is None else replace(item, tag=next(rest)) for item in struct.fields
        )
        return replace(struct, fields=fields, reserved=tuple(sorted(rest)))


def _meet(one: Versions, other: Versions) -> bool:
    ends = [each.last for each in (one, other) if each.last is not None]
    return max(one.first, other.first) <= min(ends, default=max(one.first, other.first))


@cache
def _integers(low: int, high: int) -> Any:
    return st.integers(low, high)


@cache
def _permutations(count: int) -> Any:
    return st.permutations(range(count))
