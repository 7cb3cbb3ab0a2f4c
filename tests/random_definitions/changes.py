"""Random changes of a protocol, and what peers with the old and the new definitions read of each other's bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.random_definitions import reference
from tests.random_definitions.model import (
    ALL,
    Array,
    Enum,
    Field,
    File,
    Inline,
    Named,
    Package,
    Protocol,
    Struct,
    Text,
    Type,
    Versions,
    defaults,
    innermost,
    struct_in,
    zero,
)
from tests.random_definitions.package_strategies import draw_protocol, highest_named
from tests.random_definitions.reference import Invalid, Unbounded, UnknownVersion, Value, has, same
from tests.random_definitions.strategies import FORMS, TOP, Context, Maker
from tests.random_definitions.values import Values, versions_of

# What a change of one package needs. Names do not matter to bytes.
CHANGE_FORMS = frozenset(FORMS) - {"packages", "files", "headers", "docs", "hostile names", "words"}
RENAMED = "Renamed"


@dataclass(frozen=True)
class Change:
    """A protocol before and after a change. A renamed field has the name ``RENAMED`` after it."""

    what: str
    old: Protocol
    new: Protocol
    renamed: str = ""

    def __repr__(self) -> str:
        return f"{self.what}\n---- old\n{self.old.text}\n---- new\n{self.new.text}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # for hypothesis


@st.composite
def changes(draw: Any) -> Change:
    """A protocol of one package, and the same with one change. The new definitions can be invalid."""
    maker = Maker(draw, CHANGE_FORMS)
    maker.budget = 25
    old = draw_protocol(maker)
    return _Changer(maker, old).change()


class _Changer:
    def __init__(self, maker: Maker, old: Protocol) -> None:
        self.maker = maker
        self.old = old
        self.package = old.packages[0]
        self.structs = list(self.package.structs)
        self.renamed = ""

    def change(self) -> Change:
        struct = self.maker.pick(self.structs)
        places = [*_places(struct)]
        fields: tuple[Callable[[Struct, int], Struct], ...] = (
            self.default,
            self.rename,
            self.remove,
            self.swap,
            self.retype,
            self.versions,
        )
        fields += (self.nullable, self.classic, self.ignorable, self.tag, self.other_tag)
        headers = (self.highest, self.lowest, self.flexible, self.add)
        number = self.maker.number(0, len(fields) + len(headers) - 1)
        if places and number < len(fields):
            at = self.maker.pick(places)
            edit = fields[number]
            what = f"{edit.__name__} of {struct.name} {at}"
            new = _edited(struct, at, edit)
        else:
            of_struct = headers[number % len(headers)]
            what = f"{of_struct.__name__} of {struct.name}"
            new = of_struct(struct)
        return Change(what, self.old, self.protocol(struct, new), self.renamed)

    def protocol(self, old: Struct, new: Struct) -> Protocol:
        """The protocol with a struct replaced, wherever it is used."""
        known = {each.name: each for each in self.structs}
        known[old.name] = new
        if old.role in ("request", "response"):  # a response has the versions of its request
            for each in self.structs:
                if each.key == old.key and each.role in ("request", "response") and each is not old:
                    known[each.name] = replace(
                        each,
                        lowest=new.lowest,
                        highest=new.highest,
                        flexible_from=new.flexible_from,
                    )
        done: dict[str, Struct] = {}

        def fresh(name: str) -> Struct:
            if name not in done:
                done[name] = _refreshed(known[name], fresh)
            return done[name]

        files = tuple(
            File(
                file.name,
                tuple(
                    each if isinstance(each, Enum) else fresh(each.name)
                    for each in file.definitions
                ),
            )
            for file in self.package.contents
        )
        return Protocol((Package(self.package.name, files),))

    # ---- changes of a struct -------------------------------------------------------------

    def highest(self, struct: Struct) -> Struct:
        if struct.highest is None or struct.implied:
            return struct
        return replace(struct, highest=max(0, struct.highest + self.maker.pick((1, -1, 2))))

    def lowest(self, struct: Struct) -> Struct:
        return replace(struct, lowest=max(0, struct.lowest + self.maker.pick((1, -1))))

    def flexible(self, struct: Struct) -> Struct:
        return replace(struct, flexible_from=self.maker.pick((None, 0, 1, 2, 3)))

    def add(self, struct: Struct) -> Struct:
        context = Context(
            struct.name,
            struct.lowest,
            struct.highest,
            struct.flexible_from,
            tags=struct.flexible_from is not None,
        )
        tags = {item.tag for item in struct.fields if item.tag is not None} | {*struct.reserved}
        taken = {item.name.lower() for item in struct.fields}
        new = [
            item if item.tag is None else replace(item, tag=len(tags))
            for item in self.maker.field(context, (), (), taken)
        ]
        at = self.maker.number(0, len(struct.fields))
        if struct.role == "versioned":
            at = max(at, 1)
        return replace(struct, fields=(*struct.fields[:at], *new, *struct.fields[at:]))

    # ---- changes of a field --------------------------------------------------------------

    def default(self, struct: Struct, at: int) -> Struct:
        item = struct.fields[at]
        for _ in range(4):
            value, written = self.maker.default(item.type)
            if not same(value, item.default):
                return _with(
                    struct, at, replace(item, default=value, written=written, shorthand="")
                )
        return struct

    def rename(self, struct: Struct, at: int) -> Struct:
        if struct.fields[at].shorthand or isinstance(innermost(struct.fields[at].type), Inline):
            return struct  # its name is that of a class, too
        self.renamed = struct.fields[at].name
        return _with(struct, at, replace(struct.fields[at], name=RENAMED))

    def remove(self, struct: Struct, at: int) -> Struct:
        item = struct.fields[at]
        reserved = struct.reserved
        if item.tag is not None and self.maker.chance("", 60):
            reserved = tuple(sorted((*reserved, item.tag)))
        fields = (*struct.fields[:at], *struct.fields[at + 1 :])
        return replace(struct, fields=fields, reserved=reserved)

    def swap(self, struct: Struct, at: int) -> Struct:
        fields = list(struct.fields)
        other = self.maker.number(0, len(fields) - 1)
        fields[at], fields[other] = fields[other], fields[at]
        return replace(struct, fields=tuple(fields))

    def retype(self, struct: Struct, at: int) -> Struct:
        item = struct.fields[at]
        if isinstance(innermost(item.type), Inline):
            return struct
        type_ = self.maker.simple((), None)
        if self.maker.chance("", 20):
            type_ = Array(type_)
        return _with(
            struct,
            at,
            replace(item, type=type_, default=zero(type_), written="", entity="", shorthand=""),
        )

    def versions(self, struct: Struct, at: int) -> Struct:
        first = self.maker.number(0, 4)
        last = self.maker.pick((None, None, first, first + 1))
        return _with(struct, at, replace(struct.fields[at], versions=Versions(first, last)))

    def nullable(self, struct: Struct, at: int) -> Struct:
        item = struct.fields[at]
        type_: Type = item.type
        if isinstance(type_, Inline):
            type_ = replace(type_, nullable=not type_.nullable)
        elif isinstance(type_, (Text, Array)) and not type_.prefix:
            other = self.maker.pick((None, ALL, Versions(self.maker.number(0, 3))))
            type_ = replace(type_, nullable=other)
        return _with(struct, at, replace(item, type=type_, default=zero(type_), written=""))

    def classic(self, struct: Struct, at: int) -> Struct:
        item = struct.fields[at]
        return _with(struct, at, replace(item, classic=not item.classic and item.tag is None))

    def ignorable(self, struct: Struct, at: int) -> Struct:
        item = struct.fields[at]
        return _with(struct, at, replace(item, ignorable=not item.ignorable))

    def tag(self, struct: Struct, at: int) -> Struct:
        """Give a field a tag, or take it away."""
        item = struct.fields[at]
        tags = {each.tag for each in struct.fields if each.tag is not None} | {*struct.reserved}
        if item.tag is None:
            return _with(struct, at, replace(item, tag=len(tags), classic=False))
        changed = _with(struct, at, replace(item, tag=None))
        return replace(changed, reserved=tuple(sorted((*struct.reserved, item.tag))))

    def other_tag(self, struct: Struct, at: int) -> Struct:
        """Exchange the tags of two fields."""
        tagged = [n for n, each in enumerate(struct.fields) if each.tag is not None]
        if struct.fields[at].tag is None or len(tagged) < 2:
            return struct
        other = self.maker.pick(tagged)
        one, two = struct.fields[at], struct.fields[other]
        return _with(_with(struct, at, replace(one, tag=two.tag)), other, replace(two, tag=one.tag))


def _with(struct: Struct, at: int, item: Field) -> Struct:
    return replace(struct, fields=(*struct.fields[:at], item, *struct.fields[at + 1 :]))


def _places(struct: Struct) -> Iterator[tuple[int, ...]]:
    """The positions of all fields, also of anonymous structs inside. A version field stays as it is."""
    for at, item in enumerate(struct.fields):
        if struct.role == "versioned" and at == 0:
            continue
        yield (at,)
        inner = innermost(item.type)
        if isinstance(inner, Inline):
            yield from ((at, *rest) for rest in _places(inner.struct))


def _edited(struct: Struct, place: Sequence[int], edit: Callable[[Struct, int], Struct]) -> Struct:
    if len(place) == 1:
        return edit(struct, place[0])
    item = struct.fields[place[0]]

    def inside(type_: Type) -> Type:
        if isinstance(type_, Array):
            return replace(type_, element=inside(type_.element))
        assert isinstance(type_, Inline)
        return replace(type_, struct=_edited(type_.struct, place[1:], edit))

    return _with(struct, place[0], replace(item, type=inside(item.type)))


def _refreshed(struct: Struct, named: Callable[[str], Struct]) -> Struct:
    """The struct with the current named structs in it, and the defaults that result."""

    def inside(type_: Type) -> Type:
        match type_:
            case Array():
                return replace(type_, element=inside(type_.element))
            case Inline():
                return replace(type_, struct=_refreshed(type_.struct, named))
            case Named(inner):
                return replace(type_, struct=named(inner.name))
        return type_

    fields = []
    for item in struct.fields:
        type_ = inside(item.type)
        default = item.default
        if isinstance(default, dict):
            inner = struct_in(type_)
            assert inner is not None
            default = defaults(inner)
        fields.append(replace(item, type=type_, default=default))
    result = replace(struct, fields=tuple(fields))
    return replace(result, highest=highest_named(result)) if result.implied else result


# ---- what peers read ----------------------------------------------------------------------------


def broken_bytes(change: Change, rng: Random, samples: int) -> str:
    """Return how a peer with the other definitions misreads bytes, or an empty text."""
    new = {each.name: each for each in change.new.packages[0].structs}
    for struct in change.old.packages[0].structs:
        if struct.encodes:
            found = _broken(change, struct, new[struct.name], rng, samples)
            if found:
                return found
    return ""


def _broken(change: Change, old: Struct, new: Struct, rng: Random, samples: int) -> str:
    values = Values(rng, unknown_tags=False)
    versions = versions_of(old)
    if old.highest is None:
        versions = [*range(old.lowest, TOP + 2)]
    for version in versions:
        if version < new.lowest or (new.highest is not None and version > new.highest):
            return f"{old.name} has no version {version}"
        for writer, reader in ((old, new), (new, old)):
            for _ in range(samples):
                value = values.message(writer, version)
                data = reference.encode(writer, version, value)
                side = "old" if writer is old else "new"
                where = f"{old.name} v{version}, written by {side}: {data.hex()} = {value}"
                try:
                    read = reference.decode(reader, data, version)
                except UnknownVersion:
                    continue  # a writer chooses a version that its peer knows
                except (Invalid, Unbounded) as error:
                    return f"{where}: {error}"
                if not _agree(
                    change, writer, reader, version, writer.flexible(version), value, read
                ):
                    return f"{where}: read as {read}"
    return ""


def _agree(
    change: Change, one: Struct, two: Struct, version: int, flexible: bool, a: Value, b: Value
) -> bool:
    if one.role == "versioned":
        version = a[one.fields[0].name]
        flexible = one.flexible(version)
    fields = {_name(change, item): item for item in two.fields}
    for item in one.fields:
        other = fields.get(_name(change, item))
        if other is None or not (has(item, version, flexible) or has(other, version, flexible)):
            continue
        if not _same(
            change,
            item.type,
            other.type,
            version,
            flexible and not item.classic,
            a[item.name],
            b[other.name],
        ):
            return False
    return True


def _name(change: Change, item: Field) -> str:
    return change.renamed if item.name == RENAMED else item.name


def _same(
    change: Change, one: Type, two: Type, version: int, flexible: bool, a: Any, b: Any
) -> bool:
    if isinstance(one, Array) and isinstance(two, Array) and isinstance(a, list):
        return (
            isinstance(b, list)
            and len(a) == len(b)
            and all(
                _same(change, one.element, two.element, version, flexible, x, y)
                for x, y in zip(a, b, strict=True)
            )
        )
    if isinstance(a, dict) and isinstance(b, dict):
        inner, other = struct_in(one), struct_in(two)
        assert inner is not None and other is not None
        return _agree(change, inner, other, version, flexible, a, b)
    return same(a, b)
